//! Reads that a lookup costs: the promise of the design.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Location, Strata};
use onefold_io::{CountedDir, Counters, MemDir};

use crate::conformance::options;
use crate::history::{Random, key};

const KEYS: u64 = 200_000;

fn reads(index: &mut Strata, counters: &Counters, numbers: impl Iterator<Item = u64>) -> f64 {
    let numbers: Vec<u64> = numbers.collect();
    let before = counters.counts().reads;
    for numbers in numbers.chunks(512) {
        let keys: Vec<Fingerprint> = numbers.iter().map(|number| key(*number)).collect();
        let mut found = vec![None; keys.len()];
        index.lookup(&keys, &mut found).expect("lookup");
        let right = numbers
            .iter()
            .zip(&found)
            .all(|(number, found)| found.is_some() == (*number < KEYS));
        assert!(right);
    }
    (counters.counts().reads - before) as f64 / numbers.len() as f64
}

/// An index of [`KEYS`] keys, 1000 in a container.
fn filled(counters: &Arc<Counters>, budget: usize) -> Strata {
    let dir = CountedDir::new(Arc::new(MemDir::new()), Arc::clone(counters));
    let mut index = Strata::open(Arc::new(dir), options(1, budget)).expect("open");
    for number in 0..KEYS {
        let container = ContainerId(number / 1000);
        let entry = (key(number), Location { container });
        index.insert(&[entry]).expect("insert");
    }
    index.checkpoint().expect("checkpoint");
    index
}

/// Keys of files that are stored, or read, side by side: some hundred keys of each file in turn.
fn woven(files: u64, every: u64) -> impl Iterator<Item = u64> {
    let each = KEYS / files;
    let turns = (0..each).step_by(every as usize);
    turns.flat_map(move |turn| {
        (0..files).flat_map(move |file| {
            let keys = turn..each.min(turn + every);
            keys.map(move |at| file * each + at)
        })
    })
}

#[test]
fn an_index_that_is_small_for_its_budget_is_read_once() {
    let counters = Counters::new();
    let mut index = filled(&counters, 24 << 20);
    let before = counters.counts().read_bytes;
    for _ in 0..5 {
        let each = reads(&mut index, &counters, woven(40, 90));
        assert!(each < 0.005, "{each} reads a key of files side by side");
    }
    let read = counters.counts().read_bytes - before;
    let disk = index.stats().disk_bytes;
    assert!(read < disk * 5 / 4, "{read} bytes of {disk}");
    assert!(index.ram_bytes() <= 24 << 20, "{}", index.ram_bytes());
}

#[test]
fn the_cache_gives_back_what_filters_need() {
    let counters = Counters::new();
    let mut index = filled(&counters, 3 << 20);
    for many in 1..6 {
        reads(&mut index, &counters, woven(40, 90));
        for number in many * KEYS..(many + 1) * KEYS {
            let container = ContainerId(number / 1000);
            let entry = (key(number), Location { container });
            index.insert(&[entry]).expect("insert");
            if number % 5000 == 0 {
                index.lookup(&[key(number)], &mut [None]).expect("lookup");
                assert!(index.ram_bytes() <= 3 << 20, "{}", index.ram_bytes());
            }
        }
    }
}

/// Insertions without lookups, as by a sweep that copies live chunks, or by a session that learns others' chunks.
#[test]
fn the_cache_gives_back_what_filters_need_though_nothing_is_looked_up() {
    let counters = Counters::new();
    let budget = 3 << 20;
    let mut index = filled(&counters, budget);
    reads(&mut index, &counters, woven(40, 90));
    for number in KEYS..6 * KEYS {
        let container = ContainerId(number / 1000);
        let entry = (key(number), Location { container });
        index.insert(&[entry]).expect("insert");
        if number % 5000 == 0 {
            let bytes = index.ram_bytes();
            assert!(bytes <= budget, "{bytes} bytes with {number} keys");
        }
    }
}

#[test]
fn lookups_cost_the_reads_that_the_design_promises() {
    let counters = Counters::new();
    let mut index = filled(&counters, 2 << 20);
    let mut random = Random(1);
    let at_random = reads(
        &mut index,
        &counters,
        (0..20_000).map(|_| random.below(KEYS)),
    );
    let stream = reads(&mut index, &counters, 0..KEYS);
    let absent = reads(&mut index, &counters, KEYS..2 * KEYS);
    assert!(
        at_random < 1.1,
        "{at_random} reads a key at random: one of a run, none of the log"
    );
    assert!(
        stream < 0.0025,
        "{stream} reads a key in stream order: of the log alone, but for the few that the cache has lost"
    );
    assert!(absent < 0.02, "{absent} reads an absent key");
    let stats = index.stats();
    // relative to the bytes of a key and its container
    let amplification = stats.bytes_written as f64 / (KEYS * 40) as f64;
    assert!(amplification < 3.0, "write amplification {amplification}");
    let each = stats.disk_bytes as f64 / KEYS as f64;
    assert!(each < 60.0, "{each} bytes on disk a key");
    assert!(
        index.ram_bytes() <= 2 << 20,
        "{} bytes of RAM",
        index.ram_bytes()
    );
}
