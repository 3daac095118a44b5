//! What every `Disk` and every `Dir` must do: random operations against a naive twin, and the cases that random ones rarely meet.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc};

use onefold_io::{Dir, DirEntry, Disk, ErrorKind, LockKind, ReadAt, Result};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}

/// Checks a disk. `make` gives a new, empty one each time.
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

/// Writes that an implementation may send another way than small ones, at places of every alignment, over each other.
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

/// Batches of which all is there, which random ones seldom are: more reads than are in flight at once, of every length and alignment, over each other.
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

/// Bytes in which a shifted or swapped piece shows.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed)
        .collect()
}

/// Where the twin has `len` bytes at `at`.
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

/// Checks a folder. `make` gives a new, empty one each time, and whatever keeps it alive.
pub fn dir<K>(make: impl Fn() -> (Arc<dyn Dir>, K)) {
    let (folder, keep) = make();
    edges_of_a_dir(&*folder);
    drop((folder, keep));
    let (folder, keep) = make();
    locks(&*folder);
    drop((folder, keep));
    disk(|| {
        // The folder may vanish beneath its open disk.
        let (folder, keep) = make();
        let disk = folder.create("disk").unwrap();
        drop((folder, keep));
        disk
    });
    let mut runner = TestRunner::new(Config {
        cases: 32,
        failure_persistence: None,
        ..Config::default()
    });
    let run = |ops: Vec<DirOp>| {
        let (folder, keep) = make();
        let mut twin = Twin::default();
        for op in &ops {
            op.run(&folder, &mut twin);
            assert_eq!(folder.list().unwrap(), twin.list(), "after {op:?}");
            twin.compare_lens(&*folder);
        }
        for (disk, bytes) in &twin.handles {
            assert!(
                contents(&**disk) == *bytes.borrow(),
                "a handle stays readable"
            );
        }
        drop(keep);
        Ok(())
    };
    if let Err(e) = runner.run(&proptest::collection::vec(dir_op(), 0..40), run) {
        panic!("{e}");
    }
}

fn edges_of_a_dir(dir: &dyn Dir) {
    assert_eq!(dir.list().unwrap(), []);
    for name in ["", ".", "..", "a/b", "/", "a\0", &"x".repeat(256)] {
        assert_eq!(kind(dir.create(name)), Some(ErrorKind::Denied), "{name:?}");
        assert_eq!(kind(dir.open(name)), Some(ErrorKind::Denied), "{name:?}");
        assert_eq!(kind(dir.subdir(name)), Some(ErrorKind::Denied), "{name:?}");
        assert_eq!(kind(dir.len_of(name)), Some(ErrorKind::Denied), "{name:?}");
        assert_eq!(
            kind(dir.rename(name, "x")),
            Some(ErrorKind::Denied),
            "{name:?}"
        );
        assert_eq!(
            kind(dir.rename_new("x", name)),
            Some(ErrorKind::Denied),
            "{name:?}"
        );
        assert_eq!(kind(dir.remove(name)), Some(ErrorKind::Denied), "{name:?}");
        assert_eq!(
            kind(dir.lock(name, LockKind::Shared)),
            Some(ErrorKind::Denied),
            "{name:?}"
        );
    }
    dir.create(&"x".repeat(255)).unwrap();
    dir.remove(&"x".repeat(255)).unwrap();

    dir.create("only-read")
        .unwrap()
        .write_at(b"abc", 0)
        .unwrap();
    let read_only = dir.open("only-read").unwrap();
    assert_eq!(contents(&*read_only), b"abc");
    assert!(read_only.write_at(b"x", 0).is_err());
    assert!(read_only.set_len(1).is_err());
    assert_eq!(contents(&*read_only), b"abc");

    let sub = dir.subdir("sub").unwrap();
    sub.create("inner").unwrap();
    assert_eq!(kind(dir.create("sub")), Some(ErrorKind::Exists));
    assert!(dir.open("sub").is_err() && dir.remove("sub").is_err());
    assert!(dir.subdir("only-read").is_err() && dir.open_subdir("only-read").is_err());
    assert!(dir.remove_subdir("sub").is_err(), "not empty");
    assert_eq!(
        dir.subdir("sub").unwrap().list().unwrap().len(),
        1,
        "made once"
    );
    sub.remove("inner").unwrap();
    sub.sync().unwrap();
    dir.remove_subdir("sub").unwrap();
    assert_eq!(kind(dir.open_subdir("sub")), Some(ErrorKind::NotFound));
    assert_eq!(kind(dir.remove_subdir("sub")), Some(ErrorKind::NotFound));
    dir.sync().unwrap();
}

fn locks(dir: &dyn Dir) {
    let held = dir.lock("l", LockKind::Exclusive).unwrap().unwrap();
    assert!(dir.lock("l", LockKind::Exclusive).unwrap().is_none());
    assert!(dir.lock("l", LockKind::Shared).unwrap().is_none());
    assert!(dir.lock("other", LockKind::Exclusive).unwrap().is_some());
    drop(held);
    let shared = [
        dir.lock("l", LockKind::Shared).unwrap(),
        dir.lock("l", LockKind::Shared).unwrap(),
    ];
    assert!(shared.iter().all(Option::is_some));
    assert!(dir.lock("l", LockKind::Exclusive).unwrap().is_none());
    drop(shared);
    let old = dir.lock("l", LockKind::Exclusive).unwrap().unwrap();
    dir.remove("l").unwrap();
    let new = dir.lock("l", LockKind::Exclusive).unwrap();
    assert!(new.is_some(), "a lock belongs to the file, not to its name");
    drop((old, new));
    let names: Vec<String> = dir
        .list()
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    assert_eq!(names, ["l", "other"], "a lock never removes its file");
}

#[derive(Clone, Debug)]
enum DirOp {
    Create(&'static str),
    Write(&'static str, usize),
    Read(&'static str),
    Rename(&'static str, &'static str),
    RenameNew(&'static str, &'static str),
    Remove(&'static str),
    Subdir(&'static str),
    RemoveSubdir(&'static str),
    Sync,
}

fn dir_op() -> impl Strategy<Value = DirOp> {
    let name = || proptest::sample::select(vec!["a", "b", "c", "d"]);
    prop_oneof![
        4 => name().prop_map(DirOp::Create),
        3 => (name(), 0..9000usize).prop_map(|(name, len)| DirOp::Write(name, len)),
        2 => name().prop_map(DirOp::Read),
        2 => (name(), name()).prop_map(|(from, to)| DirOp::Rename(from, to)),
        2 => (name(), name()).prop_map(|(from, to)| DirOp::RenameNew(from, to)),
        2 => name().prop_map(DirOp::Remove),
        1 => name().prop_map(DirOp::Subdir),
        1 => name().prop_map(DirOp::RemoveSubdir),
        1 => Just(DirOp::Sync),
    ]
}

type Bytes = Rc<RefCell<Vec<u8>>>;

/// The naive folder: names to bytes, `None` for a folder; and every handle that was opened.
#[derive(Default)]
struct Twin {
    names: BTreeMap<&'static str, Option<Bytes>>,
    handles: Vec<(Arc<dyn Disk>, Bytes)>,
}

impl Twin {
    fn list(&self) -> Vec<DirEntry> {
        let entries = self.names.iter().map(|(name, bytes)| DirEntry {
            name: (*name).to_owned(),
            is_dir: bytes.is_none(),
        });
        entries.collect()
    }

    fn compare_lens(&self, dir: &dyn Dir) {
        for (name, bytes) in &self.names {
            if let Some(bytes) = bytes {
                let len = bytes.borrow().len() as u64;
                assert_eq!(dir.len_of(name).unwrap(), len, "{name}");
            }
        }
        assert_eq!(kind(dir.len_of("e")), Some(ErrorKind::NotFound));
    }

    /// The expected failure of renaming disks.
    fn rename(&mut self, from: &'static str, to: &'static str, replace: bool) -> Option<ErrorKind> {
        match (self.names.get(from), self.names.get(to)) {
            (None, _) => return Some(ErrorKind::NotFound),
            (Some(_), Some(_)) if !replace => return Some(ErrorKind::Exists),
            _ => {}
        }
        let bytes = self.names.remove(from).unwrap();
        self.names.insert(to, bytes);
        None
    }

    fn is_folder(&self, name: &str) -> bool {
        matches!(self.names.get(name), Some(None))
    }
}

impl DirOp {
    fn run(&self, dir: &Arc<dyn Dir>, twin: &mut Twin) {
        match *self {
            Self::Create(name) => {
                let made = dir.create(name);
                if twin.names.contains_key(name) {
                    assert_eq!(kind(made), Some(ErrorKind::Exists));
                } else {
                    let bytes = Bytes::default();
                    twin.names.insert(name, Some(bytes.clone()));
                    twin.handles.push((made.unwrap(), bytes));
                }
            }
            Self::Write(name, len) => match twin.names.get(name) {
                None => assert_eq!(kind(dir.open_write(name)), Some(ErrorKind::NotFound)),
                Some(None) => assert!(dir.open_write(name).is_err()),
                Some(Some(bytes)) => {
                    let disk = dir.open_write(name).unwrap();
                    let at = bytes.borrow().len() / 2;
                    disk.write_at(&pattern(len, 7), at as u64).unwrap();
                    let mut bytes = bytes.borrow_mut();
                    let end = at + len;
                    let longer = bytes.len().max(end);
                    bytes.resize(longer, 0);
                    bytes[at..end].copy_from_slice(&pattern(len, 7));
                }
            },
            Self::Read(name) => match twin.names.get(name) {
                None => assert_eq!(kind(dir.open(name)), Some(ErrorKind::NotFound)),
                Some(None) => assert!(dir.open(name).is_err()),
                Some(Some(bytes)) => {
                    let disk = dir.open(name).unwrap();
                    assert!(contents(&*disk) == *bytes.borrow());
                    twin.handles.push((disk, bytes.clone()));
                }
            },
            Self::Rename(from, to) => {
                if !twin.is_folder(from) && !twin.is_folder(to) {
                    assert_eq!(kind(dir.rename(from, to)), twin.rename(from, to, true));
                }
            }
            Self::RenameNew(from, to) => {
                if !twin.is_folder(from) {
                    assert_eq!(kind(dir.rename_new(from, to)), twin.rename(from, to, false));
                }
            }
            Self::Remove(name) => match twin.names.get(name) {
                None => assert_eq!(kind(dir.remove(name)), Some(ErrorKind::NotFound)),
                Some(None) => assert!(dir.remove(name).is_err()),
                Some(Some(_)) => {
                    dir.remove(name).unwrap();
                    twin.names.remove(name);
                }
            },
            Self::Subdir(name) => match twin.names.get(name) {
                Some(Some(_)) => assert!(dir.subdir(name).is_err()),
                _ => {
                    dir.subdir(name).unwrap();
                    twin.names.insert(name, None);
                }
            },
            Self::RemoveSubdir(name) => match twin.names.get(name) {
                None => assert_eq!(kind(dir.remove_subdir(name)), Some(ErrorKind::NotFound)),
                Some(Some(_)) => assert!(dir.remove_subdir(name).is_err()),
                Some(None) => {
                    dir.remove_subdir(name).unwrap();
                    twin.names.remove(name);
                }
            },
            Self::Sync => dir.sync().unwrap(),
        }
    }
}
