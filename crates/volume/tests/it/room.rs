//! A sparse data file on a file system that is full before the volume is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_io::{Disk, Error as IoError, ErrorKind, MemDisk, Random};
use onefold_volume::conformance::Caller;
use onefold_volume::dmdedup::{DataArea, Dmdedup};
use onefold_volume::front::{Front, Options};
use onefold_volume::inram::InRam;
use onefold_volume::{Error, HeadId};
use parking_lot::Mutex;

const CHUNK: u64 = 65_536;

/// A sparse file: bytes get room when they are allocated or written, as long as there is some.
struct SparseFile {
    disk: MemDisk,
    /// Which chunks have room.
    room: Mutex<Vec<bool>>,
    left: AtomicU64,
}

impl SparseFile {
    fn take(&self, offset: u64, len: u64) -> onefold_io::Result<()> {
        let mut room = self.room.lock();
        for at in offset / CHUNK..(offset + len).div_ceil(CHUNK) {
            let has_room = &mut room[at as usize];
            if !*has_room {
                if self.left.load(Ordering::Relaxed) == 0 {
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
        self.disk.discard(offset, len)
    }
}

/// The host's file system is told as full before a write is acknowledged, and nothing that was acknowledged is lost.
#[test]
fn a_full_host_is_told_before_the_acknowledgement() {
    for inline in [true, false] {
        let (blocks, host) = (4000, 1500);
        let disk = SparseFile {
            disk: MemDisk::new(),
            room: Mutex::new(vec![false; blocks as usize]),
            left: AtomicU64::new(host),
        };
        disk.set_len(blocks * CHUNK).expect("RAM");
        let disk = Arc::new(disk);
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
        // What is deleted makes room, and once the host has some, all goes on.
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
