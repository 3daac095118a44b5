//! A full device: it is told before a write is acknowledged, and what makes room goes on (faults of VDO by name).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onefold_io::{Dir, MemDir, Random};
use onefold_volume::conformance::{Caller, request};
use onefold_volume::depot::config::{Backend, EngineKind};
use onefold_volume::depot::{CreateOptions, OpenOptions};
use onefold_volume::front::{Options, WhenFull};
use onefold_volume::{Buffer, Depot, Effort, Error, HeadId, Op};

const CHUNK: u64 = 4096;
const MIB: u64 = 1 << 20;
const ENGINES: [EngineKind; 2] = [EngineKind::Log, EngineKind::Dmdedup(Backend::InRam)];

/// A depot of 16 MiB that holds a volume of 256 MiB.
fn create(engine: EngineKind) -> Arc<dyn Dir> {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let options = CreateOptions {
        engine,
        capacity_bytes: Some(16 * MIB),
        ..CreateOptions::new(256 * MIB, [1; 16], [2; 32])
    };
    Depot::create(&folder, &options).expect("a depot");
    folder
}

fn open(folder: &Arc<dyn Dir>, front: Options) -> (Depot, Caller) {
    let options = OpenOptions {
        front,
        ..OpenOptions::default()
    };
    let depot = Depot::open(Arc::clone(folder), options).expect("a depot");
    let device = Caller(depot.device(HeadId(0)).expect("the volume"));
    (depot, device)
}

fn inline() -> Options {
    Options {
        inline: true,
        ..Options::default()
    }
}

fn content(n: u64) -> Vec<u8> {
    Random(n).bytes(CHUNK as usize)
}

/// Writes different chunks from LBN `first` on until one is refused, and returns how many were taken.
fn fill(device: &Caller, first: u64, seed: u64) -> u64 {
    for n in 0..5000 {
        match device.write((first + n) * CHUNK, &content(seed + n)) {
            Ok(()) => {}
            Err(Error::NoSpace { .. }) => return n,
            Err(error) => panic!("chunk {n}: {error}"),
        }
    }
    panic!("the device is smaller than that");
}

fn check(device: &Caller, first: u64, seed: u64, taken: u64) {
    for n in 0..taken {
        let found = device.read((first + n) * CHUNK, CHUNK).expect("a read");
        assert!(found[..] == content(seed + n)[..], "chunk {n}");
    }
}

/// Acknowledged data is there, whatever was refused; known chunks, zeros, discards and flushes go on for ever.
#[test]
fn full_is_reported_before_the_acknowledgement() {
    for engine in ENGINES {
        for front in [inline(), Options::default()] {
            let folder = create(engine);
            let (depot, device) = open(&folder, front.clone());
            let taken = fill(&device, 0, 1000);
            assert!(taken > 2000, "{engine:?}: {taken} of 4096 chunks");
            assert!(depot.space().full_percent() > 90, "{:?}", depot.space());
            device.flush().expect("a full device flushes");
            for round in 0..1500 {
                let at = (30_000 + round % 7) * CHUNK;
                device
                    .write(at, &content(1000 + round % taken))
                    .expect("a known chunk");
                device.write(at, &vec![0; CHUNK as usize]).expect("zeros");
                device.discard(at, 3 * CHUNK).expect("a discard");
                device.write_zeroes(at, CHUNK).expect("zeroing");
                device.flush().expect("a flush");
            }
            let refused = device.write(40_000 * CHUNK, &content(7));
            assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
            check(&device, 0, 1000, taken);
            assert_eq!(depot.stats().expect("open").front.failure, None);
            drop(device);
            depot.close().expect("all is well");
            let (_depot, device) = open(&folder, front.clone());
            check(&device, 0, 1000, taken);
        }
    }
}

/// The front of a disk with ext4: superblock, one group descriptor, bitmaps, inode table and journal in 40 blocks.
fn ext4_head() -> Vec<u8> {
    let mut head = vec![0; 2 * CHUNK as usize];
    let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
    put(1024 + 0x4, &30_000u32.to_le_bytes());
    put(1024 + 0x18, &2u32.to_le_bytes());
    put(1024 + 0x20, &32_768u32.to_le_bytes());
    put(1024 + 0x28, &96u32.to_le_bytes());
    put(1024 + 0x38, &0xEF53u16.to_le_bytes());
    put(1024 + 0x58, &256u16.to_le_bytes());
    put(1024 + 0xFD, &[1]);
    put(1024 + 0x10C, &[0x0A, 0xF3, 1, 0, 4, 0, 0, 0]);
    put(1024 + 0x10C + 16, &30u16.to_le_bytes());
    put(1024 + 0x10C + 20, &10u32.to_le_bytes());
    put(4096, &2u32.to_le_bytes());
    put(4100, &3u32.to_le_bytes());
    put(4104, &4u32.to_le_bytes());
    head
}

/// A file system without a page for its journal turns read-only, and nobody can delete anything any more.
#[test]
fn full_file_system_deletes_and_trims() {
    let folder = create(EngineKind::Log);
    let (depot, device) = open(&folder, inline());
    device.write(0, &ext4_head()).expect("room");
    let mut random = Random(4);
    for round in 0..10 {
        let taken = fill(&device, 1000, 100_000 * (round + 1));
        assert!(taken > 1500, "round {round}: {taken}");
        // Deleting costs metadata: the journal goes round and round, inodes and bitmaps are written.
        for n in 0..400 {
            let block = 2 + random.below(38);
            device
                .write(block * CHUNK, &random.bytes(CHUNK as usize))
                .unwrap_or_else(|error| panic!("round {round}, metadata {n}: {error}"));
            if n % 5 == 0 {
                device.flush().expect("a flush");
            }
        }
        let refused = device.write(900 * CHUNK, &content(round));
        assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
        device.discard(1000 * CHUNK, taken * CHUNK).expect("a trim");
    }
    assert_eq!(depot.stats().expect("open").front.failure, None);
}

/// Writes that need a page wait for one, hold up nobody else, and fail when their time is up.
#[test]
fn writes_wait_for_space_where_that_is_wanted() {
    for inline in [true, false] {
        let now = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&now);
        let folder = create(EngineKind::Log);
        let options = Options {
            inline,
            when_full: WhenFull::Wait(Duration::from_secs(60)),
            clock: Some(Arc::new(move || clock.load(Ordering::Relaxed))),
            ..Options::default()
        };
        let (depot, device) = open(&folder, options);
        let write = |lbn: u64, n: u64| {
            let buffer = Buffer::copy_of(&content(n));
            let (request, waiting) = request(Op::Write, lbn * CHUNK, CHUNK, buffer, false);
            device.submit(vec![(request, waiting)]).remove(0)
        };
        // The clock stands still: whatever waits, waits.
        let waiting: Vec<_> = (0..4200).map(|n| write(n, 5000 + n)).collect();
        device.flush().expect("a flush waits for nobody");
        let zeros = vec![0; CHUNK as usize];
        device.write(60_000 * CHUNK, &zeros).expect("zeros");
        // A later write to the place of one that may wait.
        device.write(4199 * CHUNK, &zeros).expect("zeros");
        device.discard(0, 1000 * CHUNK).expect("a discard");
        if inline {
            while depot.step() {}
        }
        let mut answers = waiting.into_iter().map(|waiting| waiting.wait());
        assert!(answers.by_ref().take(4199).all(|answer| answer.is_ok()));
        // The last one found a page before the zeros came, or fails: it never hides them.
        match answers.next().expect("the last one") {
            Ok(_) | Err(Error::NoSpace { .. }) => {}
            Err(error) => panic!("inline {inline}: {error}"),
        }
        let found = device.read(4199 * CHUNK, CHUNK).expect("a read");
        assert!(found[..] == zeros[..], "the later write wins");
        for n in [1000, 3000, 4198] {
            let found = device.read(n * CHUNK, CHUNK).expect("a read");
            assert!(found[..] == content(5000 + n)[..], "chunk {n}");
        }
        let late: Vec<_> = (0..4200).map(|n| write(10_000 + n, 50_000 + n)).collect();
        device.flush().expect("a flush");
        now.store(61_000_000_000, Ordering::Relaxed);
        if inline {
            while depot.step() {}
        }
        let failed = late.into_iter().filter_map(|late| late.wait().err());
        let failed: Vec<_> = failed.collect();
        assert!(failed.len() > 100);
        let is_full = |error: &Error| matches!(error, Error::NoSpace { .. });
        assert!(failed.iter().all(is_full));
        assert_eq!(depot.stats().expect("open").front.failure, None);
    }
}

/// Random overwriting at 85 % full: no write is refused, and none waits for more than a part of the garbage.
#[test]
fn garbage_is_collected_at_the_pace_of_the_writes() {
    let folder = create(EngineKind::Log);
    let (depot, device) = open(&folder, inline());
    let capacity = depot.space().usable();
    let live = capacity * 80 / 100;
    let mut random = Random(11);
    for n in 0..live {
        device.write(n * CHUNK, &content(n)).expect("room");
    }
    device.flush().expect("a flush");
    let copied = |depot: &Depot| {
        let stats = depot.stats().expect("open").engine;
        let named = |name| stats.counters.iter().find(|(of, _)| *of == name);
        named("pages copied").expect("it is counted").1
    };
    let mut most = 0;
    let mut before = copied(&depot);
    for n in 0..live * 3 {
        let lbn = random.below(live);
        device
            .write(lbn * CHUNK, &content(1_000_000 + n))
            .unwrap_or_else(|error| panic!("overwrite {n}: {error}"));
        if n % 8 == 0 {
            while depot.step() {}
            let now = copied(&depot);
            most = most.max(now - before);
            before = now;
        }
    }
    let percent = depot.space().full_percent();
    assert!((75..90).contains(&percent), "{percent} % are full");
    assert!(before > live, "something was copied: {before}");
    assert!(most < capacity / 4, "{most} pages for one write");
    let done = depot.collect(Effort::Whole).expect("a collection");
    assert!(done.pages_freed > 0, "some garbage was left to gather");
}

/// New chunks count as what they are before anybody looks for garbage.
#[test]
fn fullness_counts_what_was_just_written() {
    let folder = create(EngineKind::Log);
    let (depot, device) = open(&folder, inline());
    for n in 0..depot.space().usable() / 2 {
        device.write(n * CHUNK, &content(n)).expect("room");
    }
    device.flush().expect("a flush");
    for _ in 0..2 {
        let percent = depot.space().full_percent();
        assert!((45..65).contains(&percent), "{percent} % are full");
        depot.collect(Effort::Whole).expect("a collection");
    }
}
