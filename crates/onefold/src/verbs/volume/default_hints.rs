//! Hints that all requests to a volume have: the file `hints` in the depot's folder (FORMAT.md, "Default hints"). It is
//! advice: without it, or where it is damaged, no volume has any.

use std::io::Read;
use std::path::Path;

use onefold_io::{FileDir, replace_file};
use onefold_volume::hints::HintKind;
use onefold_volume::{Error as VolumeError, Hints};

use super::hints_file::HintsFile;
use crate::error::{Error, Result};

const NAME: &str = "hints";
const TEMPORARY: &str = "hints.new";
/// A file that is larger than this was not written by us, and counts as none.
const BYTES_MAX: u64 = 16 << 20;

/// The default hints of a volume.
pub fn of_volume(folder: &Path, volume: &str) -> Hints {
    read(folder).of_volume(volume)
}

/// Notes the default hints of a new volume, in place of those of an earlier one of this name.
///
/// # Errors
/// The folder cannot be written to.
pub fn set(folder: &Path, volume: &str, kinds: &[HintKind]) -> Result<()> {
    let mut all = read(folder);
    if !all.set(volume, kinds) {
        return Ok(());
    }
    let dir = FileDir::open(folder).map_err(VolumeError::from)?;
    let written = replace_file(&dir, TEMPORARY, NAME, &all.encode());
    written.map_err(|error| Error::Device(error.into()))
}

fn read(folder: &Path) -> HintsFile {
    let mut text = Vec::new();
    let file = std::fs::File::open(folder.join(NAME));
    match file.and_then(|file| file.take(BYTES_MAX).read_to_end(&mut text)) {
        Ok(_) => HintsFile::decode(&text),
        Err(_) => HintsFile::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_hints() {
        let folder = tempfile::tempdir().expect("a folder");
        set(folder.path(), "vm", &HintKind::ALL).expect("written");
        set(folder.path(), "main", &[HintKind::Nodedup]).expect("written");
        let bytes = std::fs::read(folder.path().join(NAME)).expect("it is there");
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/depot-hints-1");
        if std::env::var_os("ONEFOLD_BLESS").is_some() {
            std::fs::write(&golden, &bytes).expect("the golden file can be written");
        }
        let known = std::fs::read(golden).expect("the golden file is there");
        assert_eq!(
            bytes.escape_ascii().to_string(),
            known.escape_ascii().to_string()
        );
        let all = HintsFile::decode(&known);
        assert_eq!(
            all.of_volume("main"),
            Hints::default().with(HintKind::Nodedup)
        );
        let each = HintKind::ALL
            .into_iter()
            .fold(Hints::default(), Hints::with);
        assert_eq!(all.of_volume("vm"), each);
    }

    #[test]
    fn each_volume_has_its_own_and_damage_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        let nodedup = Hints::default().with(HintKind::Nodedup);
        assert_eq!(of_volume(path, "main"), Hints::default());
        set(path, "main", &[]).expect("written");
        assert!(!path.join(NAME).exists());
        set(path, "main", &[HintKind::Nodedup]).expect("written");
        let both = [HintKind::Prefetch, HintKind::Incompressible];
        set(path, "vm", &both).expect("written");
        assert_eq!(of_volume(path, "main"), nodedup);
        assert!(of_volume(path, "vm").prefetch && !of_volume(path, "vm").nodedup);
        set(path, "vm", &[]).expect("written");
        assert_eq!(of_volume(path, "vm"), Hints::default());
        assert_eq!(of_volume(path, "main"), nodedup);
        for damaged in ["", "[1]", "{\"main\":7}", "{\"main\":[7,\"fast\"]}"] {
            std::fs::write(path.join(NAME), damaged).expect("written");
            assert_eq!(of_volume(path, "main"), Hints::default(), "{damaged}");
        }
    }
}
