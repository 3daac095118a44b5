//! The backend `dtb`: it keeps nothing across a crash and says so, and its cache is what was given.

use std::sync::Arc;

use onefold_io::sim::{Faults, SimDir, When};
use onefold_io::{CountedDir, Counters, Dir, Disk, MemDir, MemDisk, Random};
use onefold_volume::dtb::Dtb;
use onefold_volume::{Error, Key, MetadataBackend, Pbn, Result};

use crate::tables::{BLOCKS, TableContents, Tables, hash};

const CACHE_BYTES: u64 = 64 << 10;

fn open(folder: &dyn Dir) -> Result<Tables<Dtb>> {
    Ok(Tables::new(Dtb::open(folder, BLOCKS, CACHE_BYTES)?))
}

/// At every write and every sync: what was saved is there as long as nothing was changed since; otherwise it refuses, in
/// words.
#[test]
fn a_crash_is_refused_unless_all_was_saved() {
    for seed in 0..4 {
        let device = SimDir::new(seed);
        Dtb::create(&device, BLOCKS).expect("simulated");
        let mut tables = open(&device).expect("simulated");
        device.keep_history();
        let (mut twin, mut random) = (TableContents::default(), Random(seed));
        // The states that saves left, with the points where each began.
        let mut saves = vec![(0, TableContents::default())];
        for _ in 0..12 {
            for _ in 0..random.below(60) {
                tables.change(&mut twin, &mut random).expect("simulated");
            }
            tables.backend.flush().expect("simulated");
            let begin = device.counts().points;
            tables.backend.save().expect("simulated");
            for luck in 0..3 {
                let mut found = open(&device.crash_image(luck)).expect("it was saved");
                assert!(found.state().expect("whole") == twin, "seed {seed}");
            }
            saves.push((begin, twin.clone()));
        }
        let (mut whole, mut refused) = (0, 0);
        for point in 0..device.counts().points {
            // The last save that had begun, and the one before, which a crash at its beginning leaves.
            let begun = saves.partition_point(|(begin, _)| *begin <= point);
            let allowed = &saves[begun.saturating_sub(2)..begun];
            for luck in [0, 1, 2 + point] {
                let image = device.crash_image_at(point, luck).expect("history is kept");
                match open(&image) {
                    Ok(mut found) => {
                        let state = found.state().expect("whole");
                        let is_one = allowed.iter().any(|(_, saved)| *saved == state);
                        assert!(is_one, "seed {seed}, point {point}, luck {luck}");
                        whole += 1;
                    }
                    Err(error) => {
                        assert!(matches!(error, Error::Damaged { .. }), "{error}");
                        assert!(error.to_string().contains("survives a crash"), "{error}");
                        refused += 1;
                    }
                }
            }
        }
        assert!(
            whole > 20 && refused > 20,
            "{whole} whole, {refused} refused"
        );
    }
}

/// A change that failed halfway is never called whole.
#[test]
fn a_failed_change_is_never_saved() {
    let device = SimDir::new(1);
    Dtb::create(&device, BLOCKS).expect("simulated");
    let mut tables = open(&device).expect("simulated");
    let (mut twin, mut random) = (TableContents::default(), Random(1));
    tables.change(&mut twin, &mut random).expect("simulated");
    device.inject(Faults {
        write_error: When::From(0),
        ..Faults::default()
    });
    tables.backend.save().expect_err("the device fails");
    device.inject(Faults::default());
    let saved = tables.backend.save();
    assert!(matches!(saved, Err(Error::ReadOnly { .. })), "{saved:?}");
    drop(tables);
    assert!(open(&device).is_err(), "it was not saved");
}

/// Report §4.1: with a cache of 135 % of the metadata nothing is read twice, and nothing written before the end. With a
/// small one the RAM is what was given.
#[test]
fn the_cache_is_as_large_as_it_is_told_to_be() {
    let blocks = 20_000;
    // 4 bytes of counts, 8 of the LBN, and 24 of the hash with 10 % more.
    let all_bytes = blocks * (4 + 8 + 27);
    for (cache_bytes, is_large) in [(all_bytes * 135 / 100, true), (CACHE_BYTES, false)] {
        let counters = Counters::new();
        let folder = CountedDir::new(Arc::new(MemDir::new()), Arc::clone(&counters));
        Dtb::create(&folder, blocks).expect("RAM");
        let backend = Dtb::open(&folder, blocks, cache_bytes).expect("RAM");
        let mut tables = Tables::of(backend, blocks, blocks);
        let mut random = Random(5);
        let before = counters.counts();
        for lbn in 0..blocks - 10 {
            let pbn = tables.backend.alloc_block().expect("RAM").expect("room");
            tables.write(lbn, &hash(&mut random), pbn).expect("RAM");
        }
        let stats = tables.backend.stats();
        assert!(stats.ram_bytes <= cache_bytes + 2048, "{}", stats.ram_bytes);
        let done = counters.counts() - before;
        if is_large {
            assert_eq!(done.write_pages, 1, "the mark alone");
            assert!(done.read_pages <= all_bytes / 4096 + 4);
        } else {
            assert!(done.read_pages > blocks / 2, "a page for most hashes")
        }
        tables.backend.save().expect("RAM");
        let mut again = Tables::of(
            Dtb::open(&folder, blocks, cache_bytes).expect("it was saved"),
            blocks,
            blocks,
        );
        let mut found = [None];
        let lbns = again.lbns;
        let looked = again.backend.lookup(lbns, &[Key::Linear(77)], &mut found);
        looked.expect("RAM");
        assert_eq!(found, [Some(Pbn(77))]);
    }
}

/// A metadata device that was in use before has empty tables, whatever its pages held.
#[test]
fn tables_of_a_device_that_held_other_bytes_are_empty() {
    let device: Arc<dyn Disk> = Arc::new(MemDisk::new());
    device.write_at(&[0xff; 4 << 20], 0).expect("RAM");
    Dtb::create_on(&*device, BLOCKS).expect("RAM");
    let mut dtb = Dtb::open_on(device, BLOCKS, CACHE_BYTES).expect("it was made");
    let linear = dtb.create_linear(5000).expect("RAM");
    let sparse = dtb.create_sparse(16, BLOCKS).expect("RAM");
    let keys: Vec<Key<'_>> = (0..5000).map(Key::Linear).collect();
    let mut found = vec![None; keys.len()];
    dtb.lookup(linear, &keys, &mut found).expect("RAM");
    assert!(found.iter().all(Option::is_none), "{found:?}");
    let mut hashes = [None; 2];
    let keys = [Key::Sparse(&[0xff; 16]), Key::Sparse(&[1; 16])];
    dtb.lookup(sparse, &keys, &mut hashes).expect("RAM");
    assert_eq!(hashes, [None; 2]);
    let block = dtb.alloc_block().expect("RAM").expect("all are free");
    assert_eq!(dtb.inc_ref(block).expect("RAM"), 1);
}
