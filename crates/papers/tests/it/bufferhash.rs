//! BufferHash alone: its shape stays, and its RAM stays within the budget.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Error, Location, OpenIndex};
use onefold_io::{Dir, MemDir};
use onefold_papers::{BUFFERHASH, BufferHash, BufferHashOptions};

use crate::history::key;
use crate::suite::is_never_wrong;

#[test]
fn a_bufferhash_keeps_the_shape_that_it_was_made_with() {
    let dir = MemDir::new();
    let container = ContainerId(5);
    let open = |keys_expected, table_pages| {
        let options = BufferHashOptions {
            table_pages,
            ..BufferHashOptions::new(keys_expected)
        };
        BufferHash::open(Arc::new(dir.clone()), options).expect("open")
    };
    let keys: Vec<Fingerprint> = (0..2000).map(key).collect();
    let mut first = open(3000, 3);
    let entries: Vec<_> = keys
        .iter()
        .map(|key| (*key, Location { container }))
        .collect();
    first.insert(&entries).expect("insert");
    first.checkpoint().expect("checkpoint");
    drop(first);
    for (keys_expected, table_pages) in [(3000, 7), (100_000, 3), (1, 1)] {
        let mut found = vec![None; keys.len()];
        let again = open(keys_expected, table_pages);
        again.lookup(&keys, &mut found).expect("lookup");
        assert!(
            found
                .iter()
                .all(|found| *found == Some(Location { container }))
        );
    }
}

/// A store of two partitions of three pages, with RAM for the filters of some five tables of 96 keys.
fn small(dir: &MemDir) -> BufferHash {
    let options = BufferHashOptions {
        table_pages: 3,
        ram_budget_bytes: 26 << 10,
        ..BufferHashOptions::new(3000)
    };
    BufferHash::open(Arc::new(dir.clone()), options).expect("open")
}

#[test]
fn a_bufferhash_with_a_budget_may_forget_and_is_never_wrong() {
    for seed in 400..410 {
        let dir = MemDir::new();
        is_never_wrong(seed, &mut || Box::new(small(&dir)));
    }
}

/// Thirty times the keys of the budget: the newest are found, the oldest forgotten, and their space on disk is free.
#[test]
fn a_full_bufferhash_forgets_its_oldest_tables_and_stays_within_its_budget() {
    let dir = MemDir::new();
    let at = |number| Location {
        container: ContainerId(number / 100),
    };
    let find = |index: &mut BufferHash, numbers: std::ops::Range<u64>| {
        let keys: Vec<Fingerprint> = numbers.clone().map(key).collect();
        let mut found = vec![None; keys.len()];
        index.lookup(&keys, &mut found).expect("lookup");
        let is_right = |(number, found): (u64, &Option<Location>)| {
            found.is_none_or(|found| found == at(number))
        };
        assert!(numbers.zip(&found).all(is_right));
        found.iter().flatten().count()
    };
    let mut index = small(&dir);
    for first in (0..20_000).step_by(500) {
        let entries: Vec<_> = (first..first + 500).map(|i| (key(i), at(i))).collect();
        index.insert(&entries).expect("insert");
        index.checkpoint().expect("checkpoint");
        assert!(index.ram_bytes() <= 26 << 10, "{} bytes", index.ram_bytes());
    }
    drop(index);
    let mut index = small(&dir);
    assert!(index.ram_bytes() <= 26 << 10, "{} bytes", index.ram_bytes());
    assert_eq!(find(&mut index, 19_800..20_000), 200);
    assert_eq!(find(&mut index, 0..15_000), 0);
    assert!(index.stats().disk_bytes < 200 << 10);
}

#[test]
fn a_bufferhash_is_not_opened_with_less_ram_than_its_tables_take() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    drop((BUFFERHASH.open)(OpenIndex::new(Arc::clone(&dir), 4 << 20, 1)).expect("a new one"));
    let refused = (BUFFERHASH.open)(OpenIndex::new(dir, 1 << 20, 2)).err();
    assert!(matches!(refused, Some(Error::Budget { .. })), "{refused:?}");
}
