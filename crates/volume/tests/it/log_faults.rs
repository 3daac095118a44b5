//! Faults of VDO, ZFS and SDFS that engine `log` must not have, each as a test named for it.

use std::sync::Arc;

use onefold_io::{Dir, MemDir, Random};
use onefold_volume::depot::CreateOptions;
use onefold_volume::depot::config::EngineKind;
use onefold_volume::{Depot, Effort, Error};

use crate::opened::{CHUNK, content, open};

const MIB: u64 = 1 << 20;
/// Where zones begin in the data file, and how long they are.
const HEAD_BYTES: u64 = 64 << 10;
const ZONE_BYTES: u64 = 256 << 10;

fn create(volume_bytes: u64, capacity_bytes: u64) -> Arc<dyn Dir> {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let options = CreateOptions {
        engine: EngineKind::Log,
        capacity_bytes: Some(capacity_bytes),
        ..CreateOptions::new(volume_bytes, [1; 16], [2; 32])
    };
    Depot::create(&folder, &options).expect("a depot");
    folder
}

fn counter(depot: &Depot, name: &str) -> u64 {
    let stats = depot.stats().expect("open").engine;
    let found = stats.counters.iter().find(|(known, _)| *known == name);
    found.expect("it is counted").1
}

/// VDO's index forgets what is older than its window.
#[test]
fn old_duplicates_are_found() {
    let folder = create(64 * MIB, 64 * MIB);
    let (depot, device) = open(&folder, None);
    for n in 0..8000 {
        device.write(n * CHUNK, &content(n)).expect("room");
    }
    device.flush().expect("a flush");
    let before = depot.stats().expect("open").engine.unique_writes;
    for n in 0..100 {
        device.write((9000 + n) * CHUNK, &content(n)).expect("room");
    }
    device.flush().expect("a flush");
    let stats = depot.stats().expect("open").engine;
    assert_eq!(stats.unique_writes, before);
}

/// kvdo #25: after some crashes a volume had to be rebuilt by hand.
#[test]
fn opens_by_itself_after_any_crash() {
    let folder = create(32 * MIB, 20 * MIB);
    let mut random = Random(25);
    let mut newest = vec![0; 1000];
    for round in 1..30 {
        let (depot, device) = open(&folder, None);
        for (lbn, n) in newest.iter().enumerate().filter(|(_, n)| **n > 0) {
            let found = device.read(lbn as u64 * CHUNK, CHUNK).expect("a read");
            assert!(found[..] == content(*n)[..], "round {round}, chunk {lbn}");
        }
        for n in 0..random.below(400) {
            let lbn = random.below(1000);
            newest[lbn as usize] = round * 1000 + n;
            device
                .write(lbn * CHUNK, &content(newest[lbn as usize]))
                .expect("room");
        }
        device.flush().expect("a flush");
        // The reset button: nothing is closed.
        drop(device);
        drop(depot);
    }
}

/// kvdo #88: a page that the device had written to another place was taken for what belongs there.
#[test]
fn page_of_another_zone_is_damage() {
    let folder = create(32 * MIB, 32 * MIB);
    let (depot, device) = open(&folder, None);
    for n in 0..200 {
        device.write(n * CHUNK, &content(n)).expect("room");
    }
    drop(device);
    depot.close().expect("all is well");
    // All of the second zone is written over the first one, as whole and as proved as it is.
    let data = folder.open_write("data").expect("the data");
    let mut zone = vec![0; ZONE_BYTES as usize];
    data.read_at(&mut zone, HEAD_BYTES + ZONE_BYTES)
        .expect("RAM");
    data.write_at(&zone, HEAD_BYTES).expect("RAM");
    let (_depot, device) = open(&folder, None);
    let mut damaged = 0;
    for n in 0..200 {
        match device.read(n * CHUNK, CHUNK) {
            Ok(found) => assert!(found[..] == content(n)[..], "chunk {n}"),
            Err(Error::Damaged { .. }) => damaged += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(damaged > 40, "{damaged}");
}

#[test]
fn smallest_depot_64_mib() {
    let folder = create(64 * MIB, 64 * MIB);
    let (depot, device) = open(&folder, None);
    let mut taken = 0;
    while device.write(taken * CHUNK, &content(taken)).is_ok() {
        taken += 1;
    }
    let share = taken * CHUNK * 100 / (64 * MIB);
    assert!(share >= 85, "{share} % can be used");
    let ram: u64 = depot
        .stats()
        .expect("open")
        .engine
        .ram_bytes
        .iter()
        .map(|(_, bytes)| bytes)
        .sum();
    assert!(ram < 64 * MIB, "{ram} bytes of RAM");
}

/// ZFS #3725: a discard of all of a volume took a record for each block.
#[test]
fn discard_of_a_tebibyte_is_one_entry() {
    let folder = create(MIB * MIB, 32 * MIB);
    let (depot, device) = open(&folder, None);
    for n in 0..100 {
        device
            .write(n * (MIB * MIB / 100), &content(n))
            .expect("room");
    }
    device.flush().expect("a flush");
    let before = counter(&depot, "group pages");
    device.discard(0, MIB * MIB).expect("a discard");
    device.flush().expect("a flush");
    assert_eq!(counter(&depot, "group pages"), before + 1);
    assert_eq!(depot.stats().expect("open").engine.mapped_lbns, 0);
}

/// ZFS #17982, SDFS #88: each round of writing and deleting left a little behind.
#[test]
fn space_returns() {
    let folder = create(64 * MIB, 24 * MIB);
    let mut free = Vec::new();
    for round in 0..6 {
        let (depot, device) = open(&folder, None);
        for n in 0..3000 {
            let unique = content(round * 10_000 + n);
            device.write(n * CHUNK, &unique).expect("room");
        }
        device.flush().expect("a flush");
        device.discard(0, 64 * MIB).expect("a discard");
        device.flush().expect("a flush");
        depot.collect(Effort::Whole).expect("a collection");
        free.push(depot.space().free);
        drop(device);
        depot.close().expect("all is well");
    }
    let (first, last) = (free[0], free[free.len() - 1]);
    assert!(last + 64 >= first, "{free:?}");
}
