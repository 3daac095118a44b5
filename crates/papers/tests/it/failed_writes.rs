//! The papers' indexes after a failed write, or a failed call on their folder: they keep all insertions, and another
//! try makes them durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use onefold_index::{ChunkIndex, ContainerId, Location, Strata};
use onefold_io::sim::{Faults, SimDir, When};
use onefold_io::{Dir, DirEntry, Disk, Error, ErrorKind, LockGuard, LockKind, Result};

use crate::history::{History, key};
use crate::papers::{INDEXES, Open, strata_options};

const KEYS: u64 = 1500;
/// Number of keys between two checkpoints.
const ROUND: u64 = 130;

/// A writer that repeats a failed call, once.
struct Again {
    failures: u64,
}

impl Again {
    fn try_twice(
        &mut self,
        index: &mut dyn ChunkIndex,
        act: impl Fn(&mut dyn ChunkIndex) -> onefold_index::Result<()>,
    ) {
        if act(index).is_err() {
            self.failures += 1;
            act(index).expect("another try");
        }
    }
}

fn check(index: &mut dyn ChunkIndex, history: &History, when: &str) {
    for number in 0..KEYS {
        let mut found = [None];
        index.lookup(&[key(number)], &mut found).expect("lookup");
        assert!(
            history.agrees(number, found[0]),
            "{when}: key {number}: {found:?}"
        );
    }
}

#[test]
fn an_index_that_could_not_write_once_loses_nothing_by_another_try() {
    // a database with a failed write must be opened again
    let others = INDEXES
        .iter()
        .filter(|(name, _)| !name.starts_with("btree"));
    for (name, open) in others {
        let mut failures = 0;
        for number in 0..40 {
            let dir = SimDir::new(number);
            let mut index = open(Arc::new(dir.clone())).expect("open");
            let (mut history, mut again) = (History::default(), Again { failures: 0 });
            dir.inject(Faults {
                write_error: When::Once(number),
                ..Faults::default()
            });
            for i in 0..KEYS {
                let container = ContainerId(1 + i / 200);
                let entry = (key(i), Location { container });
                again.try_twice(&mut *index, |index| index.insert(&[entry]));
                history.insert(i, container);
                if i % ROUND == ROUND - 1 {
                    // some keys of an earlier round move, and one is removed
                    let moved = (i - ROUND / 2..i - ROUND / 2 + 20).map(key);
                    let container = ContainerId(1000 + i);
                    let entries: Vec<_> = moved.map(|key| (key, Location { container })).collect();
                    again.try_twice(&mut *index, |index| index.insert(&entries));
                    (i - ROUND / 2..i - ROUND / 2 + 20)
                        .for_each(|number| history.insert(number, container));
                    again.try_twice(&mut *index, |index| index.remove(&[key(i)]));
                    history.remove(i);
                    again.try_twice(&mut *index, |index| index.checkpoint());
                }
            }
            let when = format!("{name}, write {number}");
            check(&mut *index, &history, &when);
            again.try_twice(&mut *index, |index| index.checkpoint());
            drop(index);
            let image = dir.crash_image(0);
            let mut index = open(Arc::new(image)).expect("open again");
            check(&mut *index, &history, &format!("{when}, opened again"));
            failures += again.failures;
        }
        assert!(failures > 5, "{name}: {failures}");
    }
}

/// A folder in which one call fails: an opening of a file, or a sync.
struct Failing {
    dir: SimDir,
    /// Number of openings before the one that fails, negative after it; the same for syncs.
    opens_left: AtomicI64,
    syncs_left: AtomicI64,
}

impl Failing {
    fn count(left: &AtomicI64, op: &'static str) -> Result<()> {
        match left.fetch_sub(1, Ordering::Relaxed) {
            0 => Err(Error::new(op, "index", ErrorKind::TooManyOpen, "this once")),
            _ => Ok(()),
        }
    }
}

impl Dir for Failing {
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>> {
        Failing::count(&self.opens_left, "open")?;
        self.dir.open(name)
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>> {
        Failing::count(&self.opens_left, "open")?;
        self.dir.open_write(name)
    }

    fn sync(&self) -> Result<()> {
        Failing::count(&self.syncs_left, "sync")?;
        self.dir.sync()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.dir.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.dir.remove(name)
    }

    fn list(&self) -> Result<Vec<DirEntry>> {
        self.dir.list()
    }

    fn len_of(&self, name: &str) -> Result<u64> {
        self.dir.len_of(name)
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        self.dir.subdir(name)
    }

    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        self.dir.open_subdir(name)
    }

    fn remove_subdir(&self, name: &str) -> Result<()> {
        self.dir.remove_subdir(name)
    }

    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>> {
        self.dir.lock(name, kind)
    }
}

/// Rounds of keys, of which some move and some are removed, with a checkpoint each, which may fail and is not repeated;
/// at last, all containers but those of the last two rounds are retired.
fn many_checkpoints(index: &mut dyn ChunkIndex, history: &mut History, again: &mut Again) {
    const ROUNDS: u64 = 50;
    let each = KEYS / ROUNDS;
    for round in 0..ROUNDS {
        let first = round * each;
        let moved = first.saturating_sub(each)..first.saturating_sub(each) + each / 3;
        let new = (first..first + each).map(|number| (number, round));
        for (number, container) in new.chain(moved.map(|number| (number, 1000 + round))) {
            let container = ContainerId(container);
            let entry = (key(number), Location { container });
            again.try_twice(index, |index| index.insert(&[entry]));
            history.insert(number, container);
        }
        again.try_twice(index, |index| index.remove(&[key(first)]));
        history.remove(first);
        if round % 10 == 9 {
            let gone: Vec<_> = (round - 9..round - 2).map(ContainerId).collect();
            again.try_twice(index, |index| index.retire(&gone));
            gone.iter().for_each(|container| history.retire(*container));
        }
        again.failures += u64::from(index.checkpoint().is_err());
    }
    index.checkpoint().expect("the last checkpoint");
}

#[test]
fn a_checkpoint_is_durable_after_a_call_on_the_folder_that_failed() {
    let others = INDEXES
        .iter()
        .filter(|(name, _)| !name.starts_with("btree"));
    let strata: (&str, Open) = ("strata", |dir| {
        Ok(Box::new(Strata::open(dir, strata_options(7))?))
    });
    for (name, open) in others.chain([&strata]) {
        for kind in ["open", "sync"] {
            for number in 0..60 {
                let dir = Arc::new(Failing {
                    dir: SimDir::new(number),
                    opens_left: AtomicI64::new(-1),
                    syncs_left: AtomicI64::new(-1),
                });
                let mut index = open(Arc::clone(&dir) as Arc<dyn Dir>).expect("open");
                let left = match kind {
                    "open" => &dir.opens_left,
                    _ => &dir.syncs_left,
                };
                left.store(number as i64, Ordering::Relaxed);
                let (mut history, mut again) = (History::default(), Again { failures: 0 });
                many_checkpoints(&mut *index, &mut history, &mut again);
                let when = format!("{name}, {kind} {number}");
                check(&mut *index, &history, &when);
                drop(index);
                let image = dir.dir.crash_image(0);
                let mut index = open(Arc::new(image)).expect("open again");
                check(&mut *index, &history, &format!("{when}, opened again"));
                if again.failures == 0 {
                    break;
                }
            }
        }
    }
}
