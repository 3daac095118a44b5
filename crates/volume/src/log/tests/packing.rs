//! Packed pages: what the other tests do with chunks as they are, with several to a page, sealed and not.

use std::cell::{Cell, RefCell};

use super::*;
use crate::Compression;
use crate::log::Seals;
use crate::log::layout::{PAGE_BYTES, WHOLE};

thread_local! {
    static COMPRESSION: Cell<Compression> = const { Cell::new(Compression::None) };
    static SEALS: RefCell<Seals> = RefCell::new(Seals::none());
    static HAS_THREADS: Cell<bool> = const { Cell::new(false) };
}

/// Engines of this thread that are opened from now on pack each chunk that shrinks where `seed` is odd, and none where
/// it is even.
fn pack_by(seed: u64) {
    let compression = match seed % 2 {
        0 => Compression::None,
        _ => Compression::Lz4,
    };
    COMPRESSION.set(compression);
}

/// Engines of this thread that are opened from now on [pack](pack_by) by `seed`, and seal everything for one seed in
/// three: keys fail where a nonce repeats, whatever crashed and was opened before.
pub fn vary_by(seed: u64) {
    pack_by(seed);
    SEALS.replace(match seed % 3 {
        2 => Seals::of_tests(),
        _ => Seals::none(),
    });
}

/// The keys that engines of this thread seal with.
pub fn seals() -> Seals {
    SEALS.with_borrow(Seals::clone)
}

/// Engines of this thread that are opened from now on have threads of their own.
pub fn use_threads() {
    HAS_THREADS.set(true);
}

/// Whether engines of this thread have threads of their own.
pub fn has_threads() -> bool {
    HAS_THREADS.get()
}

/// How engines of this thread pack.
pub fn compression() -> Compression {
    COMPRESSION.get()
}

/// Contents of which three share a page, and none is stored without a fingerprint.
fn third(number: u64) -> u64 {
    4 * 2600 * number + 19
}

fn counter(engine: &LogEngine, name: &str) -> u64 {
    let counters = engine.stats().counters;
    let found = counters.iter().find(|(known, _)| *known == name);
    found.expect("a counter").1
}

#[test]
fn three_chunks_of_a_third_take_one_page_and_all_are_found_again() {
    vary_by(1);
    let (dir, said) = (SimDir::new(1), ever_said(1));
    let mut engine = create(&dir, 20, &said);
    let writes: Vec<(u64, u64)> = (0..30).map(|n| (n, third(n))).collect();
    write(&mut engine, &writes).expect("room");
    engine.commit().expect("no faults");
    let packed = ["packed chunks", "packed pages"].map(|name| counter(&engine, name));
    assert_eq!(packed, [30, 10]);
    // One header page and ten of data.
    assert_eq!(counter(&engine, "group pages"), 11);
    // Duplicates are found in the open zone, and after opening by the rows that recovery makes.
    let again: Vec<(u64, u64)> = (0..30).map(|n| (200 + n, third(n))).collect();
    write(&mut engine, &again).expect("room");
    assert_eq!(engine.stats().unique_writes, 30);
    engine.commit().expect("no faults");
    drop(engine);
    let mut engine = open(&dir, &said).expect("whole");
    for (lbn, content) in writes.iter().chain(&again) {
        assert!(read(&engine, *lbn).expect("readable") == bytes_of(*content));
    }
    let known: Vec<(u64, u64)> = (0..30).map(|n| (400 + n, third(n))).collect();
    write(&mut engine, &known).expect("room");
    let unique = engine.stats().unique_writes;
    assert!(
        unique < 15,
        "the index forgets one in eight: {unique} were stored again"
    );
}

/// A zone has no room for the group as its chunks came: packed it has, and takes one header.
#[test]
fn a_group_that_fits_packed_is_one() {
    vary_by(1);
    let (dir, said) = (SimDir::new(6), ever_said(6));
    let mut engine = create(&dir, 20, &said);
    let writes: Vec<(u64, u64)> = (0..135).map(|n| (n, third(n))).collect();
    write(&mut engine, &writes).expect("room");
    engine.commit().expect("no faults");
    assert_eq!(counter(&engine, "packed pages"), 45);
    assert_eq!(counter(&engine, "group pages"), 46);
    for (lbn, content) in &writes {
        assert!(read(&engine, *lbn).expect("readable") == bytes_of(*content));
    }
}

/// A packed page stays while one of its chunks lives, is moved as it is, and goes with the last one.
#[test]
fn packed_pages_move_with_all_of_their_chunks_and_go_with_the_last() {
    vary_by(1);
    let (dir, said) = (SimDir::new(2), ever_said(2));
    let mut engine = create(&dir, 40, &said);
    let writes: Vec<(u64, u64)> = (0..540).map(|n| (n, third(n))).collect();
    for writes in writes.chunks(30) {
        write(&mut engine, writes).expect("room");
        engine.commit().expect("no faults");
    }
    // The first two chunks of each page die, and every page of the second half.
    for n in (0..540).filter(|n| n % 3 < 2 || *n >= 270) {
        engine.discard(HEAD, n..n + 1).expect("room");
    }
    // Whatever is not behind the log's position is no victim.
    fill_and_drop(&mut engine);
    engine.collect(Effort::Whole).expect("no faults");
    assert!(counter(&engine, "zones freed") > 0);
    for n in (0..270).filter(|n| n % 3 == 2) {
        assert!(read(&engine, n).expect("readable") == bytes_of(third(n)));
    }
    // Chunks that died in a page that lives are still known: they come back without being stored, where the index
    // answers with the zone that they are in now.
    let before = engine.stats().unique_writes;
    let dead = (0..135).filter(|n| n % 3 < 2);
    let back: Vec<(u64, u64)> = dead.map(|n| (600 + n, third(n))).collect();
    write(&mut engine, &back).expect("room");
    engine.commit().expect("no faults");
    let stored = engine.stats().unique_writes - before;
    assert!(stored < 80, "{stored} of 90 were stored again");
    drop(engine);
    let mut engine = open(&dir, &said).expect("whole");
    for (lbn, content) in &back {
        assert!(read(&engine, *lbn).expect("readable") == bytes_of(*content));
    }
    engine.discard(HEAD, 0..10_000).expect("room");
    engine.collect(Effort::Whole).expect("no faults");
    assert_eq!(engine.stats().mapped_lbns, 0);
}

fn fill_and_drop(engine: &mut LogEngine) {
    let writes: Vec<(u64, u64)> = (0..200).map(|n| (5000 + n, 4_000_000 + 4 * n)).collect();
    write(engine, &writes).expect("room");
    engine.discard(HEAD, 5000..6000).expect("room");
    engine.commit().expect("no faults");
}

/// A zone of packed pages has more rows than pages: its table begins earlier, and groups end before it.
#[test]
fn zones_of_packed_pages_keep_room_for_their_rows() {
    vary_by(1);
    let (dir, said) = (SimDir::new(3), ever_said(3));
    let mut engine = create(&dir, 20, &said);
    // All but a few bytes are zeros: pages are packed to the last slot.
    let contents: Vec<u64> = (1..4000u64)
        .filter(|n| n % 4 != 0 && n * 61 % 2600 < 200 && n % 13 != 0)
        .collect();
    let writes: Vec<(u64, u64)> = (0..).zip(contents.iter().copied()).collect();
    let all: Vec<(u64, u64)> = (0..4u64)
        .flat_map(|round| {
            let again = writes.iter();
            again.map(move |(lbn, n)| (round * 1000 + lbn, n + round * 52 * 2600 * 50))
        })
        .collect();
    for writes in all.chunks(30) {
        write(&mut engine, writes).expect("room");
    }
    engine.commit().expect("no faults");
    drop(engine);
    let engine = open(&dir, &said).expect("whole");
    for (lbn, content) in &all {
        assert!(read(&engine, *lbn).expect("readable") == bytes_of(*content));
    }
    let zones = engine.shared.zones.read().listed(&HashSet::new());
    let most = zones
        .iter()
        .filter_map(|zone| engine.shared.tables.read(zone.id, zone.no).ok())
        .map(|table| table.rows.len())
        .max();
    assert!(most > Some(215), "one page has room for 215 rows: {most:?}");
}

/// A flipped bit of a packed page is damage of all its chunks, and of no others; equal writes store good copies.
#[test]
fn damage_of_a_packed_page_is_that_of_its_chunks() {
    vary_by(1);
    let (dir, said) = (SimDir::new(4), ever_said(4));
    let mut engine = create(&dir, 20, &said);
    let writes: Vec<(u64, u64)> = (0..30).map(|n| (n, third(n))).collect();
    write(&mut engine, &writes).expect("room");
    engine.commit().expect("no faults");
    let target = |engine: &LogEngine, lbn: u64| {
        let mut found = None;
        let maps = engine.shared.maps.read();
        maps[&HEAD].memtable.visit(lbn..lbn + 1, &mut |_, extent| {
            found = extent.and_then(|extent| extent.target);
            true
        });
        found.expect("it was written just now")
    };
    let hurt = target(&engine, 7);
    assert_ne!(hurt.slot, WHOLE);
    let no = engine.shared.zones.read().get(hurt.zone).expect("there").no;
    let offset = engine.shared.layout.page_offset(no, hurt.page);
    let mut byte = [0];
    let data = dir.open_write("data").expect("there");
    let at = offset + PAGE_BYTES as u64 / 2;
    data.read_at(&mut byte, at).expect("simulated");
    data.write_at(&[byte[0] ^ 4], at).expect("simulated");
    let shares = |lbn: &u64| target(&engine, *lbn).of_page() == hurt.of_page();
    let damaged: Vec<u64> = (0..30).filter(shares).collect();
    assert_eq!(damaged.len(), 3);
    for lbn in 0..30 {
        match read(&engine, lbn) {
            Ok(found) => assert!(!damaged.contains(&lbn) && found == bytes_of(third(lbn))),
            Err(error) => {
                assert!(damaged.contains(&lbn), "chunk {lbn}: {error}");
                assert!(matches!(error, Error::Damaged { .. }), "{error}");
            }
        }
    }
    write(&mut engine, &writes).expect("room");
    engine.commit().expect("no faults");
    for (lbn, content) in &writes {
        assert!(read(&engine, *lbn).expect("a good copy") == bytes_of(*content));
    }
}

/// The same writes without compression, and with it, and either read with the other: what is stored says how.
#[test]
fn a_depot_is_read_whatever_compression_it_is_opened_with() {
    let (dir, said) = (SimDir::new(5), ever_said(5));
    pack_by(0);
    let mut engine = create(&dir, 24, &said);
    let (mut twin, mut random) = (Twin::new(), Random(5));
    for round in 0..6 {
        for _ in 0..40 {
            act(&mut engine, &mut twin, &mut random, 900).expect("no faults");
        }
        engine.commit().expect("no faults");
        twin.commit();
        drop(engine);
        pack_by(round + 1);
        engine = open(&dir, &said).expect("whole");
        twin.assert_newest(&engine);
    }
}
