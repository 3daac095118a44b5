//! The conformance suite of indexes: answers as a naive history has them, under random operations, closings and
//! openings.

use onefold_index::{ChunkIndex, ContainerId, Location};

use crate::history::{History, Random, key};

/// Random operations on the indexes that `open` opens, all on the same entries; a persistent one is closed and opened
/// again.
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
                // now and then a container that was used before, and may be gone
                let told = if random.below(4) == 0 {
                    random.below(step + 1)
                } else {
                    step
                };
                let container = ContainerId(seed << 32 | told);
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
            // the others see only what is durable
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

/// Answers of an index that samples, under random operations, were inserted and not taken back. `open` opens the index
/// again and again.
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
