//! The most RAM that an index `strata` takes while it merges, where half of what it holds is dropped.

use std::sync::{Arc, PoisonError};

use onefold_index::workload::key_of;
use onefold_index::{ChunkIndex, ContainerId, Location, Strata, StrataOptions};
use onefold_io::{Dir, FileDir};

use crate::{ALLOCATOR, ALONE};

const KEYS: u64 = 600_000;
/// Every other chunk is in a container that goes: no log file goes as a whole.
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
