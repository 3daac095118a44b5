//! A system that returns fewer bytes than asked for and interrupts reads, again and again: all results are the same as
//! without that.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use onefold_backup::roots::SnapshotRoots;
use onefold_io::sim::{Faults, SimDir};
use onefold_store::CheckDepth;

use crate::crash::{NoWait, open, recovers, work};

/// Returns the names of all stored objects, except snapshots, whose names depend on the source's inodes: these are
/// counted.
fn stored(device: &SimDir) -> (BTreeSet<String>, usize) {
    let all = device.paths();
    let (snapshots, others): (BTreeSet<_>, _) = all
        .into_iter()
        .partition(|path| path.starts_with("snapshots/"));
    (others, snapshots.len())
}

/// Backs up, tags, forgets and sweeps; checks, repairs and restores; returns the stored objects.
fn run(short_reads: bool, dir: &Path) -> (BTreeSet<String>, usize) {
    let source = dir.join("source");
    let device = SimDir::new(1);
    device.inject(Faults {
        short_reads,
        ..Faults::default()
    });
    let kept = work(&device, &source).kept;
    let found = stored(&device);
    let repository = open(&device, 500).expect("open");
    let depth = CheckDepth::Data { part: 1, of: 1 };
    let check = repository.check(&SnapshotRoots, depth, &mut |_| {}, &mut |_| {});
    let check = check.expect("check");
    assert!(check.damage.is_empty(), "{:?}", check.damage);
    let repaired = repository.repair(&SnapshotRoots, &mut NoWait);
    let repaired = repaired.expect("repair");
    assert!(repaired.found.is_empty(), "{:?}", repaired.found);
    drop(repository);
    recovers(&device, &kept, &source, dir, "in the end");
    found
}

#[test]
fn reads_that_come_in_parts_change_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let whole = run(false, dir.path());
    fs::remove_dir_all(dir.path().join("source")).expect("remove");
    let in_parts = run(true, dir.path());
    assert_eq!(whole, in_parts);
}
