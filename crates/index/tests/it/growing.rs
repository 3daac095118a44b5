//! The log of an index `strata`: an opener adds to one file, as long as that is the last and not large.

use std::sync::Arc;

use onefold_index::{ChunkIndex, ContainerId, Location, Strata};
use onefold_io::sim::{Faults, SimDir, When};
use onefold_io::{Dir, MemDir};

use crate::conformance::options;
use crate::folder::{check_no_leftovers, files_in};
use crate::history::key;

const PAGE_BYTES: u64 = 4096;

fn open(dir: &(impl Dir + Clone + 'static), unique: u64) -> Strata {
    Strata::open(Arc::new(dir.clone()), options(unique, 1 << 20)).expect("open")
}

fn location(number: u64) -> Location {
    let container = ContainerId(1 + number / 1000);
    Location { container }
}

/// Inserts keys `first` to `first + count`, not durable yet.
fn tell(index: &mut Strata, first: u64, count: u64) {
    let entries: Vec<_> = (first..first + count)
        .map(|i| (key(i), location(i)))
        .collect();
    index.insert(&entries).expect("insert");
}

fn knows_all(index: &mut Strata, count: u64) -> bool {
    let keys: Vec<_> = (0..count).map(key).collect();
    let mut found = vec![None; keys.len()];
    index.lookup(&keys, &mut found).expect("lookup");
    (0..)
        .zip(found)
        .all(|(number, found)| found == Some(location(number)))
}

/// Names and lengths of log files in the order of names, which is that of their making: writers' numbers rise.
fn logs(dir: &dyn Dir) -> Vec<(String, u64)> {
    let list = dir.list().expect("list").into_iter();
    let mut logs: Vec<_> = list
        .filter(|entry| entry.name.starts_with("log-"))
        .map(|entry| {
            let len = dir.len_of(&entry.name).expect("listed");
            (entry.name, len)
        })
        .collect();
    logs.sort_unstable();
    logs
}

#[test]
fn one_writer_adds_to_one_file_and_readers_follow() {
    let dir = MemDir::new();
    let mut writer = open(&dir, 1);
    tell(&mut writer, 0, 300);
    writer.checkpoint().expect("checkpoint");
    let (mut reader, mut seen) = (open(&dir, 2), 300);
    for round in 1..20 {
        tell(&mut writer, round * 300, 300);
        writer.checkpoint().expect("checkpoint");
        // a session that inserts nothing does not end the file
        writer.checkpoint().expect("checkpoint");
        // a view from before still answers, whatever was added behind it
        assert!(knows_all(&mut reader, seen), "round {round}");
        if round % 4 == 0 {
            reader.refresh().expect("refresh");
            seen = (round + 1) * 300;
            assert!(knows_all(&mut reader, seen), "round {round}");
        }
        assert!(knows_all(&mut open(&dir, 3), (round + 1) * 300));
    }
    // three pages of records a round, and one of the footer
    assert_eq!(logs(&dir).len(), 1);
    assert_eq!(logs(&dir)[0].1, 20 * 4 * PAGE_BYTES);
    let mut all = Vec::new();
    let mut visit = |found, _| {
        all.push(found);
        Ok(())
    };
    writer.iterate(&mut visit).expect("iterate");
    assert_eq!(all, (0..6000).map(key).collect::<Vec<_>>());
}

#[test]
fn writers_that_take_turns_leave_the_files_of_others_as_they_are() {
    let dir = MemDir::new();
    let mut writers = [open(&dir, 1), open(&dir, 2)];
    for turn in 0..8 {
        let before = logs(&dir);
        let writer = &mut writers[turn as usize % 2];
        tell(writer, turn * 100, 100);
        writer.checkpoint().expect("checkpoint");
        let after = logs(&dir);
        assert_eq!(after.len(), before.len() + 1);
        assert!(before.iter().all(|log| after.contains(log)), "turn {turn}");
    }
    for writer in &mut writers {
        writer.refresh().expect("refresh");
        assert!(knows_all(writer, 800));
    }
    check_no_leftovers(&dir, "in turns");
}

#[test]
fn a_large_file_grows_no_more() {
    let dir = MemDir::new();
    let mut writer = open(&dir, 1);
    let keys = 4096 * 127 * 2 + 100_000;
    (0..keys)
        .step_by(100_000)
        .for_each(|first| tell(&mut writer, first, 100_000.min(keys - first)));
    writer.checkpoint().expect("checkpoint");
    let logs = logs(&dir);
    assert_eq!(logs.len(), 3, "{logs:?}");
    // a tail and its footer more than 16 MiB
    let large = (16 << 20)..(16 << 20) + (1 << 18);
    assert!(
        logs[..2].iter().all(|(_, len)| large.contains(len)),
        "{logs:?}"
    );
    assert!(knows_all(&mut writer, keys));
}

/// A seal that fails leaves the log as long as it was, and the next tries again in a new file.
#[test]
fn what_could_not_be_added_is_cut_off() {
    for number in 0..4 {
        let dir = SimDir::new(number);
        let mut writer = open(&dir, 1);
        tell(&mut writer, 0, 300);
        writer.checkpoint().expect("checkpoint");
        let before = logs(&dir);
        tell(&mut writer, 300, 900);
        dir.inject(Faults {
            write_error: When::Once(number),
            ..Faults::default()
        });
        writer.checkpoint().expect_err("a write that fails");
        dir.inject(Faults::default());
        assert_eq!(logs(&dir), before, "write {number}");
        writer.checkpoint().expect("checkpoint");
        assert_eq!(files_in(&dir).logs, 2, "write {number}");
        assert!(knows_all(&mut open(&dir, 2), 1200), "write {number}");
        check_no_leftovers(&dir, &format!("write {number}"));
    }
}
