//! What a lookup costs in reads: the promise that the design is for.

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

#[test]
fn lookups_cost_the_reads_that_the_design_promises() {
    let counters = Counters::new();
    let dir = CountedDir::new(Arc::new(MemDir::new()), Arc::clone(&counters));
    let mut index = Strata::open(Arc::new(dir), options(1, 2 << 20)).expect("open");
    for number in 0..KEYS {
        index
            .insert(&[(
                key(number),
                Location {
                    container: ContainerId(number / 1000),
                },
            )])
            .expect("insert");
    }
    index.checkpoint().expect("checkpoint");
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
    // Of a key and its container.
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
