//! Every index does what a naive history says, under random operations, closings and openings.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{
    ChunkIndex, ChunkStash, ChunkStashOptions, ContainerId, Location, RamIndex, Strata,
    StrataOptions,
};
use onefold_io::{Dir, MemDir};

/// Splitmix64: all the randomness that tests need.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Key number `number`, spread over the whole range.
pub fn key(number: u64) -> Fingerprint {
    let mut random = Random(number.wrapping_mul(0x0123_4567_89ab_cdef));
    let mut bytes = [0; 32];
    bytes
        .chunks_exact_mut(8)
        .for_each(|eight| eight.copy_from_slice(&random.next().to_be_bytes()));
    Fingerprint(bytes)
}

/// What was said of each key since its last removal, oldest first. After a retirement an index may answer an older location, even one from
/// before a removal, or nothing.
#[derive(Clone, Default)]
pub struct History {
    said: HashMap<u64, Vec<ContainerId>>,
    ever: HashMap<u64, Vec<ContainerId>>,
    retired: HashSet<ContainerId>,
}

impl History {
    pub fn insert(&mut self, number: u64, container: ContainerId) {
        self.said.entry(number).or_default().push(container);
        self.ever.entry(number).or_default().push(container);
    }

    pub fn remove(&mut self, number: u64) {
        self.said.remove(&number);
    }

    pub fn retire(&mut self, container: ContainerId) {
        self.retired.insert(container);
    }

    pub fn agrees(&self, number: u64, found: Option<Location>) -> bool {
        let said = self.said.get(&number).map_or(&[][..], |said| &said[..]);
        match (said.last(), found) {
            (None, found) => found.is_none(),
            (Some(newest), found) if !self.retired.contains(newest) => {
                found == Some(Location { container: *newest })
            }
            (Some(_), None) => true,
            (_, Some(Location { container })) => {
                self.ever[&number].contains(&container) && !self.retired.contains(&container)
            }
        }
    }

    /// Whether an index that may forget, and may not know of the newest location, may answer so.
    pub fn allows(&self, number: u64, found: Option<Location>) -> bool {
        let said = self.said.get(&number).map_or(&[][..], |said| &said[..]);
        found.is_none_or(|Location { container }| {
            said.contains(&container) && !self.retired.contains(&container)
        })
    }

    pub fn check(&self, number: u64, found: Option<Location>) {
        assert!(
            self.agrees(number, found),
            "key {number}: found {found:?}, said {:?}",
            self.said.get(&number)
        );
    }

    pub fn check_all(&self, index: &mut dyn ChunkIndex, keys: u64, random: &mut Random) {
        let mut numbers: Vec<u64> = (0..keys).collect();
        if random.below(2) == 0 {
            numbers.sort_by_key(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        for numbers in numbers.chunks(300) {
            let wanted: Vec<Fingerprint> = numbers.iter().map(|number| key(*number)).collect();
            let mut found = vec![None; wanted.len()];
            index.lookup(&wanted, &mut found).expect("lookup");
            numbers
                .iter()
                .zip(&found)
                .for_each(|(number, found)| self.check(*number, *found));
        }
        self.check_iterate(index, keys);
    }

    fn check_iterate(&self, index: &mut dyn ChunkIndex, keys: u64) {
        let numbers: HashMap<Fingerprint, u64> =
            (0..keys).map(|number| (key(number), number)).collect();
        let mut seen = HashMap::new();
        index
            .iterate(&mut |key, location| {
                assert!(
                    seen.insert(numbers[&key], location).is_none(),
                    "key {} twice",
                    numbers[&key]
                );
                Ok(())
            })
            .expect("iterate");
        (0..keys).for_each(|number| self.check(number, seen.get(&number).copied()));
    }
}

/// Random operations on the indexes that `open` opens, all on the same entries; a persistent one is closed and opened again.
pub fn conforms(
    seed: u64,
    keys: u64,
    steps: u64,
    persistent: bool,
    open: &mut dyn FnMut(u64) -> Vec<Box<dyn ChunkIndex>>,
) {
    let mut random = Random(seed);
    let mut history = History::default();
    let mut openings = 0;
    let mut indexes = open(openings);
    for step in 0..steps {
        let last = indexes.len() - 1;
        let index = &mut indexes[random.below(last as u64 + 1) as usize];
        match random.below(20) {
            0..10 => {
                let (start, len) = (random.below(keys), random.below(keys / 8));
                let container = ContainerId(seed << 32 | step);
                let numbers: Vec<u64> = (start..(start + len).min(keys))
                    .filter(|_| random.below(4) > 0)
                    .collect();
                let entries: Vec<_> = numbers
                    .iter()
                    .map(|number| (key(*number), Location { container }))
                    .collect();
                index.insert(&entries).expect("insert");
                numbers
                    .iter()
                    .for_each(|number| history.insert(*number, container));
            }
            10..12 => {
                let numbers: Vec<u64> = (0..random.below(50)).map(|_| random.below(keys)).collect();
                index
                    .remove(
                        &numbers
                            .iter()
                            .map(|number| key(*number))
                            .collect::<Vec<_>>(),
                    )
                    .expect("remove");
                numbers.iter().for_each(|number| history.remove(*number));
            }
            12..14 => {
                let container = ContainerId(seed << 32 | random.below(step + 1));
                index.retire(&[container]).expect("retire");
                history.retire(container);
            }
            14..17 => index.checkpoint().expect("checkpoint"),
            17 => {
                index.checkpoint().expect("checkpoint");
                if persistent {
                    drop(indexes);
                    openings += 1;
                    indexes = open(openings);
                }
            }
            _ => history.check_all(index.as_mut(), keys, &mut random),
        }
        if indexes.len() > 1 {
            // only what is durable is seen by the others
            indexes
                .iter_mut()
                .for_each(|index| index.checkpoint().expect("checkpoint"));
            indexes
                .iter_mut()
                .for_each(|index| index.checkpoint().expect("checkpoint"));
        }
    }
    indexes
        .iter_mut()
        .for_each(|index| history.check_all(index.as_mut(), keys, &mut random));
}

/// What an index that samples answers under random operations was said and not taken back. `open` opens it, again and again.
pub fn is_never_wrong(seed: u64, open: &mut dyn FnMut() -> Box<dyn ChunkIndex>) {
    const KEYS: u64 = 1000;
    let (mut random, mut history) = (Random(seed), History::default());
    let mut index = open();
    let mut hits = 0;
    for step in 0..120 {
        let (start, len) = (random.below(KEYS), random.below(150));
        let numbers = start..(start + len).min(KEYS);
        match random.below(20) {
            0..8 => {
                let numbers: Vec<u64> = numbers.filter(|_| random.below(4) > 0).collect();
                let container = ContainerId(step);
                let location = Location { container };
                let entries: Vec<_> = numbers.iter().map(|i| (key(*i), location)).collect();
                index.insert(&entries).expect("insert");
                numbers
                    .iter()
                    .for_each(|number| history.insert(*number, container));
            }
            8..10 => {
                let keys: Vec<_> = numbers.clone().map(key).collect();
                index.remove(&keys).expect("remove");
                numbers.for_each(|number| history.remove(number));
            }
            10 => {
                let container = ContainerId(random.below(step + 1));
                index.retire(&[container]).expect("retire");
                history.retire(container);
            }
            11..13 => index.checkpoint().expect("checkpoint"),
            13 => {
                index.checkpoint().expect("checkpoint");
                drop(index);
                index = open();
            }
            14 => index
                .iterate(&mut |_, location| {
                    assert!(location.container.0 < 120);
                    Ok(())
                })
                .expect("iterate"),
            _ => {
                let keys: Vec<_> = numbers.clone().map(key).collect();
                let mut answers = vec![None; keys.len()];
                index.lookup(&keys, &mut answers).expect("lookup");
                for (number, found) in numbers.zip(answers) {
                    hits += u64::from(found.is_some());
                    assert!(
                        history.allows(number, found),
                        "seed {seed}, step {step}, key {number}: {found:?}"
                    );
                }
            }
        }
    }
    assert!(hits > 100, "seed {seed}: {hits} hits");
}

pub fn options(unique: u64, budget: usize) -> StrataOptions {
    StrataOptions {
        ram_budget_bytes: budget,
        background_merges: false,
        unique,
    }
}

fn strata(dir: &MemDir, unique: u64, budget: usize, background: bool) -> Box<dyn ChunkIndex> {
    let dir: Arc<dyn Dir> = Arc::new(dir.clone());
    Box::new(
        Strata::open(
            dir,
            StrataOptions {
                background_merges: background,
                ..options(unique, budget)
            },
        )
        .expect("open"),
    )
}

#[test]
fn ram_conforms() {
    for seed in 0..10 {
        conforms(seed, 500, 60, false, &mut |_| {
            vec![Box::new(RamIndex::new())]
        });
    }
}

#[test]
fn strata_conforms_merging_inline() {
    for seed in 0..10 {
        let dir = MemDir::new();
        conforms(seed, 3000, 100, true, &mut |opening| {
            vec![strata(&dir, 1 + opening % 2, 1 << 20, false)]
        });
    }
}

#[test]
fn strata_conforms_merging_in_the_background() {
    for seed in 100..106 {
        let dir = MemDir::new();
        conforms(seed, 3000, 100, true, &mut |_| {
            vec![strata(&dir, 7, 1 << 20, true)]
        });
    }
}

#[test]
fn strata_conforms_with_several_openers_of_one_folder() {
    for seed in 200..206 {
        let dir = MemDir::new();
        conforms(seed, 2000, 60, true, &mut |_| {
            (0..3)
                .map(|unique| strata(&dir, unique, 1 << 20, unique == 0))
                .collect()
        });
    }
}

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

/// Of a stream that comes again, a sample of a tenth finds nearly all: prefetch brings the others.
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

/// How many of keys `numbers` are found, each where it was said to be: in container number / 100.
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

/// How many keys it goes over.
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

/// §3 of the slides: 16 candidates a key fill 90 % of the table, none of whose keys is forgotten.
#[test]
fn a_chunkstash_takes_nine_tenths_of_its_slots() {
    let mut index = small_chunkstash(&MemDir::new());
    insert_numbers(&mut index, 0..982);
    assert_eq!(found_of(&mut index, 0..982), 982);
    let live = live_in(&mut index);
    assert_eq!(live, 982);
}

/// Twenty times the keys that it has slots for: it goes on, within its RAM, and forgets few of a stream that comes again.
#[test]
fn a_full_chunkstash_goes_on_with_fewer_keys() {
    let dir = MemDir::new();
    let mut index = small_chunkstash(&dir);
    let before = index.ram_bytes();
    insert_numbers(&mut index, 0..20_000);
    assert!(found_of(&mut index, 0..20_000) > 19_000);
    // what prefetch brought may fill its cache
    assert!(index.ram_bytes() < before + (512 << 10));
    drop(index);
    let mut again = small_chunkstash(&dir);
    insert_numbers(&mut again, 20_000..21_000);
    assert!(found_of(&mut again, 0..21_000) > 19_500);
    let live = live_in(&mut again);
    assert!((300..1092).contains(&live), "{live} keys have slots");
}

/// What retired containers held makes room first: then every key keeps its slot.
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

/// A removal that a newer insertion superseded is forgotten in a merge; when that insertion's container is retired, a location from before the
/// removal may come back. It is one that was true: containers never change.
#[test]
fn retirement_may_bring_back_what_was_before_a_removal() {
    let dir = MemDir::new();
    let mut index = strata(&dir, 1, 1 << 20, false);
    let at = |container| Location {
        container: ContainerId(container),
    };
    let entries: Vec<_> = (0..15_000).map(|number| (key(number), at(1))).collect();
    index.insert(&entries).expect("insert");
    index.checkpoint().expect("checkpoint");
    index.remove(&[key(5)]).expect("remove");
    index.checkpoint().expect("checkpoint");
    index.insert(&[(key(5), at(2))]).expect("insert");
    index.checkpoint().expect("checkpoint");
    for number in 20_000..20_010 {
        index.insert(&[(key(number), at(3))]).expect("insert");
        index.checkpoint().expect("checkpoint");
    }
    index.retire(&[ContainerId(2)]).expect("retire");
    index.checkpoint().expect("checkpoint");
    let mut found = [None];
    index.lookup(&[key(5)], &mut found).expect("lookup");
    assert!(found[0].is_none() || found[0] == Some(at(1)), "{found:?}");
}
