//! The conformance of the indexes in RAM and `strata`.

use std::sync::Arc;

use onefold_index::{ChunkIndex, ContainerId, Location, RamIndex, Strata, StrataOptions};
use onefold_io::{Dir, MemDir};

use crate::history::key;
use crate::suite::{conforms, is_never_wrong};

pub fn options(unique: u64, budget: usize) -> StrataOptions {
    StrataOptions {
        ram_budget_bytes: budget,
        background_merges: false,
        unique,
        lock_wait_ms_max: None,
    }
}

fn strata(dir: &MemDir, unique: u64, budget: usize, background: bool) -> Box<dyn ChunkIndex> {
    let dir: Arc<dyn Dir> = Arc::new(dir.clone());
    Box::new(
        Strata::open(
            dir,
            StrataOptions {
                background_merges: background,
                ..options(unique, budget)
            },
        )
        .expect("open"),
    )
}

#[test]
fn ram_conforms() {
    for seed in 0..10 {
        conforms(seed, 500, 60, false, &mut |_| {
            vec![Box::new(RamIndex::new())]
        });
    }
}

#[test]
fn strata_conforms_merging_inline() {
    for seed in 0..10 {
        let dir = MemDir::new();
        conforms(seed, 3000, 100, true, &mut |opening| {
            vec![strata(&dir, 1 + opening % 2, 1 << 20, false)]
        });
    }
}

#[test]
fn strata_is_never_wrong() {
    for seed in 20..26 {
        let dir = MemDir::new();
        is_never_wrong(seed, &mut || strata(&dir, 7, 1 << 20, false));
    }
}

#[test]
fn strata_conforms_merging_in_the_background() {
    for seed in 100..106 {
        let dir = MemDir::new();
        conforms(seed, 3000, 100, true, &mut |_| {
            vec![strata(&dir, 7, 1 << 20, true)]
        });
    }
}

#[test]
fn strata_conforms_with_several_openers_of_one_folder() {
    for seed in 200..206 {
        let dir = MemDir::new();
        conforms(seed, 2000, 60, true, &mut |_| {
            (0..3)
                .map(|unique| strata(&dir, unique, 1 << 20, unique == 0))
                .collect()
        });
    }
}

/// A merge forgets a removal that a newer insertion superseded. When that insertion's container is retired, a location
/// from before the removal may be found again. That location is still true: containers never change.
#[test]
fn retirement_may_bring_back_what_was_before_a_removal() {
    let dir = MemDir::new();
    let mut index = strata(&dir, 1, 1 << 20, false);
    let at = |container| Location {
        container: ContainerId(container),
    };
    let entries: Vec<_> = (0..15_000).map(|number| (key(number), at(1))).collect();
    index.insert(&entries).expect("insert");
    index.checkpoint().expect("checkpoint");
    index.remove(&[key(5)]).expect("remove");
    index.checkpoint().expect("checkpoint");
    index.insert(&[(key(5), at(2))]).expect("insert");
    index.checkpoint().expect("checkpoint");
    for number in 20_000..20_010 {
        index.insert(&[(key(number), at(3))]).expect("insert");
        index.checkpoint().expect("checkpoint");
    }
    index.retire(&[ContainerId(2)]).expect("retire");
    index.checkpoint().expect("checkpoint");
    let mut found = [None];
    index.lookup(&[key(5)], &mut found).expect("lookup");
    assert!(found[0].is_none() || found[0] == Some(at(1)), "{found:?}");
}
