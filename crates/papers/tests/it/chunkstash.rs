//! ChunkStash alone: the keys that it forgets where it samples, and where it is full.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Location};
use onefold_io::{Dir, MemDir};
use onefold_papers::{ChunkStash, ChunkStashOptions};

use crate::history::key;
use crate::suite::{conforms, is_never_wrong};

#[test]
fn chunkstash_conforms() {
    for seed in 300..306 {
        let dir = MemDir::new();
        conforms(seed, 3000, 100, true, &mut |_| {
            let options = ChunkStashOptions {
                ram_budget_bytes: 64 << 10,
                cache_bytes: None,
                sample: 1,
            };
            let dir: Arc<dyn Dir> = Arc::new(dir.clone());
            vec![Box::new(ChunkStash::open(dir, options).expect("open"))]
        });
    }
}

#[test]
fn a_sampled_chunkstash_may_forget_and_is_never_wrong() {
    for seed in 0..12 {
        let dir = MemDir::new();
        is_never_wrong(seed, &mut || {
            let options = ChunkStashOptions {
                ram_budget_bytes: 32 << 10,
                cache_bytes: Some(64 << 10),
                sample: 1 + seed as u32 % 8,
            };
            let dir: Arc<dyn Dir> = Arc::new(dir.clone());
            Box::new(ChunkStash::open(dir, options).expect("open"))
        });
    }
}

/// In a stream that comes again, a sample of a tenth finds nearly all keys: prefetch brings the others.
#[test]
fn a_sampled_chunkstash_finds_a_repeated_stream() {
    let options = ChunkStashOptions {
        ram_budget_bytes: 1 << 20,
        cache_bytes: None,
        sample: 10,
    };
    let mut index = ChunkStash::open(Arc::new(MemDir::new()), options).expect("open");
    let entries: Vec<_> = (0..50_000)
        .map(|number| {
            (
                key(number),
                Location {
                    container: ContainerId(number / 1000),
                },
            )
        })
        .collect();
    index.insert(&entries).expect("insert");
    index.checkpoint().expect("checkpoint");
    let keys: Vec<Fingerprint> = entries.iter().map(|(key, _)| *key).collect();
    let mut found = vec![None; keys.len()];
    index.lookup(&keys, &mut found).expect("lookup");
    let lost = found.iter().filter(|found| found.is_none()).count();
    assert!(lost < 500, "{lost} of 50,000 were not found");
}

fn small_chunkstash(dir: &MemDir) -> ChunkStash {
    let options = ChunkStashOptions {
        // 1,092 slots
        ram_budget_bytes: 8 << 10,
        cache_bytes: Some(256 << 10),
        sample: 1,
    };
    ChunkStash::open(Arc::new(dir.clone()), options).expect("open")
}

/// The number of found keys among `numbers`, each in its right container: number / 100.
fn found_of(index: &mut ChunkStash, numbers: std::ops::Range<u64>) -> usize {
    let keys: Vec<Fingerprint> = numbers.clone().map(key).collect();
    let mut found = vec![None; keys.len()];
    index.lookup(&keys, &mut found).expect("lookup");
    for (number, found) in numbers.zip(&found) {
        let container = ContainerId(number / 100);
        assert!(found.is_none_or(|found| found.container == container));
    }
    found.iter().flatten().count()
}

fn insert_numbers(index: &mut ChunkStash, numbers: std::ops::Range<u64>) {
    let at = |number| Location {
        container: ContainerId(number / 100),
    };
    let entries: Vec<_> = numbers.map(|number| (key(number), at(number))).collect();
    index.insert(&entries).expect("insert");
    index.checkpoint().expect("checkpoint");
}

/// The number of keys that `iterate` visits.
fn live_in(index: &mut dyn ChunkIndex) -> u64 {
    let mut live = 0;
    index
        .iterate(&mut |_, _| {
            live += 1;
            Ok(())
        })
        .expect("iterate");
    live
}

/// §3 of the slides: 16 candidates a key fill 90 % of the table, and no key is forgotten.
#[test]
fn a_chunkstash_takes_nine_tenths_of_its_slots() {
    let mut index = small_chunkstash(&MemDir::new());
    insert_numbers(&mut index, 0..982);
    assert_eq!(found_of(&mut index, 0..982), 982);
    let live = live_in(&mut index);
    assert_eq!(live, 982);
}

/// Twenty times as many keys as slots: the index goes on, within its RAM, and forgets few keys of a stream that comes
/// again.
#[test]
fn a_full_chunkstash_goes_on_with_fewer_keys() {
    let dir = MemDir::new();
    let mut index = small_chunkstash(&dir);
    let before = index.ram_bytes();
    insert_numbers(&mut index, 0..20_000);
    assert!(found_of(&mut index, 0..20_000) > 19_000);
    // prefetched pages may fill its cache
    assert!(index.ram_bytes() < before + (512 << 10));
    drop(index);
    let mut again = small_chunkstash(&dir);
    insert_numbers(&mut again, 20_000..21_000);
    assert!(found_of(&mut again, 0..21_000) > 19_500);
    let live = live_in(&mut again);
    assert!((300..1092).contains(&live), "{live} keys have slots");
}

/// Retired containers make room first: then every key keeps its slot.
#[test]
fn a_full_chunkstash_forgets_retired_containers_first() {
    let dir = MemDir::new();
    let mut index = small_chunkstash(&dir);
    for round in 0..20u64 {
        let (first, gone) = (round * 300, round.saturating_sub(1) * 300);
        insert_numbers(&mut index, first..first + 300);
        let retired: Vec<_> = (gone..first)
            .step_by(100)
            .map(|number| ContainerId(number / 100))
            .collect();
        index.retire(&retired).expect("retire");
        assert_eq!(found_of(&mut index, first..first + 300), 300, "{round}");
        assert_eq!(found_of(&mut index, gone..first), 0, "{round}");
    }
    let live = live_in(&mut index);
    assert_eq!(live, 300);
}

/// A new index of containers of 1023 chunks, as in the slides.
fn of_containers(sample: u32, containers: u64, chunks: u64) -> ChunkStash {
    let options = ChunkStashOptions {
        ram_budget_bytes: 4 << 20,
        cache_bytes: None,
        sample,
    };
    let mut index = ChunkStash::open(Arc::new(MemDir::new()), options).expect("open");
    for container in 0..containers {
        let at = Location {
            container: ContainerId(container),
        };
        let numbers = container * chunks..(container + 1) * chunks;
        let entries: Vec<_> = numbers.map(|number| (key(number), at)).collect();
        index.insert(&entries).expect("insert");
    }
    index.checkpoint().expect("checkpoint");
    index
}

/// The number of found keys, and the number of reads for it.
fn found_and_reads(index: &ChunkStash, numbers: std::ops::Range<u64>) -> (usize, u64) {
    let before = index.stats().lookup_reads;
    let keys: Vec<Fingerprint> = numbers.map(key).collect();
    let mut found = vec![None; keys.len()];
    index.lookup(&keys, &mut found).expect("lookup");
    let count = found.iter().flatten().count();
    (count, index.stats().lookup_reads - before)
}

/// The slides: "prefetch chunk metadata into RAM" is that of the container of the hit.
#[test]
fn a_hit_brings_the_metadata_of_its_container_and_of_no_other() {
    let index = of_containers(1, 8, 1023);
    let last = 4 * 1023 - 1;
    assert_eq!(found_and_reads(&index, last - 100..last - 99), (1, 1));
    let (found, reads) = found_and_reads(&index, 3 * 1023 + 130..last - 100);
    assert_eq!((found, reads), (792, 0), "those before it in the container");
    // a page of 127 records may be of two containers
    let (found, reads) = found_and_reads(&index, 6 * 1023 + 500..6 * 1023 + 501);
    assert_eq!((found, reads), (1, 1), "another container is not there");
}

/// The slides: "index in RAM only a small fraction of the chunks in each container".
#[test]
fn every_container_has_its_own_sample() {
    let (containers, chunks) = (50, 60);
    let index = of_containers(100, containers, chunks);
    for container in 0..containers {
        let numbers = container * chunks..(container + 1) * chunks;
        let (found, _) = found_and_reads(&index, numbers);
        assert_eq!(found as u64, chunks, "container {container}");
    }
}
