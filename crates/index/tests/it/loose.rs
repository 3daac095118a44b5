//! Loose log pages of an index `strata`, which no run speaks of yet: their records count as those in runs do.

use std::sync::Arc;

use onefold_index::{ChunkIndex, ContainerId, Error, Location, Strata};
use onefold_io::sim::SimDir;
use onefold_io::{CountedDir, Counters, Dir, MemDir};

use crate::conformance::options;
use crate::folder::{Files, check_no_leftovers, files_in};
use crate::history::{History, Random, key};

/// Largest number of loose records by FORMAT.md; more have a run.
const LOOSE_RECORDS_MAX: u64 = 1024;
/// Largest number of loose pages by FORMAT.md; more have a run.
const LOOSE_PAGES_MAX: u64 = 64;

fn open(dir: &Arc<dyn Dir>, unique: u64) -> Strata {
    Strata::open(Arc::clone(dir), options(unique, 1 << 20)).expect("open")
}

/// Inserts keys with the location `container`, durably.
fn tell(index: &mut Strata, keys: std::ops::Range<u64>, container: u64) {
    let container = ContainerId(container);
    let entries: Vec<_> = keys.map(|i| (key(i), Location { container })).collect();
    index.insert(&entries).expect("insert");
    index.checkpoint().expect("checkpoint");
}

/// The containers of `count` keys from `first` on.
fn find(index: &mut Strata, first: u64, count: usize) -> Vec<Option<u64>> {
    let keys: Vec<_> = (first..first + count as u64).map(key).collect();
    let mut found = vec![None; count];
    index.lookup(&keys, &mut found).expect("lookup");
    let container = |location: Location| location.container.0;
    found
        .into_iter()
        .map(|found| found.map(container))
        .collect()
}

/// The number of entries; asserts that each key is there once.
fn entries(index: &mut Strata) -> usize {
    let mut seen = std::collections::HashSet::new();
    let visit = &mut |key, _| {
        assert!(seen.insert(key), "twice");
        Ok(())
    };
    index.iterate(visit).expect("iterate");
    seen.len()
}

fn memory() -> Arc<dyn Dir> {
    Arc::new(MemDir::new())
}

#[test]
fn small_sessions_write_no_run_until_there_is_too_much_without_one() {
    let dir = memory();
    let (mut session, mut told) = (0, 0);
    while told + 100 <= LOOSE_RECORDS_MAX {
        tell(&mut open(&dir, session), told..told + 100, session);
        (session, told) = (session + 1, told + 100);
        let logs = session as usize;
        assert_eq!(files_in(&*dir), Files { logs, runs: 0 });
    }
    let mut index = open(&dir, session);
    assert_eq!(index.stats().entries, told);
    tell(&mut index, told..told + 100, session);
    assert_eq!(files_in(&*dir).runs, 1);
    // the run covers all loose pages: records that come now are loose again
    tell(&mut index, told + 100..told + 200, session);
    assert_eq!(files_in(&*dir).runs, 1);
    check_no_leftovers(&*dir, "at the end");
    for mut index in [index, open(&dir, 1000)] {
        assert_eq!(index.stats().entries, told + 200);
        assert_eq!(entries(&mut index) as u64, told + 200);
        for first in (0..told).step_by(100) {
            assert_eq!(find(&mut index, first, 100), [Some(first / 100); 100]);
        }
    }
}

/// Each checkpoint takes a page for a record, and one for the footer behind it.
#[test]
fn many_pages_with_little_on_them_have_a_run() {
    let dir = memory();
    let mut index = open(&dir, 1);
    for number in 0..130 {
        tell(&mut index, number..number + 1, number);
        let runs = (number + 1) / (LOOSE_PAGES_MAX / 2 + 1);
        assert_eq!(files_in(&*dir).runs as u64, runs, "{number}");
    }
    let all: Vec<_> = (0..130).map(Some).collect();
    for mut index in [index, open(&dir, 2)] {
        assert_eq!(find(&mut index, 0, 130), all);
    }
}

#[test]
fn what_is_said_last_counts_before_and_after_it_has_a_run() {
    let dir = memory();
    let mut history = History::default();
    let mut index = open(&dir, 1);
    tell(&mut index, 0..1500, 1);
    (0..1500).for_each(|number| history.insert(number, ContainerId(1)));
    // some records are in runs, some are loose; some keys have three records
    for (round, keys) in [(2, 100..400), (3, 300..500), (4, 350..360)] {
        keys.clone()
            .for_each(|number| history.insert(number, ContainerId(round)));
        tell(&mut index, keys, round);
    }
    let removed = [5, 120, 355, 450, 9999];
    index.remove(&removed.map(key)).expect("remove");
    index.checkpoint().expect("checkpoint");
    removed.iter().for_each(|number| history.remove(*number));
    let runs = files_in(&*dir).runs;
    for unique in 2..4 {
        history.check_all(&mut open(&dir, unique), 1500, &mut Random(unique));
        history.check_all(&mut index, 1500, &mut Random(unique));
    }
    // a seal of this many records includes all loose ones
    tell(&mut index, 2000..2900, 5);
    (2000..2900).for_each(|number| history.insert(number, ContainerId(5)));
    assert_eq!(files_in(&*dir).runs, runs + 1);
    history.check_all(&mut index, 3000, &mut Random(9));
    history.check_all(&mut open(&dir, 5), 3000, &mut Random(9));
    index.merge_all().expect("merge");
    history.check_all(&mut index, 3000, &mut Random(9));
}

#[test]
fn of_a_retired_container_nothing_loose_counts_and_its_files_go() {
    let dir = memory();
    tell(&mut open(&dir, 1), 0..1040, 1);
    // superseded, and then gone: the location before is right again
    tell(&mut open(&dir, 2), 0..100, 2);
    tell(&mut open(&dir, 3), 5000..5100, 3);
    assert_eq!(files_in(&*dir), Files { logs: 3, runs: 1 });
    let mut index = open(&dir, 4);
    assert_eq!(find(&mut index, 0, 100), [Some(2); 100]);
    index.retire(&[ContainerId(2)]).expect("retire");
    index.checkpoint().expect("checkpoint");
    assert_eq!(files_in(&*dir), Files { logs: 2, runs: 1 });
    for index in [&mut index, &mut open(&dir, 5)] {
        assert_eq!(find(index, 0, 100), [Some(1); 100]);
        assert_eq!(find(index, 5000, 100), [Some(3); 100]);
        assert_eq!(entries(index), 1140);
    }
    // the container's number is free again
    tell(&mut index, 0..10, 2);
    assert_eq!(find(&mut open(&dir, 6), 0, 11)[9..], [Some(2), Some(1)]);
}

#[test]
fn openers_see_what_others_left_loose_and_seal_it_with_their_own() {
    let dir = memory();
    let (mut one, mut other) = (open(&dir, 1), open(&dir, 2));
    tell(&mut one, 0..600, 1);
    assert_eq!(find(&mut other, 0, 1), [None]);
    other.refresh().expect("refresh");
    assert_eq!(find(&mut other, 0, 600), [Some(1); 600]);
    // it has seen less than there is: more than may be loose, all the same
    tell(&mut one, 600..900, 2);
    tell(&mut other, 900..1200, 3);
    assert_eq!(files_in(&*dir), Files { logs: 2, runs: 1 });
    check_no_leftovers(&*dir, "sealed together");
    // and now less than it thinks: all of it may be
    tell(&mut one, 1200..1500, 4);
    assert_eq!(files_in(&*dir).runs, 1);
    for index in [&mut one, &mut other] {
        index.refresh().expect("refresh");
        let expected = [
            [Some(1); 300],
            [Some(1); 300],
            [Some(2); 300],
            [Some(3); 300],
        ];
        assert_eq!(find(index, 0, 1200), expected.concat());
        assert_eq!(find(index, 1200, 300), [Some(4); 300]);
    }
}

/// Records of loose pages are in RAM: a lookup takes no read.
#[test]
fn what_is_loose_is_read_once() {
    let dir = memory();
    (0..10).for_each(|session| {
        tell(
            &mut open(&dir, session),
            session * 100..session * 100 + 100,
            7,
        )
    });
    let counters = Counters::new();
    let counted: Arc<dyn Dir> = Arc::new(CountedDir::new(dir, Arc::clone(&counters)));
    let mut index = open(&counted, 100);
    // a manifest, and a footer and a page for each file
    let opened = counters.counts().reads;
    assert!(opened <= 30, "{opened} reads");
    assert_eq!(find(&mut index, 0, 1000), [Some(7); 1000]);
    assert_eq!(find(&mut index, 5000, 100), [None; 100]);
    assert_eq!(counters.counts().reads, opened);
}

/// Whatever the budget of the opener that left the records.
#[test]
fn the_least_budget_holds_what_any_other_left_loose() {
    let dir = memory();
    let large = Strata::open(Arc::clone(&dir), options(1, 64 << 20));
    tell(&mut large.expect("open"), 0..LOOSE_RECORDS_MAX, 1);
    assert_eq!(files_in(&*dir).runs, 0);
    let mut least = open(&dir, 2);
    tell(&mut least, 5000..6000, 2);
    assert_eq!(files_in(&*dir).runs, 1);
    let held = least.ram_bytes();
    assert!(held < 1 << 20, "{held} bytes");
    assert_eq!(find(&mut least, 0, 1024), [Some(1); 1024]);
}

#[test]
fn a_crash_while_loose_pages_get_their_run_loses_nothing() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    tell(&mut open(&dir, 1), 0..500, 1);
    let mut index = open(&dir, 2);
    tell(&mut index, 500..900, 2);
    device.keep_history();
    let before = device.counts().points;
    tell(&mut index, 900..1100, 3);
    let (points, mut with_run) = (device.counts().points, 0);
    for point in 0..points {
        for seed in 0..3 {
            let image = device.crash_image_at(point, seed).expect("history");
            let image: Arc<dyn Dir> = Arc::new(image);
            let mut index = open(&image, 3);
            check_no_leftovers(&*image, &format!("point {point} of {points}"));
            let expected = [vec![Some(1); 500], vec![Some(2); 400]].concat();
            assert_eq!(find(&mut index, 0, 900), expected, "point {point}");
            let third = find(&mut index, 900, 200);
            let is_there = third[0].is_some();
            assert_eq!(third, vec![is_there.then_some(3); 200], "point {point}");
            assert_eq!(files_in(&*image).runs, usize::from(is_there));
            with_run += u64::from(is_there);
        }
    }
    assert!(before < points && with_run > 0, "{before}, {points}");
}

#[test]
fn a_damaged_loose_page_is_named() {
    let device = SimDir::new(1);
    let dir: Arc<dyn Dir> = Arc::new(device.clone());
    tell(&mut open(&dir, 1), 0..300, 1);
    let log = "log-0000000000000001-00000000";
    for page in 0..3 {
        let hurt = device.fork();
        let at = page * 4096 + 2000;
        hurt.damage(log, |bytes| bytes[at] ^= 1).expect("damage");
        let opened = Strata::open(Arc::new(hurt), options(2, 1 << 20)).err();
        let Some(Error::Damaged { path, offset, .. }) = opened else {
            panic!("page {page}: {opened:?}");
        };
        assert_eq!((&path[..], offset), (log, Some(page as u64 * 4096)));
    }
}
