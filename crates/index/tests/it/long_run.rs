//! An index `strata` in hundreds of short sessions, with sweeps between them: its files stay few, and so do the bytes
//! written.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Location, Strata};
use onefold_io::sim::SimDir;
use onefold_io::{Dir, MemDir};

use crate::conformance::options;
use crate::folder::{Files, check_no_leftovers, files_in};
use crate::history::{History, Random, key};

fn open(dir: &Arc<dyn Dir>, unique: u64) -> Strata {
    Strata::open(Arc::clone(dir), options(unique, 1 << 20)).expect("open")
}

fn tell(index: &mut Strata, history: &mut History, first: u64, count: u64, container: u64) {
    let container = ContainerId(container);
    let entries: Vec<_> = (first..first + count)
        .map(|i| (key(i), Location { container }))
        .collect();
    index.insert(&entries).expect("insert");
    (first..first + count).for_each(|number| history.insert(number, container));
}

fn retire(index: &mut Strata, history: &mut History, containers: impl Iterator<Item = u64>) {
    for container in containers.map(ContainerId) {
        index.retire(&[container]).expect("retire");
        history.retire(container);
    }
}

fn is_right(index: &mut Strata, history: &History, keys: u64) -> bool {
    let wanted: Vec<Fingerprint> = (0..keys).map(key).collect();
    let mut found = vec![None; wanted.len()];
    index.lookup(&wanted, &mut found).expect("lookup");
    (0..)
        .zip(found)
        .all(|(number, found)| history.agrees(number, found))
}

/// Each session inserts a little; every fifth leaves nothing, and every seventh is followed by a sweep.
#[test]
fn files_are_few_after_hundreds_of_short_sessions_and_sweeps() {
    const SESSIONS: u64 = 700;
    const KEYS: u64 = 20;
    let dir: Arc<dyn Dir> = Arc::new(MemDir::new());
    let mut history = History::default();
    let (mut most, mut written) = (Files { logs: 0, runs: 0 }, 0);
    // a reader that is open all the time and refreshes now and then
    let mut reader = open(&dir, 1 << 40);
    for session in 0..SESSIONS {
        let mut index = open(&dir, session);
        tell(&mut index, &mut history, session * KEYS, KEYS, session);
        if session % 7 == 6 {
            let churn = session.saturating_sub(12)..session - 5;
            retire(
                &mut index,
                &mut history,
                churn.filter(|session| session % 5 == 0),
            );
        }
        index.checkpoint().expect("checkpoint");
        written += index.stats().bytes_written;
        drop(index);
        let files = files_in(&*dir);
        most = Files {
            logs: most.logs.max(files.logs),
            runs: most.runs.max(files.runs),
        };
        if session % 37 == 0 {
            reader.refresh().expect("refresh");
            assert!(
                is_right(&mut reader, &history, session * KEYS + KEYS),
                "session {session}"
            );
            history.check_all(&mut reader, session * KEYS + KEYS, &mut Random(session));
        }
    }
    check_no_leftovers(&*dir, "at the end");
    assert!(most.logs <= 110 && most.runs <= 8, "{most:?}");
    // a session's own log page and footer, and its share of runs, merges and joins
    let a_session = written / SESSIONS;
    assert!(a_session < 16 << 10, "{a_session} bytes a session");
    assert!(is_right(
        &mut open(&dir, 1 << 41),
        &history,
        SESSIONS * KEYS
    ));
}

/// A session that leaves small log files side by side, but for one in six that is dropped.
fn side_by_side(index: &mut Strata, history: &mut History, session: u64) {
    if session % 6 == 5 {
        retire(index, history, std::iter::once(session - 3));
    }
    tell(index, history, session * 10, 10, session);
}

/// Every other session leaves a small log file far from the others, because files between them are dropped.
fn scattered(index: &mut Strata, history: &mut History, session: u64) {
    tell(index, history, session * 10, 10, session);
    if session % 2 == 1 {
        // keys that are never asked for
        tell(
            index,
            &mut History::default(),
            (1 << 20) + session * 500,
            500,
            session,
        );
    } else {
        retire(index, history, session.checked_sub(1).into_iter());
    }
}

/// Number of pages in log files, without footers, which take a page each.
fn log_pages(dir: &dyn Dir) -> u64 {
    let list = dir.list().expect("list");
    let logs = list.iter().filter(|entry| entry.name.starts_with("log-"));
    logs.map(|entry| dir.len_of(&entry.name).expect("listed") / 4096 - 1)
        .sum()
}

/// Runs `few` sessions, and more up to one that reduces many log files; returns the log pages before and after that
/// session. After a crash anywhere in it, all keys are found, and no leftovers lie in the folder.
fn survives_crashes(session: fn(&mut Strata, &mut History, u64), few: u64) -> (u64, u64) {
    let run = |dir: &SimDir, history: &mut History, number: u64| {
        let mut index = open(&(Arc::new(dir.clone()) as Arc<dyn Dir>), number);
        session(&mut index, history, number);
        index.checkpoint().expect("checkpoint");
    };
    let (mut dir, mut history, mut number) = (SimDir::new(1), History::default(), few);
    (0..few).for_each(|number| run(&dir, &mut history, number));
    let (before, after) = loop {
        let (next, mut after) = (dir.fork(), history.clone());
        run(&next, &mut after, number);
        if files_in(&next).logs + 12 < files_in(&dir).logs {
            break (history, after);
        }
        (dir, history, number) = (next, after, number + 1);
    };
    let (keys, pages) = ((number + 1) * 10, log_pages(&dir));
    dir.keep_history();
    run(&dir, &mut before.clone(), number);
    for point in 0..dir.counts().points {
        for seed in [0, 2 + point] {
            let image = dir.crash_image_at(point, seed).expect("history");
            let mut index = open(&(Arc::new(image.clone()) as Arc<dyn Dir>), 3000);
            check_no_leftovers(&image, &format!("point {point}, image {seed}"));
            let mut check = |when: &str| {
                let told = [&before, &after].map(|history| is_right(&mut index, history, keys));
                assert!(told.contains(&true), "point {point}, image {seed}, {when}");
                index.merge_all().expect("merge");
            };
            check("opened");
            check("merged");
            check_no_leftovers(&image, &format!("point {point}, image {seed}, merged"));
        }
    }
    (pages, log_pages(&dir))
}

#[test]
fn a_crash_while_log_files_are_joined_loses_nothing() {
    let (before, after) = survives_crashes(side_by_side, 90);
    // pages without records stand where files were dropped
    assert!(after > before, "{before}, {after}");
}

#[test]
fn a_crash_while_scattered_log_files_are_moved_loses_nothing() {
    let (before, after) = survives_crashes(scattered, 480);
    assert!(after < before, "{before}, {after}");
}
