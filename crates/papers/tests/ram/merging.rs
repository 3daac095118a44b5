//! The largest RAM of an index `strata` while it merges and compacts, where many of its records are dropped.

use std::sync::{Arc, PoisonError};

use onefold_index::{ChunkIndex, ContainerId, Location, Strata, StrataOptions};
use onefold_io::os::{mapped_bytes, mapped_peak, reset_mapped_peak};
use onefold_io::{Dir, FileDir};
use onefold_papers::workload::key_of;

use crate::{ALLOCATOR, ALONE};

const KEYS: u64 = 600_000;
/// Every other chunk is in a container that is retired: no log file is dropped as a whole.
const CONTAINERS: u64 = 2;
const BUDGET: usize = 2 << 20;

#[test]
fn a_merge_that_drops_half_takes_no_ram_for_what_it_drops() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let dir: Arc<dyn Dir> = Arc::new(FileDir::create(folder.path()).expect("a folder"));
    let before = ALLOCATOR.current_usage();
    let options = StrataOptions {
        ram_budget_bytes: BUDGET,
        background_merges: false,
        ..StrataOptions::new(1)
    };
    let mut index = Strata::open(dir, options).expect("open");
    for i in 0..KEYS {
        let container = ContainerId(1 + i / 1000 % CONTAINERS);
        index
            .insert(&[(key_of(i), Location { container })])
            .expect("insert");
    }
    index.checkpoint().expect("checkpoint");
    index.retire(&[ContainerId(1)]).expect("retire");
    ALLOCATOR.reset_peak_usage();
    index.checkpoint().expect("checkpoint");
    index.merge_all().expect("merge");
    let peak = ALLOCATOR.peak_usage().saturating_sub(before);
    // filters are mapped, and are more than half of the budget
    assert!(peak < BUDGET / 2, "{peak} bytes");
}

/// After a sweep the log is compacted. Filters take all RAM that they may, so those of a sealed run, and of the runs
/// that it replaces, have no room beside each other.
#[test]
fn a_compaction_keeps_to_the_budget() {
    const BUDGET: usize = 2 << 20;
    const SESSIONS: u64 = 16;
    const CONTAINERS: u64 = 50;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let dir: Arc<dyn Dir> = Arc::new(FileDir::create(folder.path()).expect("a folder"));
    let before = mapped_bytes();
    let open = |unique| {
        let options = StrataOptions {
            ram_budget_bytes: BUDGET,
            background_merges: false,
            ..StrataOptions::new(unique)
        };
        Strata::open(Arc::clone(&dir), options).expect("open")
    };
    // each session leaves a log file
    for session in 0..SESSIONS {
        let mut index = open(session);
        for i in 0..CONTAINERS * 2000 {
            let container = ContainerId(session * CONTAINERS + i / 2000);
            let key = key_of(session << 32 | i);
            index
                .insert(&[(key, Location { container })])
                .expect("insert");
        }
        index.checkpoint().expect("checkpoint");
    }
    let mut index = open(SESSIONS);
    let disk = index.stats().disk_bytes;
    let gone = (0..SESSIONS * CONTAINERS).filter(|container| container % 5 > 1);
    let gone: Vec<_> = gone.map(ContainerId).collect();
    index.retire(&gone).expect("retire");
    reset_mapped_peak();
    index.checkpoint().expect("checkpoint");
    index.merge_all().expect("merge");
    let peak = mapped_peak() - before;
    assert!(
        index.stats().disk_bytes < disk * 3 / 4,
        "nothing is compacted"
    );
    // filters; all else is on the heap
    assert!(peak < BUDGET / 4 * 3, "{peak} bytes");
}
