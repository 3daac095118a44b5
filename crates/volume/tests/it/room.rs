//! A sparse data file on a file system that is full before the volume is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_io::{Dir, Disk, Error as IoError, ErrorKind, MemDir, MemDisk, Random};
use onefold_volume::conformance::Caller;
use onefold_volume::depot::config::EngineKind;
use onefold_volume::depot::{CreateOptions, OpenOptions};
use onefold_volume::dmdedup::{DataArea, Dmdedup};
use onefold_volume::front::{Front, Options};
use onefold_volume::inram::InRam;
use onefold_volume::{Depot, Effort, Error, HeadId};
use parking_lot::Mutex;

const CHUNK: u64 = 65_536;

/// A sparse file: bytes get room when they are allocated or written, as long as there is some.
struct SparseFile {
    disk: MemDisk,
    /// Which chunks have room.
    room: Mutex<Vec<bool>>,
    left: AtomicU64,
    /// Requests for room that were refused.
    refused: AtomicU64,
}

impl SparseFile {
    /// Nothing has room yet, and the host has some for `left` chunks.
    fn new(chunks: u64, left: u64) -> Arc<Self> {
        let disk = Self {
            disk: MemDisk::new(),
            room: Mutex::new(vec![false; chunks as usize]),
            left: AtomicU64::new(left),
            refused: AtomicU64::new(0),
        };
        disk.set_len(chunks * CHUNK).expect("RAM");
        Arc::new(disk)
    }

    fn give_back(&self, offset: u64, len: u64) {
        let mut room = self.room.lock();
        for at in offset.div_ceil(CHUNK)..(offset + len) / CHUNK {
            if std::mem::take(&mut room[at as usize]) {
                self.left.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn take(&self, offset: u64, len: u64) -> onefold_io::Result<()> {
        let mut room = self.room.lock();
        for at in offset / CHUNK..(offset + len).div_ceil(CHUNK) {
            let has_room = &mut room[at as usize];
            if !*has_room {
                if self.left.load(Ordering::Relaxed) == 0 {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    return Err(IoError::new(
                        "write",
                        "data",
                        ErrorKind::NoSpace,
                        "no space left",
                    ));
                }
                self.left.fetch_sub(1, Ordering::Relaxed);
                *has_room = true;
            }
        }
        Ok(())
    }
}

impl Disk for SparseFile {
    fn len(&self) -> onefold_io::Result<u64> {
        self.disk.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> onefold_io::Result<()> {
        self.disk.read_at(buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> onefold_io::Result<()> {
        self.take(offset, data.len() as u64)?;
        self.disk.write_at(data, offset)
    }

    fn sync(&self) -> onefold_io::Result<()> {
        self.disk.sync()
    }

    fn set_len(&self, len: u64) -> onefold_io::Result<()> {
        self.disk.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> onefold_io::Result<()> {
        self.take(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> onefold_io::Result<()> {
        self.give_back(offset, len);
        self.disk.discard(offset, len)
    }
}

/// The host's file system is told as full before a write is acknowledged, and nothing that was acknowledged is lost.
#[test]
fn a_full_host_is_told_before_the_acknowledgement() {
    for inline in [true, false] {
        let (blocks, host) = (4000, 1500);
        let disk = SparseFile::new(blocks, host);
        let data = DataArea::new(disk.clone(), 0, CHUNK as u32, blocks).keeping_room();
        let backend = InRam::unsaved(blocks).expect("RAM");
        let engine = Dmdedup::open(Box::new(backend), data, blocks).expect("RAM");
        let options = Options {
            inline,
            ..Options::default()
        };
        let front = Front::new(Box::new(engine), CHUNK as u32, [0; 32], options);
        let device = Caller(front.device(HeadId(0), "main", blocks * CHUNK, true));
        let content = |n: u64| {
            let mut chunk = vec![7; CHUNK as usize];
            chunk[..64].copy_from_slice(&Random(n).bytes(64));
            chunk
        };
        let mut taken = 0;
        for n in 0..2000 {
            match device.write(n * CHUNK, &content(n)) {
                Ok(()) => taken += 1,
                Err(error) => assert!(matches!(error, Error::NoSpace { .. }), "{error}"),
            }
        }
        assert_eq!(taken, host, "all of the host's room is used, and no more");
        device
            .flush()
            .expect("nothing that was acknowledged is lost");
        for n in (0..host).step_by(97) {
            let found = device.read(n * CHUNK, CHUNK).expect("a read");
            assert!(found[..] == content(n)[..], "chunk {n}");
        }
        // Deleted data makes room, and once the host has some, all goes on.
        device.discard(0, 10 * CHUNK).expect("a discard");
        device
            .write(3000 * CHUNK, &content(3000))
            .expect("room that was collected");
        disk.left.store(500, Ordering::Relaxed);
        for n in 3001..3200 {
            device
                .write(n * CHUNK, &content(n))
                .expect("room on the host");
        }
        drop(device);
        front.close().expect("all is well");
    }
}

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

/// A depot of 64 MiB over a sparse file.
fn log_depot(disk: &Arc<SparseFile>, inline: bool) -> (Arc<dyn Dir>, OpenOptions) {
    let folder: Arc<dyn Dir> = Arc::new(MemDir::new());
    let disk = Arc::clone(disk);
    let devices: onefold_volume::depot::OpenDevice =
        Arc::new(move |_, _| Ok(Arc::clone(&disk) as Arc<dyn Disk>));
    let options = CreateOptions {
        engine: EngineKind::Log,
        data_path: Some("/sparse".into()),
        capacity_bytes: Some(64 * MIB),
        devices: Arc::clone(&devices),
        ..CreateOptions::new(256 * MIB, [1; 16], [2; 32])
    };
    Depot::create(&folder, &options).expect("a depot");
    let options = OpenOptions {
        front: Options {
            inline,
            ..Options::default()
        },
        devices,
        ..OpenOptions::default()
    };
    (folder, options)
}

fn page(n: u64) -> Vec<u8> {
    Random(n).bytes(PAGE as usize)
}

/// The same of the engine `log`: known chunks, zeros, discards and reads go on, what is deleted makes room, and so does
/// the host.
#[test]
fn a_full_host_is_told_by_the_log_before_the_acknowledgement() {
    for inline in [true, false] {
        let disk = SparseFile::new(1025, 1025);
        let (folder, options) = log_depot(&disk, inline);
        // Somebody else takes all but 20 MiB.
        let left = disk.left.load(Ordering::Relaxed);
        let taken_by_others = left.saturating_sub(20 * MIB / CHUNK);
        disk.left.fetch_sub(taken_by_others, Ordering::Relaxed);
        let depot = Depot::open(folder, options).expect("a depot");
        let device = Caller(depot.device(HeadId(0)).expect("the volume"));
        let mut taken = Vec::new();
        for n in 0..10_000 {
            match device.write(n * PAGE, &page(n)) {
                Ok(()) => taken.push(n),
                Err(Error::NoSpace { .. }) => break,
                Err(error) => panic!("inline {inline}, chunk {n}: {error}"),
            }
        }
        let bytes = taken.len() as u64 * PAGE;
        assert!(
            (28 * MIB..38 * MIB).contains(&bytes),
            "inline {inline}: {bytes} bytes"
        );
        let space = depot.space();
        assert!(
            space.missing > 0 && space.full_percent() == 100,
            "{space:?}"
        );
        device.flush().expect("nothing acknowledged is lost");
        for n in 0..200 {
            let at = (50_000 + n) * PAGE;
            device.write(at, &page(n)).expect("a known chunk");
            device.write(at, &vec![0; PAGE as usize]).expect("zeros");
            device.discard(at, PAGE).expect("a discard");
        }
        for n in taken.iter().step_by(31) {
            let found = device.read(n * PAGE, PAGE).expect("a read");
            assert!(found[..] == page(*n)[..], "inline {inline}, chunk {n}");
        }
        device.discard(0, 8 * MIB).expect("a discard");
        for n in 0..500 {
            device
                .write((20_000 + n) * PAGE, &page(100_000 + n))
                .expect("room that was collected");
        }
        disk.left.fetch_add(taken_by_others, Ordering::Relaxed);
        for n in 0..4000 {
            device
                .write((30_000 + n) * PAGE, &page(200_000 + n))
                .expect("room on the host");
        }
        assert_eq!(depot.space().missing, 0, "the host has room for all of it");
        assert_eq!(depot.stats().expect("open").front.failure, None);
        drop(device);
        depot.close().expect("all is well");
    }
}

/// Each question costs a full file system several commits of its journal: writes that are refused ask once a second.
#[test]
fn a_full_host_is_asked_once_a_second() {
    let disk = SparseFile::new(1025, 1025);
    let (folder, mut options) = log_depot(&disk, true);
    let left = disk.left.load(Ordering::Relaxed);
    let taken_by_others = left.saturating_sub(20 * MIB / CHUNK);
    disk.left.fetch_sub(taken_by_others, Ordering::Relaxed);
    let now = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now);
    options.front.clock = Some(Arc::new(move || clock.load(Ordering::Relaxed)));
    let depot = Depot::open(folder, options).expect("a depot");
    let device = Caller(depot.device(HeadId(0)).expect("the volume"));
    let mut number = 0;
    let mut write = || {
        number += 1;
        device.write(number * PAGE, &page(number))
    };
    while write().is_ok() {}
    let before = disk.refused.load(Ordering::Relaxed);
    for second in 1..=5 {
        for _ in 0..400 {
            assert!(matches!(write(), Err(Error::NoSpace { .. })));
        }
        now.store(second * 1_000_000_001, Ordering::Relaxed);
    }
    let asked = disk.refused.load(Ordering::Relaxed) - before;
    assert!((1..=10).contains(&asked), "{asked} times");
    disk.left.fetch_add(taken_by_others, Ordering::Relaxed);
    now.store(6_000_000_010, Ordering::Relaxed);
    write().expect("the host has room, and was asked");
    drop(device);
    depot.close().expect("all is well");
}

/// Room of deleted data goes back to the host, but for zones that are about to be filled again.
#[test]
fn a_host_has_its_room_back_when_files_were_deleted() {
    let disk = SparseFile::new(1025, 1025);
    let (folder, options) = log_depot(&disk, true);
    let depot = Depot::open(folder, options).expect("a depot");
    let device = Caller(depot.device(HeadId(0)).expect("the volume"));
    let taken = || 1025 - disk.left.load(Ordering::Relaxed);
    let fresh = taken();
    assert!(fresh * CHUNK < 20 * MIB, "{fresh} chunks for nothing");
    for n in 0..12_000 {
        device.write(n * PAGE, &page(n)).expect("room");
    }
    device.flush().expect("a flush");
    let full = taken();
    assert!(full * CHUNK > 46 * MIB, "{full}");
    device.discard(0, 11_000 * PAGE).expect("a discard");
    depot.collect(Effort::Whole).expect("a collection");
    depot.settle().expect("a checkpoint");
    depot.settle().expect("a checkpoint");
    let less = taken();
    assert!(less * CHUNK < 28 * MIB, "{full} chunks became {less}");
    for n in 11_000..12_000 {
        let found = device.read(n * PAGE, PAGE).expect("a read");
        assert!(found[..] == page(n)[..], "chunk {n}");
    }
    for n in 0..11_000 {
        device
            .write(n * PAGE, &page(50_000 + n))
            .expect("room again");
    }
    // Zones that are filled all the time are not given back and taken again.
    let given_back = || {
        let stats = depot.stats().expect("open").engine.counters;
        let count = stats.iter().find(|(name, _)| *name == "zones given back");
        count.expect("it is counted").1
    };
    let before = given_back();
    for round in 0..6 {
        for n in 0..3000 {
            let content = page(100_000 + round * 10_000 + n);
            device.write(n * PAGE, &content).expect("room");
        }
        depot.settle().expect("a checkpoint");
    }
    assert_eq!(
        given_back(),
        before,
        "none was given back while it is needed"
    );
}
