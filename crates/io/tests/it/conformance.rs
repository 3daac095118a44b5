//! The conformance suite of every `Disk` and `Dir`: random operations against a naive twin, and cases that random
//! operations rarely meet.

mod dir;

use std::sync::Arc;

use onefold_io::{Disk, ErrorKind, ReadAt, Result};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

pub use dir::dir;

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}

/// Checks a disk. `make` returns a new, empty one each time.
pub fn disk(make: impl Fn() -> Arc<dyn Disk>) {
    edges_of_a_disk(&*make());
    large_writes(&*make());
    batches(&*make());
    let mut runner = TestRunner::new(Config {
        cases: 24,
        failure_persistence: None,
        ..Config::default()
    });
    let ops = proptest::collection::vec(disk_op(), 0..40);
    let run = |ops: Vec<DiskOp>| {
        let disk = make();
        let mut twin = Vec::new();
        for op in &ops {
            op.run(&*disk, &mut twin);
        }
        assert_eq!(contents(&*disk), twin);
        Ok(())
    };
    if let Err(e) = runner.run(&ops, run) {
        panic!("{e}");
    }
}

fn edges_of_a_disk(disk: &dyn Disk) {
    assert!(disk.is_empty().unwrap());
    assert_eq!(kind(disk.read_at(&mut [0], 0)), Some(ErrorKind::Short));
    disk.read_at(&mut [], 0).unwrap();
    disk.write_at(&[], 100).unwrap();
    assert_eq!(disk.len().unwrap(), 0, "writing nothing grows nothing");
    disk.write_at(b"abc", 5000).unwrap();
    assert_eq!(disk.len().unwrap(), 5003);
    let mut buf = [1; 5];
    disk.read_at(&mut buf, 4998).unwrap();
    assert_eq!(&buf, b"\0\0abc", "a hole reads as zeros");
    assert_eq!(
        kind(disk.read_at(&mut [0; 4], 5000)),
        Some(ErrorKind::Short)
    );
    assert_eq!(
        kind(disk.read_at(&mut [0; 4], 1 << 40)),
        Some(ErrorKind::Short)
    );
    assert!(disk.read_at(&mut [0; 4], u64::MAX).is_err());
    assert!(disk.write_at(b"x", u64::MAX).is_err());
    assert!(disk.set_len(u64::MAX).is_err());
    for (offset, len) in [
        (0, 0),
        (4998, 5),
        (5002, 1 << 40),
        (1 << 40, 1),
        (u64::MAX, u64::MAX),
    ] {
        disk.will_read(offset, len);
    }
    assert_eq!(disk.len().unwrap(), 5003, "a hint changes nothing");
    let mut bufs = [[0; 2], [0; 2]];
    let [a, b] = &mut bufs;
    let mut reads = [
        ReadAt {
            offset: 5001,
            buf: a,
        },
        ReadAt {
            offset: 5002,
            buf: b,
        },
    ];
    assert_eq!(kind(disk.read_many_at(&mut reads)), Some(ErrorKind::Short));
    disk.read_many_at(&mut []).unwrap();
    let nothing = &mut [
        ReadAt {
            offset: 1,
            buf: &mut [],
        },
        ReadAt {
            offset: 12_345,
            buf: &mut [],
        },
    ];
    disk.read_many_at(nothing).expect("nothing is everywhere");
    disk.sync().unwrap();
    disk.set_len(5001).unwrap();
    disk.set_len(5003).unwrap();
    disk.read_at(&mut buf, 4998).unwrap();
    assert_eq!(&buf, b"\0\0a\0\0", "what was cut off is gone");
    disk.discard(0, 5003).unwrap();
    disk.discard(1 << 40, 1 << 20).unwrap();
    assert_eq!(
        disk.len().unwrap(),
        5003,
        "discarding never changes the length"
    );
}

/// Large writes, which an implementation may do in another way than small ones, at all alignments, over each other.
fn large_writes(disk: &dyn Disk) {
    let mut twin = Vec::new();
    for (i, (at, len)) in [
        (0, 300_000),
        (300_000, 1_500_000),
        (4096, 262_144),
        (5000, 700_001),
        (1_799_999, 524_288),
    ]
    .into_iter()
    .enumerate()
    {
        DiskOp::Write(1, 10, i as u8).run(disk, &mut twin);
        DiskOp::Write(at, len, i as u8 + 1).run(disk, &mut twin);
        DiskOp::Write(at + 17, 100, 200 + i as u8).run(disk, &mut twin);
        assert!(contents(disk) == twin, "{len} bytes at {at}");
    }
    disk.sync().unwrap();
    assert!(contents(disk) == twin);
}

/// Batches whose bytes all exist, which is rare among random ones: more reads than are in flight at once, of every
/// length and alignment, over each other.
fn batches(disk: &dyn Disk) {
    const BYTES: usize = 1 << 20;
    let mut twin = Vec::new();
    DiskOp::Write(0, BYTES, 3).run(disk, &mut twin);
    for longest in [1, 600, 5000, 90_000] {
        let place = |i: usize| ((i * 7919 * 31) % (BYTES - longest), i * 613 % longest + 1);
        let wanted: Vec<_> = (0..150)
            .map(place)
            .map(|(at, len)| (at as u64, len))
            .collect();
        read_many(disk, &twin, &wanted);
        let at_pages: Vec<_> = (0..70).map(|i| (i * 4096, 4096)).collect();
        read_many(disk, &twin, &at_pages);
    }
}

#[derive(Clone, Debug)]
enum DiskOp {
    Write(u64, usize, u8),
    SetLen(u64),
    Read(u64, usize),
    ReadMany(Vec<(u64, usize)>),
    Discard(u64, u64),
    Sync,
}

const SPACE: u64 = 70_000;

fn disk_op() -> impl Strategy<Value = DiskOp> {
    let place = || prop_oneof![0..SPACE, (0..SPACE / 512).prop_map(|sector| sector * 512)];
    let len = || {
        prop_oneof![
            0..600usize,
            0..20_000usize,
            (0..10usize).prop_map(|n| n * 4096)
        ]
    };
    prop_oneof![
        4 => (place(), len(), any::<u8>()).prop_map(|(at, len, byte)| DiskOp::Write(at, len, byte)),
        1 => place().prop_map(DiskOp::SetLen),
        4 => (place(), len()).prop_map(|(at, len)| DiskOp::Read(at, len)),
        2 => proptest::collection::vec((place(), len()), 0..70).prop_map(DiskOp::ReadMany),
        1 => (place(), place()).prop_map(|(at, len)| DiskOp::Discard(at, len)),
        1 => Just(DiskOp::Sync),
    ]
}

/// Bytes in which a shifted or swapped piece can be seen.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed)
        .collect()
}

/// The twin's range of `len` bytes at `at`, if it has them.
fn range(twin: &[u8], at: u64, len: usize) -> Option<std::ops::Range<usize>> {
    let range = at as usize..at as usize + len;
    (range.end <= twin.len()).then_some(range)
}

impl DiskOp {
    fn run(&self, disk: &dyn Disk, twin: &mut Vec<u8>) {
        match self {
            Self::Write(at, len, seed) => {
                let data = pattern(*len, *seed);
                disk.write_at(&data, *at).unwrap();
                if *len > 0 {
                    let end = *at as usize + len;
                    twin.resize(twin.len().max(end), 0);
                    twin[*at as usize..end].copy_from_slice(&data);
                }
            }
            Self::SetLen(len) => {
                disk.set_len(*len).unwrap();
                twin.resize(*len as usize, 0);
            }
            Self::Read(at, len) => {
                let mut buf = vec![0xEE; *len];
                let read = disk.read_at(&mut buf, *at);
                match range(twin, *at, *len) {
                    Some(range) => {
                        read.unwrap();
                        assert!(buf == twin[range], "{len} bytes at {at}");
                    }
                    None if *len == 0 => {}
                    None => assert_eq!(kind(read), Some(ErrorKind::Short)),
                }
            }
            Self::ReadMany(reads) => read_many(disk, twin, reads),
            Self::Discard(at, len) => {
                disk.discard(*at, *len).unwrap();
                let found = contents(disk);
                assert_eq!(found.len(), twin.len());
                let range = (*at as usize).min(found.len())..((at + len) as usize).min(found.len());
                for i in range {
                    assert!(
                        found[i] == 0 || found[i] == twin[i],
                        "byte {i} after a discard"
                    );
                    twin[i] = found[i];
                }
            }
            Self::Sync => disk.sync().unwrap(),
        }
        assert_eq!(disk.len().unwrap(), twin.len() as u64);
    }
}

fn read_many(disk: &dyn Disk, twin: &[u8], wanted: &[(u64, usize)]) {
    let mut bufs: Vec<Vec<u8>> = wanted.iter().map(|(_, len)| vec![0xEE; *len]).collect();
    let places = wanted.iter().zip(&mut bufs);
    let mut reads: Vec<ReadAt> = places
        .map(|((offset, _), buf)| ReadAt {
            offset: *offset,
            buf,
        })
        .collect();
    let read = disk.read_many_at(&mut reads);
    let all_there = wanted
        .iter()
        .all(|(at, len)| *len == 0 || range(twin, *at, *len).is_some());
    if !all_there {
        assert_eq!(kind(read), Some(ErrorKind::Short));
        return;
    }
    read.unwrap();
    for ((at, len), buf) in wanted.iter().zip(&bufs).filter(|((_, len), _)| *len > 0) {
        assert!(
            *buf == twin[range(twin, *at, *len).unwrap()],
            "{len} bytes at {at} of a batch"
        );
    }
}

/// All bytes of a disk.
pub fn contents(disk: &dyn Disk) -> Vec<u8> {
    let mut bytes = vec![0xEE; disk.len().unwrap() as usize];
    disk.read_at(&mut bytes, 0).unwrap();
    bytes
}
