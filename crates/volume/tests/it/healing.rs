//! A damaged chunk is hit no more once its damage is known, by this opening or by one before: the next equal write
//! stores a good copy.

use std::sync::Arc;

use onefold_io::{Dir, Random, SimDir};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::config::EngineKind;
use onefold_volume::depot::{CreateOptions, OpenOptions};
use onefold_volume::front::Options;
use onefold_volume::{Depot, Error, HeadId};

const CHUNK: u64 = 4096;
const MIB: u64 = 1 << 20;
/// The chunk that is damaged.
const HURT: u64 = 7;

fn open(device: &SimDir) -> (Depot, Caller) {
    let options = OpenOptions {
        front: Options {
            inline: true,
            ..Options::default()
        },
        ..OpenOptions::default()
    };
    let depot = Depot::open(Arc::new(device.clone()), options).expect("it opens");
    let caller = Caller(depot.device(HeadId(0)).expect("the volume"));
    (depot, caller)
}

fn content(number: u64) -> Vec<u8> {
    Random(900 + number).bytes(CHUNK as usize)
}

/// An open depot of which some chunks were written and flushed.
fn depot(chunks: u64) -> (SimDir, Depot, Caller) {
    let device = SimDir::new(2);
    let folder: Arc<dyn Dir> = Arc::new(device.clone());
    let options = CreateOptions {
        engine: EngineKind::Log,
        capacity_bytes: Some(16 * MIB),
        ..CreateOptions::new(8 * MIB, [1; 16], [2; 32])
    };
    Depot::create(&folder, &options).expect("a depot");
    let (depot, caller) = open(&device);
    for number in 0..chunks {
        write(&caller, number, number);
    }
    caller.flush().expect("a flush");
    (device, depot, caller)
}

fn write(caller: &Caller, lbn: u64, number: u64) {
    caller.write(lbn * CHUNK, &content(number)).expect("room");
}

fn read(caller: &Caller, lbn: u64) -> Result<Vec<u8>, Error> {
    caller.read(lbn * CHUNK, CHUNK).map(|found| found.to_vec())
}

/// Flips a bit of a chunk on the data device, and returns the chunk's offset there.
fn hurt(device: &SimDir) -> usize {
    let (wanted, mut found) = (content(HURT), None);
    let flip = |bytes: &mut Vec<u8>| {
        let pages = bytes.chunks_exact(CHUNK as usize);
        let page = pages.enumerate().find(|(_, page)| *page == wanted);
        let at = page.expect("it was written").0 * CHUNK as usize;
        bytes[at + 100] ^= 1;
        found = Some(at);
    };
    device.damage("data", flip).expect("it is there");
    found.expect("it was written")
}

/// The equal write after the damage was noticed is readable, and so is what is deduplicated against it.
fn assert_healed(device: &SimDir, depot: Depot, caller: Caller) {
    write(&caller, HURT, HURT);
    caller.flush().expect("a flush");
    assert_eq!(read(&caller, HURT).expect("a good copy"), content(HURT));
    let duplicates = |depot: &Depot| depot.stats().expect("open").engine.duplicate_writes;
    let before = duplicates(&depot);
    write(&caller, 1000, HURT);
    caller.flush().expect("a flush");
    assert_eq!(duplicates(&depot), before + 1, "the good copy is known");
    assert_eq!(read(&caller, 1000).expect("the good copy"), content(HURT));
    drop(caller);
    depot.close().expect("all is well");
    let (depot, caller) = open(device);
    for lbn in [HURT, 1000] {
        assert_eq!(read(&caller, lbn).expect("the good copy"), content(HURT));
    }
    let report = depot.check(true).expect("a check");
    assert_eq!(report.chunks_damaged, 0, "{report:?}");
}

#[test]
fn an_equal_write_after_a_read_of_damage_stores_a_good_copy() {
    // In the zone that is being filled, and in one that is full.
    for chunks in [30, 300] {
        let (device, depot, caller) = depot(chunks);
        let at = hurt(&device);
        let error = read(&caller, HURT).expect_err("it is damaged");
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        let said = error.to_string();
        for word in ["data", &format!("offset {at}"), "checksum", "expected"] {
            assert!(said.contains(word), "{said}");
        }
        assert_healed(&device, depot, caller);
    }
}

/// A check finds the damage; the depot is closed, or its process dies behind a checkpoint, and the next one knows.
#[test]
fn damage_that_was_found_is_known_to_the_next_opening() {
    for is_closed in [true, false] {
        let (device, first, caller) = depot(300);
        drop(caller);
        first.close().expect("all is well");
        hurt(&device);
        let (second, caller) = open(&device);
        assert_eq!(second.check(true).expect("a check").chunks_damaged, 1);
        drop(caller);
        if is_closed {
            second.close().expect("all is well")
        } else {
            second.settle().expect("all is well");
            drop(second);
        }
        let (third, caller) = open(&device);
        let stats = || third.stats().expect("open").engine;
        let known = |name: &str| {
            let counters = stats().counters;
            let found = counters.iter().find(|(known, _)| *known == name);
            found.expect("a counter").1
        };
        assert_eq!(known("damaged chunks known"), 1);
        write(&caller, HURT, HURT);
        write(&caller, HURT + 1, HURT + 1);
        caller.flush().expect("a flush");
        let stats = stats();
        assert_eq!((stats.unique_writes, stats.duplicate_writes), (1, 1));
        assert_healed(&device, third, caller);
    }
}

#[test]
fn an_equal_write_after_a_check_stores_a_good_copy() {
    let (device, first, caller) = depot(300);
    drop(caller);
    first.close().expect("all is well");
    hurt(&device);
    let (depot, caller) = open(&device);
    let report = depot.check(true).expect("a check");
    assert_eq!(report.chunks_damaged, 1, "{report:?}");
    assert_healed(&device, depot, caller);
}

/// The folder of the hash index is lost: the next opening fills a new one from the zones' tables.
#[test]
fn a_lost_index_is_made_anew_from_the_zones() {
    let (device, first, caller) = depot(300);
    drop(caller);
    first.close().expect("all is well");
    let lost = device
        .paths()
        .into_iter()
        .filter(|path| path.starts_with("index/"));
    let lost: Vec<String> = lost.collect();
    assert!(!lost.is_empty());
    for path in lost {
        device.lose(&path).expect("it is there");
    }
    let (second, caller) = open(&device);
    for number in 0..300 {
        write(&caller, 1000 + number, number);
    }
    caller.flush().expect("a flush");
    let stats = second.stats().expect("open").engine;
    assert_eq!((stats.unique_writes, stats.duplicate_writes), (0, 300));
    assert_eq!(read(&caller, 1000).expect("whole"), content(0));
}

/// A page rots in the journal: before the place where recovery begins, and behind it, where later groups say that it was
/// durable. The depot opens all the same, and that chunk alone is lost.
#[test]
fn a_damaged_page_of_the_journal_costs_its_chunk_alone() {
    for is_closed in [true, false] {
        let (device, depot, caller) = depot(30);
        write(&caller, 40, 40);
        caller.flush().expect("a flush");
        write(&caller, 41, 41);
        caller.flush().expect("a flush");
        drop(caller);
        if is_closed {
            depot.close().expect("all is well")
        } else {
            drop(depot)
        }
        hurt(&device);
        let (depot, caller) = open(&device);
        for lbn in (0..30).chain([40, 41]) {
            match read(&caller, lbn) {
                Ok(found) => assert!(lbn != HURT && found == content(lbn), "chunk {lbn}"),
                Err(error) => assert!(lbn == HURT, "chunk {lbn}: {error}"),
            }
        }
        assert_healed(&device, depot, caller);
    }
}
