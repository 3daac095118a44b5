//! Objects that claim to be larger than any memory: a hole of four tebibytes behind their bytes.

use std::sync::Arc;

use onefold_io::{Dir, MemDir};
use onefold_store::Encryption;

use crate::fixture::{Hasty, Lists, assert_sound, back_up, check, chunks, init, open, sweep};

const HUGE: u64 = 4 << 40;

/// The folder and the name of each object whose path begins so.
fn objects(dir: &Arc<dyn Dir>, folder: &str) -> Vec<(Arc<dyn Dir>, String)> {
    let inside = match folder {
        "" => Arc::clone(dir),
        folder => dir.open_subdir(folder).unwrap(),
    };
    let files = inside.list().unwrap().into_iter();
    let files = files.filter(|entry| !entry.is_dir && !entry.name.contains("lock"));
    files
        .map(|entry| (Arc::clone(&inside), entry.name))
        .collect()
}

fn stretch((dir, name): &(Arc<dyn Dir>, String)) {
    dir.open_write(name).unwrap().set_len(HUGE).unwrap();
}

#[test]
fn what_is_longer_than_any_object_is_damage_and_takes_no_memory() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    let repository = open(&dir, 1, 1).unwrap();
    let data = chunks(1, 40);
    let (root, _) = back_up(&repository, &data).unwrap();
    repository.put_sketch(b"learnt").unwrap();
    // A list that a sweep left: as long as it cannot be read, nothing is swept.
    dir.create("condemned").unwrap();
    drop(repository);
    let names = |folder: &str| objects(&dir, folder);
    stretch(
        &names("index")
            .into_iter()
            .find(|(_, name)| name == "ingested")
            .unwrap(),
    );
    let repository = open(&dir, 1, 2).unwrap();
    for name in ["config", "sketch", "condemned"] {
        stretch(&(Arc::clone(&dir), name.into()));
    }
    drop(repository);
    let repository = open(&dir, 1, 3).unwrap();
    let report = check(&repository).map(|report| report.damage.len());
    // The list of the condemned tells what may be referred to, so without it no backup begins; who only reads goes on.
    assert!(matches!(report, Ok(3)), "{report:?}");
    assert!(back_up(&repository, &data).is_err_and(|error| error.is_damage()));
    let report = repository.repair(&Lists, &mut Hasty).unwrap();
    assert_eq!(report.restored_objects, ["config"], "{report:?}");
    assert_eq!(report.removed_objects, ["condemned", "sketch"]);
    assert_sound(&repository, &[(root, data.clone())], &"repaired");
    back_up(&repository, &data).unwrap();

    stretch(&names("snapshots")[0]);
    let report = check(&repository).unwrap();
    assert!(!report.damage.is_empty() && report.damaged_roots.len() == 1);
    assert!(sweep(&repository).is_err());
}

#[test]
fn a_key_slot_that_is_too_long_opens_nothing_and_others_do() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    stretch(&objects(&dir, "keys")[0]);
    let refused = open(&dir, 1, 1).err();
    assert!(refused.is_some_and(|error| error.is_damage()));
}
