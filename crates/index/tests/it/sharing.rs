//! Several openers of one folder at the same time, each with its own merging thread, as several processes would.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Location, Strata, StrataOptions};
use onefold_io::FileDir;

use crate::history::{Random, key};

const OPENERS: u64 = 4;
const ROUNDS: u64 = 25;
const KEYS: u64 = 200;

fn number(opener: u64, round: u64, i: u64) -> u64 {
    (opener * ROUNDS + round) * KEYS + i
}

fn open(path: &std::path::Path, unique: u64) -> Strata {
    let dir = Arc::new(FileDir::open(path).expect("folder"));
    let options = StrataOptions {
        ram_budget_bytes: 1 << 20,
        ..StrataOptions::new(unique)
    };
    Strata::open(dir, options).expect("open")
}

/// Inserts, seals, sweeps, closes and opens again, and after each seal looks its own keys up.
fn work(path: &std::path::Path, opener: u64) {
    let mut index = open(path, opener);
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
            index = open(path, opener + OPENERS * (round + 1));
        }
    }
}

fn files_bytes(path: &std::path::Path) -> u64 {
    std::fs::read_dir(path)
        .expect("list")
        .map(|entry| entry.expect("entry"))
        .filter(|entry| entry.file_name() != "manifest")
        .map(|entry| entry.metadata().expect("metadata").len())
        .sum()
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
    // all files have an owner or a place in the manifest: dead openers' files were removed at open
    let stats = index.stats();
    assert_eq!(files_bytes(temp.path()), stats.disk_bytes);
}

/// Inserts, seals and sweeps while others delete the index: all answers are right, and keys sealed after the last
/// deletion are found.
fn work_under_deletion(path: &std::path::Path, opener: u64, deleting: &AtomicBool) {
    let mut index = open(path, opener);
    let mut random = Random(opener);
    let mut round = 0;
    loop {
        let is_last = !deleting.load(Ordering::SeqCst) && round >= ROUNDS;
        let container = |round| ContainerId(opener << 32 | round);
        let numbers = |round| (0..KEYS).map(move |i| (opener << 32) + round * KEYS + i);
        let location = Location {
            container: container(round),
        };
        let entries: Vec<_> = numbers(round).map(|i| (key(i), location)).collect();
        index.insert(&entries).expect("insert");
        if round % 5 == 4 {
            index.retire(&[container(round - 4)]).expect("retire");
        }
        index.checkpoint().expect("checkpoint");
        for asked in [random.below(round + 1), round] {
            let keys: Vec<Fingerprint> = numbers(asked).map(key).collect();
            let mut found = vec![None; keys.len()];
            index.lookup(&keys, &mut found).expect("lookup");
            let retired = asked % 5 == 0 && asked + 4 <= round;
            for found in found {
                assert!(
                    found.is_none_or(|found| !retired && found.container == container(asked)),
                    "opener {opener}, round {asked} of {round}: {found:?}"
                );
                assert!(!is_last || asked < round || found.is_some());
            }
        }
        if is_last {
            return;
        }
        round += 1;
    }
}

/// Lowers a flag when dropped, also by a panic: threads that go on until then would otherwise be waited for for ever.
struct Lowered<'a>(&'a AtomicBool);

impl Drop for Lowered<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

#[test]
fn an_index_can_be_deleted_under_its_openers() {
    let temp = tempfile::tempdir().expect("temp");
    let deleting = &AtomicBool::new(true);
    std::thread::scope(|scope| {
        let _ended = Lowered(deleting);
        for opener in 0..OPENERS - 1 {
            let path = temp.path();
            scope.spawn(move || work_under_deletion(path, opener, deleting));
        }
        let dir = FileDir::open(temp.path()).expect("folder");
        for _ in 0..40 {
            Strata::delete(&dir).expect("delete");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let mut index = open(temp.path(), 1 << 40);
    index.merge_all().expect("merge");
    let stats = index.stats();
    assert_eq!(files_bytes(temp.path()), stats.disk_bytes);
    drop(index);
    Strata::delete(&FileDir::open(temp.path()).expect("folder")).expect("delete");
    assert_eq!(files_bytes(temp.path()), 0);
    assert_eq!(open(temp.path(), 1).stats().entries, 0);
}

/// A link cannot be locked, and whether files of its number are in use cannot be known: they stay.
#[test]
fn a_link_in_the_place_of_an_owner_stops_nobody() {
    let temp = tempfile::tempdir().expect("temp");
    let name = |kind| temp.path().join(format!("{kind}-{:016x}", 7));
    std::os::unix::fs::symlink("/etc/passwd", name("owner")).expect("a link");
    std::fs::write(name("tmp"), "his").expect("a file");
    drop(open(temp.path(), 1));
    Strata::delete(&FileDir::open(temp.path()).expect("folder")).expect("delete");
    assert!(name("owner").is_symlink() && name("tmp").exists());
}
