//! Strata after a crash at every write, sync, creation, renaming and removal, and on a device that is full or fails.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, Location, Result, Strata};
use onefold_io::sim::{Faults, SimDir, When};

use crate::conformance::options;
use crate::folder::check_no_leftovers;
use crate::history::{History, Random, key};
use crate::scale::scale;

const KEYS: u64 = 1600;
/// Largest number of keys in a round: two or three rounds become a run, the first one or two are loose.
const ROUND_KEYS: u64 = 600;
/// Number of checkpoints: enough for some merges, which take four runs.
const ROUNDS: u64 = 27;

/// Some backups, a removal and a sweep, with merges between them; calls `told` before and after each checkpoint.
fn work(index: &mut dyn ChunkIndex, seed: u64, told: &mut dyn FnMut(&History)) -> Result<()> {
    let mut random = Random(seed);
    let mut history = History::default();
    for round in 0..ROUNDS {
        let container = ContainerId(round);
        let start = random.below(KEYS);
        for number in start..(start + ROUND_KEYS).min(KEYS) {
            index.insert(&[(key(number), Location { container })])?;
            history.insert(number, container);
        }
        if round % 3 == 1 {
            let numbers: Vec<u64> = (0..20).map(|_| random.below(KEYS)).collect();
            index.remove(
                &numbers
                    .iter()
                    .map(|number| key(*number))
                    .collect::<Vec<_>>(),
            )?;
            numbers.iter().for_each(|number| history.remove(*number));
        }
        if round % 3 == 2 {
            index.retire(&[ContainerId(round - 2)])?;
            history.retire(ContainerId(round - 2));
        }
        told(&history);
        index.checkpoint()?;
        told(&history);
    }
    Ok(())
}

fn open(dir: &SimDir, unique: u64) -> Strata {
    Strata::open(Arc::new(dir.clone()), options(unique, 1 << 20)).expect("open")
}

fn all(index: &mut Strata) -> Vec<Option<Location>> {
    let keys: Vec<Fingerprint> = (0..KEYS).map(key).collect();
    let mut found = vec![None; keys.len()];
    index.lookup(&keys, &mut found).expect("lookup");
    found
}

fn agrees(history: &History, found: &[Option<Location>]) -> bool {
    (0..KEYS)
        .zip(found)
        .all(|(number, found)| history.agrees(number, *found))
}

/// Asserts that the folder holds no files but those that the manifest names and the lock files.
fn check_tidy(dir: &SimDir, index: &mut Strata) {
    index.merge_all().expect("merge");
    drop(open(dir, 1000));
    check_no_leftovers(dir, "merged");
    let owners = dir
        .paths()
        .iter()
        .filter(|name| name.starts_with("owner-"))
        .count();
    assert!(owners <= 2, "{:?}", dir.paths());
}

#[test]
fn a_crash_at_any_point_keeps_the_last_checkpoint() {
    for seed in 0..scale() {
        let dir = SimDir::new(seed);
        dir.keep_history();
        // (crash points so far, history): a pair around each checkpoint
        let mut said = vec![(0, History::default())];
        let mut index = open(&dir, 1);
        let mut runs = Vec::new();
        work(&mut index, seed, &mut |history| {
            said.push((dir.counts().points, history.clone()));
            let is_run = |name: &&String| name.starts_with("run-");
            runs.push(dir.paths().iter().filter(is_run).count());
        })
        .expect("no faults");
        // three runs and the one just sealed became one, so that points within such merges are among those below
        let merges = runs.windows(2).filter(|pair| pair[0] >= 3 && pair[1] == 1);
        assert!(merges.count() >= 2, "seed {seed}: runs {runs:?}");
        let points = dir.counts().points;
        for point in 0..points {
            for image_seed in [0, 1, 2 + point + seed] {
                let image = dir.crash_image_at(point, image_seed).expect("history");
                let mut index = open(&image, 2);
                let found = all(&mut index);
                let acked = said
                    .iter()
                    .rposition(|(until, _)| *until <= point)
                    .expect("the first is at 0");
                // within a checkpoint, that is after an odd entry, either state is right
                let right = said[acked..(acked + 2).min(said.len())]
                    .iter()
                    .any(|(_, history)| agrees(history, &found))
                    || acked > 0 && agrees(&said[acked - 1].1, &found);
                assert!(
                    right,
                    "seed {seed}, point {point} of {points}, image {image_seed}"
                );
                if point % 16 == 0 {
                    index
                        .insert(&[(
                            key(0),
                            Location {
                                container: ContainerId(99),
                            },
                        )])
                        .expect("insert");
                    index.checkpoint().expect("checkpoint");
                    assert_eq!(
                        all(&mut open(&image, 3))[0],
                        Some(Location {
                            container: ContainerId(99)
                        })
                    );
                    check_tidy(&image, &mut index);
                }
            }
        }
    }
}

#[test]
fn a_full_or_failing_device_gives_an_error_and_keeps_the_last_checkpoint() {
    for kind in 0..3 {
        let mut failures = 0;
        for number in (kind as u64..400).step_by(5) {
            let dir = SimDir::new(number);
            let mut index = open(&dir, 1);
            let (space, write, sync) = [
                (When::From(number), When::Never, When::Never),
                (When::Never, When::Once(number), When::Never),
                (When::Never, When::Never, When::Once(number)),
            ][kind];
            dir.inject(Faults {
                no_space: space,
                write_error: write,
                sync_error: sync,
                ..Faults::default()
            });
            let mut said = vec![History::default()];
            let failed = work(&mut index, 5, &mut |history| said.push(history.clone())).is_err();
            dir.inject(Faults::default());
            failures += u64::from(failed);
            let last = said.len() - 1;
            if failed {
                // all insertions are still there for another try
                assert!(
                    said[last.saturating_sub(1)..]
                        .iter()
                        .any(|history| agrees(history, &all(&mut index))),
                    "kind {kind}, number {number}"
                );
                index
                    .checkpoint()
                    .expect("checkpoint on a device that works again");
                let found = all(&mut open(&dir, 2));
                assert!(
                    said[last.saturating_sub(1)..]
                        .iter()
                        .any(|history| agrees(history, &found)),
                    "kind {kind}, number {number}, opened again"
                );
            }
            drop(index);
            drop(open(&dir, 4));
            check_no_leftovers(&dir, &format!("kind {kind}, number {number}"));
            let found = all(&mut open(&dir.crash_image(0), 3));
            assert!(
                said[last.saturating_sub(2)..]
                    .iter()
                    .any(|history| agrees(history, &found)),
                "kind {kind}, number {number}, after a crash"
            );
        }
        assert!(failures > 10, "kind {kind}: {failures} failures");
    }
}

#[test]
fn damage_is_an_error_or_repaired_but_never_a_wrong_answer() {
    let dir = SimDir::new(3);
    let mut last = History::default();
    work(&mut open(&dir, 1), 3, &mut |history| last = history.clone()).expect("no faults");
    let mut random = Random(11);
    let names: Vec<String> = dir
        .paths()
        .into_iter()
        .filter(|name| !name.starts_with("owner") && name != "lock" && name != "merge")
        .collect();
    assert!(
        names.iter().any(|name| name.starts_with("run-"))
            && names.iter().any(|name| name.starts_with("log-")),
        "{names:?}"
    );
    for name in &names {
        for action in 0..6 {
            for _ in 0..12 {
                let hurt = dir.fork();
                if action == 5 {
                    hurt.lose(name).expect("lose");
                } else {
                    hurt.damage(name, |bytes| damage(bytes, action, &mut random))
                        .expect("damage");
                }
                check_hurt(&hurt, &last, name == "manifest" && action == 5);
            }
        }
    }
}

fn damage(bytes: &mut Vec<u8>, action: u64, random: &mut Random) {
    let at = random.below(bytes.len() as u64) as usize;
    match action {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes.truncate(at),
        2 => bytes[at..].fill(0),
        3 => bytes.extend_from_slice(&[7; 33]),
        _ => {
            let other = random.below(bytes.len() as u64) as usize;
            let (from, to) = (at / 4096 * 4096, other / 4096 * 4096);
            let page: Vec<u8> = bytes[from..(from + 4096).min(bytes.len())].to_vec();
            let end = (to + page.len()).min(bytes.len());
            bytes[to..end].copy_from_slice(&page[..end - to]);
        }
    }
}

/// Checks an index with any damage: no panic, and all answers are true. `lost`: the index may have become an empty one.
fn check_hurt(dir: &SimDir, history: &History, lost: bool) {
    let Ok(mut index) = Strata::open(Arc::new(dir.clone()), options(9, 1 << 20)) else {
        return;
    };
    for number in 0..KEYS {
        let mut found = [None];
        if index.lookup(&[key(number)], &mut found).is_ok() && !(lost && found[0].is_none()) {
            history.check(number, found[0]);
        }
    }
    let mut seen = Vec::new();
    let whole = index.iterate(&mut |key, location| {
        seen.push((key, location));
        Ok(())
    });
    if whole.is_ok() && !lost {
        let found: std::collections::HashMap<_, _> = seen.into_iter().collect();
        (0..KEYS).for_each(|number| history.check(number, found.get(&key(number)).copied()));
    }
    index
        .insert(&[(
            key(1),
            Location {
                container: ContainerId(77),
            },
        )])
        .ok();
    index.checkpoint().ok();
    index.merge_all().ok();
}
