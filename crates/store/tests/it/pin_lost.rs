//! Sessions whose pin was taken away while they ran, as over a network file system that freed the lock of a machine
//! that slept: they acknowledge nothing.

use std::sync::Arc;

use onefold_io::{Dir, MemDir};
use onefold_store::{Encryption, Error, Repository, RootId, SessionKind, StreamKind};

use crate::fixture::{assert_sound, back_up, check, chunks, encode_root, init, open, sweep};
use crate::guarded::{Failing, Guarded};

fn scene() -> Arc<dyn Dir> {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    init(&dir, Encryption::Aes256Gcm).unwrap();
    dir
}

fn lose_pins(dir: &Arc<dyn Dir>) {
    let sessions = dir.open_subdir("sessions").unwrap();
    for pin in sessions.list().unwrap() {
        sessions.remove(&pin.name).unwrap();
    }
}

/// A backup of `data` that does something before its root is put.
fn back_up_with(
    repository: &Repository,
    data: &[Vec<u8>],
    meanwhile: impl FnOnce(),
) -> Result<RootId, Error> {
    let session = repository.session(SessionKind::Backup).unwrap();
    let mut writer = session.writer(StreamKind::Data).unwrap();
    let named: Vec<_> = data
        .iter()
        .map(|data| (repository.fingerprinter().fingerprint(data), &data[..]))
        .collect();
    let mut refs = Vec::new();
    writer.write(&named, &mut refs).unwrap();
    writer.finish().unwrap();
    meanwhile();
    session.put_root(&encode_root(&refs))
}

#[test]
fn what_was_swept_beneath_a_backup_is_not_acknowledged() {
    let dir = scene();
    let (slept, other) = (open(&dir, 1, 1).unwrap(), open(&dir, 1, 2).unwrap());
    let data = chunks(1, 60);
    let refused = back_up_with(&slept, &data, || {
        lose_pins(&dir);
        assert!(sweep(&other).unwrap().deleted_containers > 0);
    });
    assert!(matches!(refused, Err(Error::PinLost { .. })), "{refused:?}");
    assert_eq!(other.roots().unwrap(), []);
    let (root, _) = back_up(&slept, &data).unwrap();
    assert_eq!(other.roots().unwrap(), [root]);
    assert!(check(&other).unwrap().damage.is_empty());
}

/// A sweep may have looked at the roots just before.
#[test]
fn a_root_goes_again_where_the_pin_went_while_it_was_put() {
    let dir = scene();
    let failing = Failing::default();
    let slept = open(&Guarded::writable(&dir, &failing), 1, 1).unwrap();
    let refused = back_up_with(&slept, &chunks(1, 60), || {
        let dir = Arc::clone(&dir);
        failing.once_synced("/snapshots", move || lose_pins(&dir));
    });
    assert!(matches!(refused, Err(Error::PinLost { .. })), "{refused:?}");
    assert_eq!(slept.roots().unwrap(), []);
    let (root, stats) = back_up(&slept, &chunks(1, 60)).unwrap();
    assert_eq!(stats.new_chunks, 0, "it goes on from what was stored");
    assert_eq!(slept.roots().unwrap(), [root]);
}

/// The folder and the name of every container.
fn containers(dir: &Arc<dyn Dir>) -> Vec<(String, String)> {
    let all = dir.open_subdir("containers").unwrap();
    let folders = all.list().unwrap().into_iter().map(|entry| entry.name);
    let names = |folder: String| {
        let entries = all.open_subdir(&folder).unwrap().list().unwrap();
        let named = entries.into_iter().map(move |entry| entry.name);
        named.map(move |name| (folder.clone(), name))
    };
    folders.flat_map(names).collect()
}

/// Another sweep takes the copies, to which nothing refers yet, for dead.
#[test]
fn a_sweep_whose_copies_may_be_gone_deletes_nothing() {
    let dir = scene();
    let failing = Failing::default();
    let slept = open(&Guarded::writable(&dir, &failing), 1, 1).unwrap();
    let all = chunks(1, 120);
    let (whole, _) = back_up(&slept, &all).unwrap();
    let half: Vec<_> = all.into_iter().step_by(2).collect();
    let (root, _) = back_up(&slept, &half).unwrap();
    slept.remove_root(&whole).unwrap();
    let old = containers(&dir);
    let other = Arc::clone(&dir);
    failing.at_syncs(move || {
        let mut copies = containers(&other);
        copies.retain(|one| !old.contains(one));
        for (folder, name) in &copies {
            let folder = other.open_subdir("containers").unwrap().open_subdir(folder);
            folder.unwrap().remove(name).unwrap();
        }
        if !copies.is_empty() {
            lose_pins(&other);
        }
        !copies.is_empty()
    });
    let swept = sweep(&slept);
    assert!(matches!(swept, Err(Error::Overtaken { .. })), "{swept:?}");
    let fresh = open(&dir, 1, 2).unwrap();
    assert_sound(&fresh, &[(root, half.clone())], &"overtaken");
    assert!(sweep(&fresh).unwrap().compacted_containers > 0);
    assert_sound(&fresh, &[(root, half)], &"run again");
}

#[test]
fn one_at_a_time_chooses_roots_to_remove() {
    let dir = scene();
    let (first, second) = (open(&dir, 1, 1).unwrap(), open(&dir, 1, 2).unwrap());
    let lock = first.lock_roots().unwrap();
    assert!(matches!(second.lock_roots(), Err(Error::Locked { .. })));
    drop(lock);
    second.lock_roots().unwrap();
}

#[test]
fn a_root_that_is_gone_is_not_kept() {
    let dir = scene();
    let repository = open(&dir, 1, 1).unwrap();
    let (root, _) = back_up(&repository, &chunks(1, 10)).unwrap();
    assert!(repository.keep_root(&root).unwrap());
    repository.remove_root(&root).unwrap();
    assert!(!repository.keep_root(&root).unwrap());
}
