//! Faults of other block devices in what they take: RAM for deletions, an index that never shrinks, an index whose RAM
//! is fixed for ever, and a reset button that costs the volume.

use std::sync::Arc;

use onefold_io::{Dir, MemDir, SimDir};
use onefold_volume::depot::CreateOptions;
use onefold_volume::depot::config::EngineKind;
use onefold_volume::{Depot, Effort, Error};

use crate::opened::{CHUNK, content, open};

const MIB: u64 = 1 << 20;

fn create(folder: &Arc<dyn Dir>, ram_bytes: Option<u64>) -> Result<(), Error> {
    let options = CreateOptions {
        engine: EngineKind::Log,
        capacity_bytes: Some(64 * MIB),
        ram_bytes,
        ..CreateOptions::new(40 * MIB, [1; 16], [2; 32])
    };
    Depot::create(folder, &options).map(drop)
}

/// The least RAM that such a depot takes, in whole MiB: a refusal says so.
fn least_ram() -> u64 {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let refused = create(&folder, Some(4 * MIB)).expect_err("too little");
    let said = refused.to_string();
    let least = said.rsplit(' ').nth(1).and_then(|word| word.parse().ok());
    let least: u64 = least.unwrap_or_else(|| panic!("it says how many MiB are needed: {said}"));
    least * MIB
}

fn unique_writes(depot: &Depot) -> u64 {
    depot.stats().expect("open").engine.unique_writes
}

/// vdo #27: the size of the index in RAM was chosen when a volume was made.
#[test]
fn index_ram_changes_without_reformatting() {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    create(&folder, None).expect("a depot");
    let least = least_ram();
    for (round, ram_bytes) in (0..).zip([None, Some(least), Some(256 * MIB), Some(least), None]) {
        let (depot, device) = open(&folder, ram_bytes);
        for number in 0..1500 {
            let lbn = round * 1500 + number;
            let found = |lbn: u64| device.read(lbn * CHUNK, CHUNK).expect("a read");
            if round > 0 {
                let before = lbn - 1500;
                assert!(found(before)[..] == content(number)[..], "round {round}");
            }
            device.write(lbn * CHUNK, &content(number)).expect("room");
        }
        device.flush().expect("a flush");
        let expected = if round == 0 { 1500 } else { 0 };
        assert_eq!(
            unique_writes(&depot),
            expected,
            "{ram_bytes:?}: all is known"
        );
        drop(device);
        depot.close().expect("all is well");
    }
}

/// ZFS #16697: deleting read a table that did not fit in RAM.
#[test]
fn deleting_needs_no_ram() {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let least = least_ram();
    create(&folder, Some(least)).expect("that is enough");
    let (depot, device) = open(&folder, Some(least));
    let ram = |depot: &Depot| -> u64 {
        let parts = depot.stats().expect("open").engine.ram_bytes;
        parts.iter().map(|(_, bytes)| bytes).sum()
    };
    let chunks = 40 * MIB / CHUNK;
    let scattered = |n: u64| n * 7919 % chunks;
    for n in 0..chunks {
        let lbn = scattered(n);
        device.write(lbn * CHUNK, &content(lbn)).expect("room");
    }
    device.flush().expect("a flush");
    let most = ram(&depot).max(least);
    let index_reads = |depot: &Depot| {
        let counters = depot.stats().expect("open").engine.counters;
        let found = counters.iter().find(|(name, _)| *name == "index reads");
        found.expect("they are counted").1
    };
    let before = index_reads(&depot);
    for n in 0..chunks {
        let lbn = scattered(scattered(n));
        device.discard(lbn * CHUNK, CHUNK).expect("a discard");
        if n % 500 == 0 {
            assert!(ram(&depot) <= most, "{} of {most} bytes", ram(&depot));
        }
    }
    device.flush().expect("a flush");
    assert_eq!(index_reads(&depot), before, "no hash is looked up");
    depot.collect(Effort::Whole).expect("a collection");
    assert_eq!(depot.stats().expect("open").engine.mapped_lbns, 0);
    assert!(ram(&depot) <= most, "{} of {most} bytes", ram(&depot));
}

/// Bytes of the hash index's files.
fn index_bytes(device: &SimDir) -> u64 {
    let files = device.paths().into_iter();
    let bytes = files.filter(|path| path.starts_with("index/")).map(|path| {
        let mut bytes = 0;
        let look = |found: &mut Vec<u8>| bytes = found.len() as u64;
        device.fork().damage(&path, look).expect("it is there");
        bytes
    });
    bytes.sum()
}

/// ZFS #6947: the table of hashes kept its size when everything was deleted. Here merges leave out what was retired: an
/// index of a depot that is emptied and filled again and again takes what one filling takes, or some more.
#[test]
fn index_shrinks() {
    let device = SimDir::new(6);
    let folder: Arc<dyn Dir> = Arc::new(device.clone());
    create(&folder, None).expect("a depot");
    let (mut entries, mut bytes) = (Vec::new(), Vec::new());
    for round in 1..=24 {
        let (depot, caller) = open(&folder, None);
        for lbn in 0..8000 {
            let unique = content(round * 100_000 + lbn);
            caller.write(lbn * CHUNK, &unique).expect("room");
        }
        caller.flush().expect("a flush");
        caller.discard(0, 40 * MIB).expect("a discard");
        caller.flush().expect("a flush");
        depot.collect(Effort::Whole).expect("a collection");
        entries.push(depot.stats().expect("open").engine.hash_entries);
        drop(caller);
        depot.close().expect("all is well");
        bytes.push(index_bytes(&device));
    }
    // Four runs of a size are merged, so the index grows and shrinks by turns, and never beyond what the first turns took.
    let most = |all: &[u64]| all.iter().max().copied().expect("24 rounds");
    assert!(most(&entries) < 4 * 8000, "of 8,000 at once: {entries:?}");
    let (first, later) = bytes.split_at(12);
    assert!(most(later) <= most(first) * 11 / 10, "{bytes:?}");
}

/// SDFS #73: after the reset button the volume was gone.
#[test]
fn reset_button() {
    let device = SimDir::new(73);
    let folder: Arc<dyn Dir> = Arc::new(device.clone());
    create(&folder, None).expect("a depot");
    device.keep_history();
    let mut moments = vec![(0, 0)];
    for round in 0..6 {
        let (depot, caller) = open(&folder, None);
        for lbn in round * 60..(round + 1) * 60 {
            caller.write(lbn * CHUNK, &content(lbn)).expect("room");
        }
        caller.flush().expect("a flush");
        moments.push((device.counts().points, (round + 1) * 60));
        drop(caller);
        match round % 2 {
            0 => drop(depot),
            _ => depot.close().expect("all is well"),
        }
    }
    let points = device.counts().points;
    assert!(points > 30, "{points}");
    for point in 0..points {
        let image = device.crash_image_at(point, point % 5);
        let image: Arc<dyn Dir> = Arc::new(image.expect("history was kept"));
        let (depot, caller) = open(&image, None);
        let flushed = moments.iter().rev().find(|(end, _)| *end <= point);
        for lbn in 0..flushed.map_or(0, |(_, chunks)| *chunks) {
            let found = caller.read(lbn * CHUNK, CHUNK).expect("a read");
            assert!(found[..] == content(lbn)[..], "point {point}, chunk {lbn}");
        }
        let report = depot.check(true).expect("a check");
        assert!(report.findings.is_empty(), "point {point}: {report:?}");
        assert_eq!(report.chunks_damaged, 0, "point {point}: {report:?}");
        caller.write(5000 * CHUNK, &content(1)).expect("room");
        caller.flush().expect("a flush");
    }
}
