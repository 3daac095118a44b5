//! Sessions whose pin was taken away while they ran, as over a network file system that freed the lock of a machine that slept: they acknowledge nothing.

use std::sync::Arc;

use onefold_io::{Dir, MemDir};
use onefold_store::{Encryption, Error, Repository, RootId, SessionKind, StreamKind};

use crate::fixture::{back_up, check, chunks, encode_root, init, open, sweep};
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
