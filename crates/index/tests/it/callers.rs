//! Many callers at once: each finds all present keys, in every state of the cache, while merges go on.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Location, Strata, StrataOptions};
use onefold_io::MemDir;

use crate::conformance::options;
use crate::history::{Random, key};

const KEYS: u64 = 40_000;
const CALLERS: u64 = 8;
const BATCH: u64 = 300;

/// The last location of key `number`: a tenth of the keys move once.
fn at(number: u64) -> Location {
    let moved = if number.is_multiple_of(10) { 1000 } else { 0 };
    Location {
        container: ContainerId(number / 700 + moved),
    }
}

fn filled(dir: &MemDir, background_merges: bool) -> Strata {
    let options = StrataOptions {
        background_merges,
        ..options(1, 1 << 20)
    };
    let mut index = Strata::open(Arc::new(dir.clone()), options).expect("open");
    for number in 0..KEYS {
        let container = ContainerId(number / 700);
        let entry = (key(number), Location { container });
        index.insert(&[entry]).expect("insert");
        if number % 3000 == 0 {
            index.checkpoint().expect("checkpoint");
        }
    }
    let moved = (0..KEYS).step_by(10);
    let moved: Vec<_> = moved.map(|number| (key(number), at(number))).collect();
    index.insert(&moved).expect("insert");
    index
}

/// Looks streams up from random positions on, with absent keys between them, as one caller.
fn look_up(index: &Strata, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..60 {
        let first = random.below(KEYS);
        let numbers = first..first + BATCH;
        let keys: Vec<Fingerprint> = numbers.clone().map(key).collect();
        let mut found = vec![None; keys.len()];
        index.lookup(&keys, &mut found).expect("lookup");
        for (number, found) in numbers.zip(found) {
            let expected = (number < KEYS).then(|| at(number));
            assert_eq!(found, expected, "key {number}");
        }
    }
}

fn all_at_once(index: &Strata) {
    std::thread::scope(|scope| {
        for seed in 0..CALLERS {
            scope.spawn(move || look_up(index, seed));
        }
    });
}

#[test]
fn many_callers_find_what_one_would() {
    let dir = MemDir::new();
    let mut index = filled(&dir, false);
    all_at_once(&index);
    index.checkpoint().expect("checkpoint");
    all_at_once(&index);
    index.merge_all().expect("merge");
    all_at_once(&index);
    let stats = index.stats();
    assert_eq!(stats.lookups, 3 * CALLERS * 60 * BATCH);
    assert!(stats.hits > stats.lookups * 9 / 10, "{stats:?}");
}

/// Merges, and compactions of moved and retired keys, replace files under the callers: some begin with a view that
/// is older than the cache.
#[test]
fn many_callers_find_what_is_there_while_files_are_merged_under_them() {
    let dir = MemDir::new();
    let mut index = filled(&dir, true);
    for round in 0..4 {
        let numbers = KEYS * 2 + round * 3000..KEYS * 2 + (round + 1) * 3000;
        let new: Vec<_> = numbers.map(|number| (key(number), at(number))).collect();
        index.insert(&new).expect("insert");
        index.checkpoint().expect("checkpoint");
        all_at_once(&index);
    }
}
