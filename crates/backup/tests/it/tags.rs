//! Changes of a snapshot's tags, beside commands that delete snapshots.

use onefold_backup::Error;
use onefold_backup::snapshots::{Retag, retag};
use onefold_io::sim::{Faults, SimDir, When};

use crate::crash::{back_up, init, open};

/// A snapshot that was read before its session, and forgotten and swept in between, would come back without its
/// containers.
#[test]
fn a_snapshot_is_read_for_other_tags_only_in_a_session() {
    let source = tempfile::tempdir().expect("tempdir");
    std::fs::write(source.path().join("f"), "content").expect("write");
    let device = SimDir::new(1);
    init(&device);
    let repository = open(&device, 1).expect("open");
    let (id, ..) = back_up(&repository, source.path(), 1);
    // Neither step can succeed: the error shows which of them came first.
    device.inject(Faults {
        no_space: When::From(0),
        read_error: When::From(0),
        ..Faults::default()
    });
    let failed = retag(&repository, id, &Retag::default());
    let is_session = matches!(&failed, Err(Error::Store(error)) if error.is_no_space());
    assert!(is_session, "{failed:?}");
    device.inject(Faults::default());
    let add = Retag {
        add: vec!["new".into()],
        ..Retag::default()
    };
    let new = retag(&repository, id, &add).expect("well again");
    assert!(new.is_some_and(|new| new != id));
}

/// A command that forgets by rules could take the old and the new snapshot for two.
#[test]
fn tags_change_when_nobody_chooses_snapshots_to_forget() {
    let source = tempfile::tempdir().expect("tempdir");
    std::fs::write(source.path().join("f"), "content").expect("write");
    let device = SimDir::new(1);
    init(&device);
    let (repository, forgetting) = (open(&device, 1), open(&device, 2));
    let (repository, forgetting) = (repository.expect("open"), forgetting.expect("open"));
    let (id, ..) = back_up(&repository, source.path(), 1);
    let lock = forgetting.lock_roots().expect("free");
    let add = Retag {
        add: vec!["new".into()],
        ..Retag::default()
    };
    let failed = retag(&repository, id, &add);
    assert!(matches!(
        failed,
        Err(Error::Store(onefold_store::Error::Locked { .. }))
    ));
    drop(lock);
    retag(&repository, id, &add).expect("free");
}
