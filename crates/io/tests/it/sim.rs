//! The simulator: synced data survives every crash, other data may be lost, and the tests see both.

use std::collections::BTreeSet;

use onefold_io::{
    Dir, ErrorKind, LockKind,
    sim::{Faults, SimDir, When},
};

use proptest::prelude::*;

use crate::conformance::contents;

const SEEDS: std::ops::Range<u64> = 0..200;

fn read(dir: &dyn Dir, name: &str) -> Option<Vec<u8>> {
    dir.open(name).ok().map(|disk| contents(&*disk))
}

/// Creates a disk `name` whose content and name are durable.
fn put_durably(dir: &dyn Dir, name: &str, bytes: &[u8]) {
    let disk = dir.create(name).unwrap();
    disk.write_at(bytes, 0).unwrap();
    disk.sync().unwrap();
    dir.sync().unwrap();
}

/// All contents of disk `name` in crash images of `dir`; `None` where it is missing.
fn outcomes(dir: &SimDir, name: &str) -> BTreeSet<Option<Vec<u8>>> {
    SEEDS
        .map(|seed| read(&dir.crash_image(seed), name))
        .collect()
}

#[test]
fn what_is_synced_survives_and_nothing_else_is_promised() {
    let dir = SimDir::new(0);
    put_durably(&dir, "a", &[1; 2000]);
    assert_eq!(outcomes(&dir, "a"), [Some(vec![1; 2000])].into());
    dir.open_write("a")
        .unwrap()
        .write_at(&[2; 2000], 0)
        .unwrap();
    let found = outcomes(&dir, "a");
    assert!(found.contains(&Some(vec![1; 2000])), "lost");
    assert!(found.contains(&Some(vec![2; 2000])), "kept");
    assert!(
        found.len() > 4,
        "torn in several ways, not just {}",
        found.len()
    );
    for bytes in found.into_iter().flatten() {
        for sector in bytes.chunks(512) {
            assert!(
                sector.iter().all(|byte| *byte == sector[0]),
                "no sector is torn within"
            );
        }
    }
    dir.open_write("a").unwrap().sync().unwrap();
    assert_eq!(outcomes(&dir, "a"), [Some(vec![2; 2000])].into());
}

#[test]
fn writes_are_reordered() {
    let dir = SimDir::new(0);
    put_durably(&dir, "a", &[0; 1024]);
    let disk = dir.open_write("a").unwrap();
    disk.write_at(&[1; 512], 0).unwrap();
    disk.write_at(&[1; 512], 512).unwrap();
    let found = outcomes(&dir, "a");
    let second_without_first = [vec![0; 512], vec![1; 512]].concat();
    assert!(found.contains(&Some(second_without_first)));
    assert_eq!(found.len(), 4);
}

#[test]
fn a_name_is_durable_only_after_its_folder_is_synced() {
    let dir = SimDir::new(0);
    let disk = dir.create("a").unwrap();
    disk.write_at(b"content", 0).unwrap();
    disk.sync().unwrap();
    assert_eq!(
        outcomes(&dir, "a"),
        [None, Some(b"content".to_vec())].into()
    );
    dir.sync().unwrap();
    assert_eq!(outcomes(&dir, "a"), [Some(b"content".to_vec())].into());
    dir.remove("a").unwrap();
    assert_eq!(
        outcomes(&dir, "a"),
        [None, Some(b"content".to_vec())].into()
    );
    dir.sync().unwrap();
    assert_eq!(outcomes(&dir, "a"), [None].into());
}

#[test]
fn a_rename_may_survive_without_the_content() {
    let dir = SimDir::new(0);
    dir.create("tmp").unwrap().write_at(&[7; 100], 0).unwrap();
    dir.rename("tmp", "a").unwrap();
    dir.sync().unwrap();
    let found = outcomes(&dir, "a");
    assert!(!found.contains(&None) && found.contains(&Some(vec![7; 100])));
    assert!(found.contains(&Some(vec![])) && found.contains(&Some(vec![0; 100])));
    let garbage = |bytes: &Vec<u8>| bytes.len() == 100 && *bytes != [7; 100] && *bytes != [0; 100];
    assert!(
        found.iter().flatten().any(garbage),
        "bytes of whoever was there before"
    );
}

#[test]
fn a_replaced_disk_is_the_old_one_or_the_new_one() {
    let dir = SimDir::new(0);
    put_durably(&dir, "a", b"old");
    put_durably(&dir, "tmp", b"new");
    dir.rename("tmp", "a").unwrap();
    assert_eq!(
        outcomes(&dir, "a"),
        [Some(b"old".to_vec()), Some(b"new".to_vec())].into()
    );
}

#[test]
fn a_folder_is_durable_only_after_its_parent_is_synced() {
    let dir = SimDir::new(0);
    let sub = dir.subdir("sub").unwrap();
    put_durably(&*sub, "a", b"content");
    let found: BTreeSet<bool> = SEEDS
        .map(|seed| dir.crash_image(seed).open_subdir("sub").is_ok())
        .collect();
    assert_eq!(found, [false, true].into());
    dir.sync().unwrap();
    for seed in SEEDS {
        let sub = dir.crash_image(seed).open_subdir("sub").unwrap();
        assert_eq!(read(&*sub, "a").as_deref(), Some(&b"content"[..]));
    }
}

#[test]
fn changes_of_folders_survive_out_of_order() {
    let dir = SimDir::new(0);
    dir.create("first").unwrap();
    dir.create("second").unwrap();
    let names = |seed| dir.crash_image(seed).paths().join(" ");
    let found: BTreeSet<String> = SEEDS.map(names).collect();
    let all = ["", "first", "first second", "second"];
    assert_eq!(found, all.map(String::from).into());
}

#[test]
fn seed_0_loses_and_seed_1_keeps_all_that_was_pending() {
    let dir = SimDir::new(0);
    put_durably(&dir, "a", b"old");
    dir.open_write("a").unwrap().write_at(b"new", 0).unwrap();
    dir.create("b").unwrap();
    assert_eq!(
        (
            read(&dir.crash_image(0), "a").unwrap(),
            dir.crash_image(0).paths().len()
        ),
        (b"old".to_vec(), 1)
    );
    assert_eq!(
        (
            read(&dir.crash_image(1), "a").unwrap(),
            dir.crash_image(1).paths().len()
        ),
        (b"new".to_vec(), 2)
    );
}

/// Work that uses every operation; returns how many of its steps were acknowledged.
fn work(dir: &dyn Dir) -> usize {
    let step = |i: usize| -> onefold_io::Result<()> {
        let sub = dir.subdir(&format!("d{}", i % 3))?;
        dir.sync()?;
        let disk = sub.create("tmp").or_else(|_| sub.open_write("tmp"))?;
        disk.set_len(0)?;
        disk.write_at(&vec![i as u8; 700 * i], 0)?;
        disk.sync()?;
        sub.rename("tmp", &format!("f{i}"))?;
        sub.sync()?;
        Ok(())
    };
    (0..20).take_while(|i| step(*i).is_ok()).count()
}

fn check_work(image: &SimDir, acknowledged: usize, when: &str) {
    for i in 0..acknowledged {
        let sub = image.open_subdir(&format!("d{}", i % 3)).unwrap();
        let bytes = read(&*sub, &format!("f{i}"));
        assert_eq!(bytes, Some(vec![i as u8; 700 * i]), "step {i}, {when}");
    }
}

#[test]
fn crashes_at_every_point_lose_nothing_that_was_acknowledged() {
    let whole = SimDir::new(0);
    whole.keep_history();
    assert_eq!(work(&whole), 20);
    let points = whole.counts().points;
    assert!(points > 130, "{points}");
    for point in 0..points {
        let dir = SimDir::new(0);
        dir.inject(Faults {
            crash_at: Some(point),
            ..Faults::default()
        });
        let acknowledged = work(&dir);
        assert!(acknowledged < 20 && dir.crashed());
        let error = dir.list().unwrap_err();
        assert!(error.to_string().contains("crashed"), "{error}");
        for seed in 0..8 {
            let image = dir.crash_image(seed);
            check_work(&image, acknowledged, &format!("point {point}, seed {seed}"));
            let same = whole.crash_image_at(point, seed).unwrap();
            assert_eq!(
                dump(&image),
                dump(&same),
                "history tells the same: point {point}, seed {seed}"
            );
            assert_eq!(work(&image), 20, "an image is usable");
        }
    }
    assert!(whole.crash_image_at(points, 0).is_none());
}

fn dump(dir: &SimDir) -> Vec<(String, Vec<u8>)> {
    let mut dumped = Vec::new();
    for path in dir.paths() {
        dir.damage(&path, |bytes| dumped.push((path.clone(), bytes.clone())))
            .unwrap();
    }
    dumped
}

#[test]
fn the_same_seed_gives_the_same_image() {
    let dir = SimDir::new(0);
    dir.inject(Faults {
        crash_at: Some(60),
        ..Faults::default()
    });
    work(&dir);
    for seed in 0..50 {
        assert_eq!(dump(&dir.crash_image(seed)), dump(&dir.crash_image(seed)));
    }
}

#[test]
fn a_crash_tears_the_write_at_its_point() {
    let mut found = BTreeSet::new();
    for seed in SEEDS {
        let dir = SimDir::new(0);
        put_durably(&dir, "a", &[0; 4096]);
        dir.inject(Faults {
            crash_at: Some(0),
            ..Faults::default()
        });
        assert!(
            dir.open_write("a")
                .unwrap()
                .write_at(&[1; 4096], 0)
                .is_err()
        );
        assert!(dir.open("a").is_err(), "nothing works after a crash");
        let bytes = read(&dir.crash_image(seed), "a").unwrap();
        found.insert(bytes.iter().filter(|byte| **byte == 1).count());
    }
    assert!(
        found.contains(&0) && found.contains(&4096) && found.len() > 5,
        "{found:?}"
    );
}

#[test]
fn a_full_device_says_so_and_a_removal_frees_it() {
    let dir = SimDir::new(0);
    dir.inject(Faults {
        capacity_bytes: Some(10_000),
        ..Faults::default()
    });
    let disk = dir.create("a").unwrap();
    disk.write_at(&[1; 9000], 0).unwrap();
    assert_eq!(
        disk.write_at(&[1; 2000], 9000).unwrap_err().kind,
        ErrorKind::NoSpace
    );
    assert_eq!(disk.set_len(10_001).unwrap_err().kind, ErrorKind::NoSpace);
    disk.write_at(&[2; 9000], 0).unwrap();
    dir.remove("a").unwrap();
    dir.create("b").unwrap().write_at(&[1; 10_000], 0).unwrap();
}

#[test]
fn no_space_at_every_operation_that_needs_some() {
    let dir = SimDir::new(0);
    assert_eq!(work(&dir), 20);
    let total = dir.counts().space;
    for number in 0..total {
        let dir = SimDir::new(0);
        dir.inject(Faults {
            no_space: When::From(number),
            ..Faults::default()
        });
        let acknowledged = work(&dir);
        assert!(acknowledged < 20);
        check_work(
            &dir.crash_image(0),
            acknowledged,
            &format!("no space from {number}"),
        );
        dir.inject(Faults::default());
        assert_eq!(work(&dir), 20, "space came back");
    }
}

#[test]
fn reads_and_writes_fail_once_or_from_then_on() {
    let dir = SimDir::new(0);
    put_durably(&dir, "a", &[5; 3000]);
    let disk = dir.open_write("a").unwrap();
    dir.inject(Faults {
        read_error: When::Once(1),
        write_error: When::From(1),
        ..Faults::default()
    });
    let reads: Vec<bool> = (0..3)
        .map(|_| disk.read_at(&mut [0; 10], 0).is_ok())
        .collect();
    assert_eq!(reads, [true, false, true]);
    let writes: Vec<bool> = (0..3).map(|_| disk.write_at(&[5; 10], 0).is_ok()).collect();
    assert_eq!(writes, [true, false, false]);
    let error = disk.write_at(&[5; 10], 77).unwrap_err();
    assert_eq!((error.kind, error.offset), (ErrorKind::Medium, Some(77)));
}

#[test]
fn what_a_failed_sync_forgot_no_later_sync_brings_back() {
    let dir = SimDir::new(0);
    put_durably(&dir, "a", &[0; 512]);
    let disk = dir.open_write("a").unwrap();
    disk.write_at(&[1; 512], 0).unwrap();
    dir.inject(Faults {
        sync_error: When::Once(0),
        ..Faults::default()
    });
    assert!(disk.sync().is_err());
    disk.write_at(&[2; 512], 512).unwrap();
    disk.sync().unwrap();
    let lost = [vec![0; 512], vec![2; 512]].concat();
    let kept = [vec![1; 512], vec![2; 512]].concat();
    assert_eq!(contents(&*disk), kept, "still in the page cache");
    assert_eq!(outcomes(&dir, "a"), [Some(lost), Some(kept)].into());
}

#[test]
fn bits_rot_on_disk_and_on_the_way() {
    let dir = SimDir::new(0);
    let sub = dir.subdir("sub").unwrap();
    dir.sync().unwrap();
    put_durably(&*sub, "a", &[0; 100]);
    dir.damage("sub/a", |bytes| bytes[40] ^= 8).unwrap();
    assert_eq!(read(&*sub, "a").unwrap()[40], 8);
    let image = dir.crash_image(0).open_subdir("sub").unwrap();
    assert_eq!(read(&*image, "a").unwrap()[40], 8, "damage is durable");
    dir.inject(Faults {
        flip_read: When::Once(0),
        ..Faults::default()
    });
    let ones = |bytes: Vec<u8>| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
    assert_eq!(
        ones(read(&*sub, "a").unwrap()).abs_diff(1),
        1,
        "one bit more or less"
    );
    assert_eq!(ones(read(&*sub, "a").unwrap()), 1, "on the way only");
    dir.lose("sub/a").unwrap();
    assert!(read(&*sub, "a").is_none() && dir.crash_image(0).paths().is_empty());
    let gone = dir.lose("sub/a").unwrap_err();
    assert_eq!((gone.op, gone.kind), ("lose", ErrorKind::NotFound));
    assert_eq!(dir.spoil("sub/a", 0..1).unwrap_err().op, "spoil");
}

#[test]
fn locks_conflict_across_clones_and_are_free_after_a_crash() {
    let dir = SimDir::new(0);
    let held = dir.lock("l", LockKind::Exclusive).unwrap();
    dir.sync().unwrap();
    assert!(held.is_some() && dir.clone().lock("l", LockKind::Shared).unwrap().is_none());
    dir.crash();
    assert!(
        dir.crash_image(3)
            .lock("l", LockKind::Exclusive)
            .unwrap()
            .is_some()
    );
}

#[test]
fn a_fork_goes_its_own_way() {
    let dir = SimDir::new(0);
    put_durably(&dir, "a", b"one");
    let fork = dir.fork();
    dir.open_write("a").unwrap().write_at(b"two", 0).unwrap();
    fork.create("b").unwrap();
    assert_eq!(read(&fork, "a").unwrap(), b"one");
    assert_eq!(dir.paths(), ["a"]);
}

#[test]
fn threads_share_a_device() {
    let dir = SimDir::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let dir = &dir;
            scope.spawn(move || {
                for i in 0..100 {
                    let name = format!("{thread}-{i}");
                    put_durably(dir, &name, name.as_bytes());
                    if i % 2 == 0 {
                        dir.remove(&name).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(dir.list().unwrap().len(), 200);
}

/// The bytes that a crash may leave at each offset of a disk.
#[derive(Clone, Default)]
struct Possible {
    durable: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
}

impl Possible {
    fn live(&self) -> Vec<u8> {
        let mut live = self.durable.clone();
        for (at, bytes) in &self.pending {
            live.resize(live.len().max(at + bytes.len()), 0);
            live[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        live
    }

    fn check(&self, found: &[u8]) {
        let longest = self.live().len();
        assert!((self.durable.len()..=longest).contains(&found.len()));
        for (i, byte) in self.durable.iter().enumerate() {
            let pending = |(at, bytes): &(usize, Vec<u8>)| {
                i.checked_sub(*at).and_then(|i| bytes.get(i).copied())
            };
            let possible = found[i] == *byte
                || self
                    .pending
                    .iter()
                    .filter_map(pending)
                    .any(|b| b == found[i]);
            assert!(possible, "byte {i} is {}", found[i]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40 * crate::scale::scale() as u32))]
    /// Each step writes `len` bytes of `byte` at `at` of one of three disks, and may sync it.
    #[test]
    fn a_crash_leaves_each_byte_as_it_was_or_as_it_was_written(
        steps in proptest::collection::vec((0..3usize, 0..3000usize, 1..3000usize, any::<u8>(), proptest::bool::weighted(0.3)), 1..25),
        seed in any::<u64>(),
    ) {
        let dir = SimDir::new(seed);
        let names = ["a", "b", "c"];
        let disks = names.map(|name| dir.create(name).unwrap());
        dir.sync().unwrap();
        let mut twins = [(); 3].map(|()| Possible::default());
        for (i, at, len, byte, sync) in steps {
            disks[i].write_at(&vec![byte; len], at as u64).unwrap();
            twins[i].pending.push((at, vec![byte; len]));
            if sync {
                disks[i].sync().unwrap();
                twins[i] = Possible { durable: twins[i].live(), pending: Vec::new() };
            }
        }
        for (name, twin) in names.iter().zip(&twins) {
            twin.check(&read(&dir.crash_image(seed), name).unwrap());
            prop_assert_eq!(&read(&dir.crash_image(0), name).unwrap(), &twin.durable);
            prop_assert_eq!(read(&dir.crash_image(1), name).unwrap(), twin.live());
        }
    }
}
