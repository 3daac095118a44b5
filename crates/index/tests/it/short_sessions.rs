//! Bytes that short sessions write to an index `strata` that merges in a thread of its own: their own tails, and merges
//! that are completed.

use std::sync::Arc;

use onefold_index::{ChunkIndex, ContainerId, Location, Strata, StrataOptions};
use onefold_io::{CountedDir, Counters, Dir, LockKind, MemDir};

use crate::conformance::options;
use crate::folder::{check_no_leftovers, files_in};
use crate::history::key;

/// Records of a tail with nearly the least budget; more than may be loose.
const TAIL: u64 = 1040;

/// A session that inserts `count` keys; returns the bytes that it wrote.
fn session(dir: &Arc<dyn Dir>, number: u64, count: u64) -> u64 {
    let counters = Counters::new();
    let counted: Arc<dyn Dir> = Arc::new(CountedDir::new(Arc::clone(dir), Arc::clone(&counters)));
    let options = StrataOptions {
        background_merges: true,
        ..options(number, 1 << 20)
    };
    let mut index = Strata::open(counted, options).expect("open");
    let container = ContainerId(number);
    let entries: Vec<_> = (0..count)
        .map(|i| (key(number << 20 | i), Location { container }))
        .collect();
    index.insert(&entries).expect("insert");
    let mut found = [None];
    index.lookup(&[key(0)], &mut found).expect("lookup");
    assert!(count > 0 || found[0].is_some());
    if count > 0 {
        index.checkpoint().expect("checkpoint");
    }
    drop(index);
    counters.counts().write_bytes
}

/// An index with `runs` runs of a tail each, because another opener held the merge lock.
fn with_runs(runs: u64) -> Arc<dyn Dir> {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    let _merging = dir.lock("merge", LockKind::Exclusive).expect("lock");
    (0..runs).for_each(|number| assert!(session(&dir, number, TAIL) > 0));
    dir
}

#[test]
fn who_only_reads_writes_nothing() {
    assert_eq!(session(&with_runs(20), 100, 0), 0);
}

#[test]
fn who_says_little_writes_little_until_runs_are_many_and_then_all_is_merged_at_once() {
    let dir = with_runs(7);
    let mut sessions = 100..;
    let mut next = || session(&dir, sessions.next().expect("another"), 10);
    let mut own = Vec::new();
    let all = loop {
        let written = next();
        if files_in(&*dir).runs != 7 {
            break written;
        }
        own.push(written);
    };
    // a page of log and its footer each, and the manifest
    assert!(own.iter().all(|bytes| *bytes < 16 << 10), "{own:?}");
    assert_eq!(own.len(), 64, "pages that are loose");
    assert!(all > 7 * TAIL * 20, "{all}");
    assert_eq!(files_in(&*dir).runs, 1);
    check_no_leftovers(&*dir, "merged");
    let again = next();
    assert!(again < 16 << 10, "{again}");
}

#[test]
fn a_large_log_file_that_is_left_to_longer_sessions_keeps_no_small_one_from_being_compacted() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    // a large part of each log file is of a container that goes
    let fill = |unique: u64, count: u64, container: u64| {
        let mut index = Strata::open(Arc::clone(&dir), options(unique, 1 << 20)).expect("open");
        let at = |i| ContainerId(container + u64::from(i % 1000 < 700));
        let entries = (0..count).map(|i| (key(unique << 20 | i), Location { container: at(i) }));
        index.insert(&entries.collect::<Vec<_>>()).expect("insert");
        index.checkpoint().expect("checkpoint");
        index
    };
    drop((fill(1, 20 * TAIL, 10), fill(2, 900, 20)));
    let merging = dir.lock("merge", LockKind::Exclusive).expect("lock");
    let mut index = fill(3, 10, 30);
    let gone = [ContainerId(11), ContainerId(21)];
    index.retire(&gone).expect("retire");
    index.checkpoint().expect("checkpoint");
    drop((index, merging));
    let logs_of = |unique: u64| {
        let list = dir.list().expect("list");
        let name = format!("log-{unique:016x}");
        list.iter()
            .filter(|entry| entry.name.starts_with(&name))
            .count()
    };
    assert_eq!([1, 2].map(logs_of), [1, 1]);
    session(&dir, 100, 10);
    assert_eq!([1, 2].map(logs_of), [1, 0]);
}

#[test]
fn who_says_much_merges_as_it_goes() {
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    for number in 0..40 {
        session(&dir, number, TAIL);
        let files = files_in(&*dir);
        assert!(files.runs <= 8, "{files:?}");
    }
}

#[test]
fn hundreds_of_short_sessions_keep_runs_few_and_write_little_on_the_whole() {
    let dir = with_runs(7);
    let mut written = 0;
    for number in 0..300 {
        written += session(&dir, 100 + number, 10);
        let files = files_in(&*dir);
        assert!(files.runs <= 8, "{files:?}");
        check_no_leftovers(&*dir, "closed");
    }
    // a session's own log page and footer, the manifest, and its share of merges
    assert!(written / 300 < 24 << 10, "{}", written / 300);
}
