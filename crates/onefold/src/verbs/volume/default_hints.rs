//! Hints that all requests to a volume have: the file `hints` in the depot's folder (FORMAT.md, "Default hints"). It is
//! advice: without it, or where it is damaged, no volume has any.

use std::path::Path;

use onefold_io::{FileDir, replace_file};
use onefold_volume::hints::HintKind;
use onefold_volume::{Error as VolumeError, Hints};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};

const NAME: &str = "hints";
const TEMPORARY: &str = "hints.new";

/// The default hints of a volume.
pub fn of_volume(folder: &Path, volume: &str) -> Hints {
    let all = read(folder);
    let names = all.get(volume).and_then(Value::as_array);
    let kinds = names.into_iter().flatten().filter_map(Value::as_str);
    let kinds = kinds.filter_map(|name| HintKind::by_name(name).ok());
    kinds.fold(Hints::default(), Hints::with)
}

/// Notes the default hints of a new volume, in place of those of an earlier one of this name.
///
/// # Errors
/// The folder cannot be written to.
pub fn set(folder: &Path, volume: &str, kinds: &[HintKind]) -> Result<()> {
    let mut all = read(folder);
    let before = all.remove(volume);
    if before.is_none() && kinds.is_empty() {
        return Ok(());
    }
    if !kinds.is_empty() {
        let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
        all.insert(volume.to_owned(), json!(names));
    }
    let text = format!("{}\n", Value::Object(all));
    let dir = FileDir::open(folder).map_err(VolumeError::from)?;
    let written = replace_file(&dir, TEMPORARY, NAME, text.as_bytes());
    written.map_err(|error| Error::Device(error.into()))
}

fn read(folder: &Path) -> Map<String, Value> {
    let text = std::fs::read(folder.join(NAME)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

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
