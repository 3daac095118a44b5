//! An index `strata` on a device that has room for insertions but not for merges, and on a device that fails meanwhile.

use std::sync::Arc;

use onefold_index::{ChunkIndex, ContainerId, Location, Strata};
use onefold_io::sim::{Faults, SimDir, When};
use onefold_io::{Dir, LockKind};

use crate::conformance::options;
use crate::folder::{check_no_leftovers, files_in};
use crate::history::key;

/// Keys of a session that has a run of its own: more than may be loose, and no more than a tail.
const RUN_KEYS: u64 = 1040;

fn open(dir: &SimDir, unique: u64) -> Strata {
    Strata::open(Arc::new(dir.clone()), options(unique, 1 << 20)).expect("open")
}

/// Inserts `count` keys from `first` on with the location `container`.
fn tell(index: &mut Strata, first: u64, count: u64, container: u64) {
    let location = Location {
        container: ContainerId(container),
    };
    let entries: Vec<_> = (first..first + count).map(|i| (key(i), location)).collect();
    index.insert(&entries).expect("insert");
}

fn find(index: &mut Strata, number: u64) -> Option<u64> {
    let mut found = [None];
    index.lookup(&[key(number)], &mut found).expect("lookup");
    found[0].map(|location| location.container.0)
}

/// An index with ten runs that are due to be merged, because another opener held the merge lock.
fn unmerged() -> SimDir {
    let dir = SimDir::new(1);
    let merging = dir.lock("merge", LockKind::Exclusive).expect("lock");
    let mut index = open(&dir, 1);
    for round in 0..10 {
        // the oldest run has the last keys
        tell(&mut index, (9 - round) * RUN_KEYS, RUN_KEYS, round);
        index.checkpoint().expect("checkpoint");
    }
    drop(merging);
    dir
}

/// An index with a log file of two containers and `keys` keys.
fn of_two_containers(keys: u64) -> SimDir {
    let dir = SimDir::new(1);
    let mut index = open(&dir, 1);
    tell(&mut index, 0, 700, 0);
    tell(&mut index, 700, keys - 700, 1);
    index.checkpoint().expect("checkpoint");
    dir
}

/// An index whose log pages are in a run.
fn with_a_run() -> SimDir {
    let dir = of_two_containers(RUN_KEYS);
    assert_eq!(files_in(&dir).runs, 1);
    dir
}

/// An index whose log pages are loose.
fn loose() -> SimDir {
    let dir = of_two_containers(1000);
    assert_eq!(files_in(&dir).runs, 0);
    dir
}

/// Inserts some keys of another container and retires the first, so that a merge or a compaction is due.
fn go_on(index: &mut Strata) {
    tell(index, 50_000, 10, 99);
    index.retire(&[ContainerId(0)]).expect("retire");
}

fn length_of(dir: &dyn Dir) -> u64 {
    let list = dir.list().expect("list");
    list.iter()
        .map(|entry| dir.len_of(&entry.name).expect("listed"))
        .sum()
}

#[test]
fn a_device_that_has_no_room_for_a_merge_fails_no_checkpoint_and_keeps_no_piece_of_it() {
    for made in [unmerged, with_a_run, loose] {
        let (mut fits, mut without_merge) = (false, 0);
        let (dir, wide) = (made(), made());
        let mut index = open(&wide, 2);
        go_on(&mut index);
        index.checkpoint().expect("checkpoint");
        let merged = (files_in(&wide), length_of(&wide));
        for room in (0..).step_by(1024) {
            let dir = dir.fork();
            let mut index = open(&dir, 2);
            go_on(&mut index);
            dir.inject(Faults {
                capacity_bytes: Some(length_of(&dir) + room),
                ..Faults::default()
            });
            let done = index.checkpoint().is_ok();
            check_no_leftovers(&dir, &format!("room for {room} bytes"));
            assert!(done || !fits, "room for {room} bytes");
            fits |= done;
            let own = if done { Some(99) } else { None };
            assert!(!done || find(&mut open(&dir, 3), 50_003) == own);
            if done && (files_in(&dir), length_of(&dir)) == merged {
                break;
            }
            without_merge += u64::from(done);
        }
        assert!(without_merge > 0);
    }
}

#[test]
fn a_merge_that_fails_leaves_no_files_and_what_it_was_to_replace() {
    for made in [unmerged, with_a_run, loose] {
        let mut failed = 0;
        let dir = made();
        for number in 0.. {
            let mut ok = 0;
            for kind in 0..3 {
                let dir = dir.fork();
                let mut index = open(&dir, 2);
                go_on(&mut index);
                let [read_error, write_error, sync_error] = [0, 1, 2].map(|other| {
                    if other == kind {
                        When::Once(number)
                    } else {
                        When::Never
                    }
                });
                dir.inject(Faults {
                    read_error,
                    write_error,
                    sync_error,
                    ..Faults::default()
                });
                let done = index.checkpoint().is_ok();
                dir.inject(Faults::default());
                ok += u64::from(done);
                failed += u64::from(!done);
                check_no_leftovers(&dir, &format!("kind {kind}, number {number}"));
                assert_eq!(find(&mut index, 50_003), Some(99));
                assert_eq!(
                    find(&mut index, 750).is_some(),
                    find(&mut open(&dir, 3), 750).is_some()
                );
            }
            if ok == 3 {
                break;
            }
        }
        assert!(failed > 10, "{failed}");
    }
}

#[test]
fn where_not_all_runs_can_be_merged_fewer_are_and_every_session_can_tell_what_it_has() {
    let dir = SimDir::new(1);
    let merging = dir.lock("merge", LockKind::Exclusive).expect("lock");
    let mut index = open(&dir, 1);
    tell(&mut index, 0, 60_000, 0);
    index.checkpoint().expect("checkpoint");
    drop((index, merging));
    let runs = files_in(&dir).runs as u64;
    assert!(runs > 50, "{runs}");
    // a run of all records takes more room
    dir.inject(Faults {
        capacity_bytes: Some(length_of(&dir) + 1_100_000),
        ..Faults::default()
    });
    for session in 0..100 {
        let mut index = open(&dir, 2 + session);
        tell(&mut index, 100_000 + session * 60, 60, 1 + session);
        let done = index.checkpoint();
        done.unwrap_or_else(|error| panic!("session {session}: {error}"));
    }
    check_no_leftovers(&dir, "at the end");
    let runs = files_in(&dir).runs as u64;
    assert!((2..96).contains(&runs), "{runs}");
    assert_eq!(find(&mut open(&dir, 200), 59_999), Some(0));
}
