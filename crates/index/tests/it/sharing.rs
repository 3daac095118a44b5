//! Several openers of one folder at the same time, each with its own merging thread, as several processes would.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Location, Strata, StrataOptions};
use onefold_io::FileDir;

use crate::conformance::{Random, key};

const OPENERS: u64 = 4;
const ROUNDS: u64 = 25;
const KEYS: u64 = 200;

fn number(opener: u64, round: u64, i: u64) -> u64 {
    (opener * ROUNDS + round) * KEYS + i
}

/// Inserts, seals, sweeps, closes and opens again, and looks after each seal for what it said itself.
fn work(path: &std::path::Path, opener: u64) {
    let open = |unique| {
        let dir = Arc::new(FileDir::open(path).expect("folder"));
        Strata::open(
            dir,
            StrataOptions {
                ram_budget_bytes: 1 << 20,
                ..StrataOptions::new(unique)
            },
        )
        .expect("open")
    };
    let mut index = open(opener);
    let mut random = Random(opener);
    for round in 0..ROUNDS {
        let container = ContainerId(opener << 32 | round);
        let entries: Vec<_> = (0..KEYS)
            .map(|i| (key(number(opener, round, i)), Location { container }))
            .collect();
        index.insert(&entries).expect("insert");
        if round % 5 == 4 {
            index
                .retire(&[ContainerId(opener << 32 | (round - 4))])
                .expect("retire");
        }
        index.checkpoint().expect("checkpoint");
        check(&mut index, opener, random.below(round + 1), round);
        if random.below(6) == 0 {
            drop(index);
            index = open(opener + OPENERS * (round + 1));
        }
    }
}

fn check(index: &mut Strata, opener: u64, round: u64, until: u64) {
    let keys: Vec<Fingerprint> = (0..KEYS).map(|i| key(number(opener, round, i))).collect();
    let mut found = vec![None; keys.len()];
    index.lookup(&keys, &mut found).expect("lookup");
    let retired = round.is_multiple_of(5) && round + 4 <= until;
    let expected = (!retired).then_some(Location {
        container: ContainerId(opener << 32 | round),
    });
    assert!(
        found.iter().all(|found| *found == expected),
        "opener {opener}, round {round} of {until}"
    );
}

#[test]
fn openers_beside_each_other_lose_nothing() {
    let temp = tempfile::tempdir().expect("temp");
    std::thread::scope(|scope| {
        for opener in 0..OPENERS {
            let path = temp.path();
            scope.spawn(move || work(path, opener));
        }
    });
    let dir = Arc::new(FileDir::open(temp.path()).expect("folder"));
    let mut index = Strata::open(dir, StrataOptions::new(1 << 40)).expect("open");
    index.merge_all().expect("merge");
    for opener in 0..OPENERS {
        (0..ROUNDS).for_each(|round| check(&mut index, opener, round, ROUNDS));
    }
    // all files have an owner or a place in the manifest: the dead ones' were removed at open
    let stats = index.stats();
    let bytes: u64 = std::fs::read_dir(temp.path())
        .expect("list")
        .map(|entry| entry.expect("entry"))
        .filter(|entry| entry.file_name() != "manifest")
        .map(|entry| entry.metadata().expect("metadata").len())
        .sum();
    assert_eq!(bytes, stats.disk_bytes);
}
