//! An index `strata` whose locks others hold, whose folder others delete, and whose device is full.

use std::sync::Arc;

use onefold_index::{ChunkIndex, ContainerId, Error, Location, Strata, StrataOptions};
use onefold_io::sim::{Faults, SimDir, When};
use onefold_io::{Dir, LockKind, MemDir};

use crate::folder::{check_no_leftovers, files_in};
use crate::history::key;

/// Keys of a session that has a run of its own: more than may be loose, and no more than a tail.
const RUN_KEYS: u64 = 1040;

fn open(dir: &Arc<dyn Dir>, unique: u64) -> Strata {
    let options = StrataOptions {
        ram_budget_bytes: 1 << 20,
        background_merges: false,
        ..StrataOptions::new(unique)
    };
    Strata::open(Arc::clone(dir), options).expect("open")
}

/// Inserts `count` keys from `first` on with the location `container`.
fn tell(index: &mut Strata, first: u64, count: u64, container: u64) {
    let container = ContainerId(container);
    let entries: Vec<_> = (first..first + count)
        .map(|i| (key(i), Location { container }))
        .collect();
    index.insert(&entries).expect("insert");
}

fn find(index: &mut Strata, number: u64) -> Option<u64> {
    let mut found = [None];
    index.lookup(&[key(number)], &mut found).expect("lookup");
    found[0].map(|location| location.container.0)
}

#[test]
fn who_does_not_wait_is_told_that_the_lock_is_held() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    let held = dir.lock("lock", LockKind::Exclusive).unwrap();
    let options = StrataOptions {
        lock_wait_ms_max: Some(4),
        ..StrataOptions::new(1)
    };
    let opened = Strata::open(Arc::clone(&dir), options.clone());
    assert!(matches!(opened.err(), Some(Error::Held { .. })));
    drop(held);
    Strata::open(dir, options).unwrap();
}

/// The opener that merges may be stopped, with the lock.
#[test]
fn checkpoints_go_on_while_somebody_else_merges() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    let mut index = open(&dir, 1);
    let merging = dir.lock("merge", LockKind::Exclusive).unwrap();
    for round in 0..40 {
        tell(&mut index, round * RUN_KEYS, RUN_KEYS, round);
        index.checkpoint().unwrap();
    }
    assert_eq!(files_in(&*dir).runs, 40);
    drop(merging);
    tell(&mut index, 40 * RUN_KEYS, RUN_KEYS, 40);
    index.checkpoint().unwrap();
    assert_eq!(files_in(&*dir).runs, 1);
    for round in 0..=40 {
        assert_eq!(find(&mut index, round * RUN_KEYS + 3), Some(round));
    }
}

#[test]
fn a_container_that_was_retired_and_comes_back_is_found_again() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    let mut index = open(&dir, 1);
    for is_sealed in [true, false] {
        tell(&mut index, 0, 100, 7);
        index.checkpoint().unwrap();
        assert_eq!(find(&mut index, 3), Some(7));
        index.retire(&[ContainerId(7)]).unwrap();
        if is_sealed {
            index.checkpoint().unwrap();
        }
        assert_eq!(find(&mut index, 3), None);
        tell(&mut index, 0, 100, 7);
        assert_eq!(find(&mut index, 3), Some(7));
        let mut seen = 0;
        let mut count = |_, location: Location| {
            seen += u64::from(location.container == ContainerId(7));
            Ok(())
        };
        index.iterate(&mut count).unwrap();
        assert_eq!(seen, 100);
        index.checkpoint().unwrap();
        assert_eq!(find(&mut index, 3), Some(7));
        assert_eq!(find(&mut open(&dir, 2), 3), Some(7));
    }
}

#[test]
fn an_index_that_others_throw_away_is_told_to_who_has_it_open() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    let (mut one, mut other) = (open(&dir, 1), open(&dir, 2));
    tell(&mut one, 0, 100, 1);
    one.checkpoint().unwrap();
    other.refresh().unwrap();
    assert_eq!(find(&mut other, 3), Some(1));
    assert_eq!((one.times_begun_anew(), other.times_begun_anew()), (0, 0));
    Strata::delete(&*dir).unwrap();
    tell(&mut other, 200, 100, 2);
    other.checkpoint().unwrap();
    assert_eq!(other.times_begun_anew(), 1);
    one.refresh().unwrap();
    assert_eq!(one.times_begun_anew(), 1);
    assert_eq!(find(&mut one, 3), None);
    assert_eq!(find(&mut one, 203), Some(2));
}

#[test]
fn a_checkpoint_that_fails_leaves_no_files() {
    // (loose keys before, keys, fewest failures): without a run, with a run, and with a run of earlier loose keys
    for (before, count, least) in [(100, 100, 4), (0, RUN_KEYS, 6), (100, RUN_KEYS, 6)] {
        let mut failed = 0;
        for n in 0.. {
            let device = SimDir::new(1);
            let dir: Arc<dyn Dir> = Arc::new(device.clone());
            let mut index = open(&dir, 1);
            tell(&mut index, 0, before, 1);
            index.checkpoint().unwrap();
            tell(&mut index, 200, count, 2);
            device.inject(Faults {
                no_space: When::Once(n),
                ..Faults::default()
            });
            if index.checkpoint().is_ok() {
                break;
            }
            failed += 1;
            check_no_leftovers(&device, &format!("{count} keys, operation {n}"));
            index.checkpoint().unwrap();
            assert_eq!(find(&mut index, 203), Some(2));
        }
        assert!(failed >= least, "{before} and {count} keys: {failed}");
    }
}
