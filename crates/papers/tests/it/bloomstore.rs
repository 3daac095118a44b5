//! BloomStore alone: when it collects garbage, also over several openings, and that insertions in write buffers become
//! durable by themselves.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use onefold_index::{ChunkIndex, ContainerId, Location};
use onefold_io::{Dir, DirEntry, Disk, LockGuard, LockKind, MemDir, ReadAt, Result};
use onefold_papers::{BloomStore, BloomStoreOptions};

use crate::history::key;

const CONTAINERS: u64 = 20;
/// Number of chunks in a container.
const CHUNKS: u64 = 1000;

fn options() -> BloomStoreOptions {
    BloomStoreOptions::new(CONTAINERS * CHUNKS, 96 << 10)
}

fn open(dir: &MemDir) -> BloomStore {
    BloomStore::open(Arc::new(dir.clone()), options()).expect("open")
}

fn tell(index: &mut BloomStore, numbers: Range<u64>, container: u64) {
    let container = ContainerId(container);
    let entries: Vec<_> = numbers
        .map(|number| (key(number), Location { container }))
        .collect();
    index.insert(&entries).expect("insert");
}

fn filled(dir: &MemDir) {
    let mut index = open(dir);
    for container in 0..CONTAINERS {
        let first = container * CHUNKS;
        tell(&mut index, first..first + CHUNKS, container);
        index.checkpoint().expect("checkpoint");
    }
}

/// Retires two containers in an opening of its own. Returns the bytes written, and the bytes of the store.
fn retire_two(dir: &MemDir, first: u64) -> (u64, u64) {
    let mut index = open(dir);
    let gone = [ContainerId(first), ContainerId(first + 1)];
    index.retire(&gone).expect("retire");
    index.checkpoint().expect("checkpoint");
    let stats = index.stats();
    (stats.bytes_written, stats.disk_bytes)
}

/// §4.4.2: collection begins when the share of garbage exceeds a threshold (here a quarter), whichever opening made it.
#[test]
fn bloomstore_collects_at_its_threshold_also_over_several_openings() {
    let dir = MemDir::new();
    filled(&dir);
    let full = open(&dir).stats().disk_bytes;
    for round in 0..2 {
        let (written, there) = retire_two(&dir, 2 * round);
        assert!(
            written < full / 10,
            "round {round}: {written} bytes for a tenth of {full} that is garbage"
        );
        assert!(there > full * 9 / 10, "round {round}: {there} of {full}");
    }
    // 30 % are garbage now
    let (_, there) = retire_two(&dir, 4);
    assert!(there < full * 9 / 10, "{there} of {full}");
    let mut index = open(&dir);
    let mut found = vec![None; (CONTAINERS * CHUNKS) as usize];
    let keys: Vec<_> = (0..CONTAINERS * CHUNKS).map(key).collect();
    index.lookup(&keys, &mut found).expect("lookup");
    let live = found.iter().flatten().count() as u64;
    assert_eq!(live, (CONTAINERS - 6) * CHUNKS);
    index.checkpoint().expect("checkpoint");
}

/// The keys are inserted again without a lookup before, as by a sweep that moves chunks.
#[test]
fn bloomstore_gives_back_the_space_of_what_was_superseded() {
    let dir = MemDir::new();
    filled(&dir);
    let mut index = open(&dir);
    let full = index.stats().disk_bytes;
    let mut most = 0;
    for round in 1..12 {
        for container in 0..CONTAINERS {
            let first = container * CHUNKS;
            tell(&mut index, first..first + CHUNKS, round * 100 + container);
            index.checkpoint().expect("checkpoint");
        }
        most = most.max(index.stats().disk_bytes);
    }
    assert!(most < full * 2, "{most} bytes, {full} before");
    let mut found = [None];
    index.lookup(&[key(5)], &mut found).expect("lookup");
    let container = ContainerId(1100);
    assert_eq!(found, [Some(Location { container })]);
}

/// A folder that reports each sync of one of its disks.
struct Telling {
    dir: MemDir,
    synced: Sender<()>,
}

struct TellingDisk {
    disk: Arc<dyn Disk>,
    synced: Sender<()>,
}

impl Telling {
    fn disk(&self, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        let synced = self.synced.clone();
        Arc::new(TellingDisk { disk, synced })
    }
}

impl Disk for TellingDisk {
    fn len(&self) -> Result<u64> {
        self.disk.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.disk.read_at(buf, offset)
    }

    fn read_many_at(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        self.disk.read_many_at(reads)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.disk.write_at(bytes, offset)
    }

    fn sync(&self) -> Result<()> {
        self.disk.sync()?;
        let _ = self.synced.send(());
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.disk.set_len(len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.disk.discard(offset, len)
    }
}

impl Dir for Telling {
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.dir.open(name).map(|disk| self.disk(disk))
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.dir.open_write(name).map(|disk| self.disk(disk))
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.dir.create(name).map(|disk| self.disk(disk))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.dir.remove(name)
    }

    fn list(&self) -> Result<Vec<DirEntry>> {
        self.dir.list()
    }

    fn len_of(&self, name: &str) -> Result<u64> {
        self.dir.len_of(name)
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        self.dir.subdir(name)
    }

    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        self.dir.open_subdir(name)
    }

    fn remove_subdir(&self, name: &str) -> Result<()> {
        self.dir.remove_subdir(name)
    }

    fn sync(&self) -> Result<()> {
        self.dir.sync()
    }

    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>> {
        self.dir.lock(name, kind)
    }
}

/// §4.4.1: a configurable timeout ensures that a flash write occurs in the interval, without any call. Without the
/// timer nothing is ever synced, and this test waits for ever.
#[test]
fn bloomstore_makes_what_waits_durable_by_itself() {
    let (synced, told) = channel();
    let dir = Telling {
        dir: MemDir::new(),
        synced,
    };
    let kept = dir.dir.clone();
    let with_timeout = BloomStoreOptions {
        flush_interval_ms: Some(1),
        ..options()
    };
    let mut index = BloomStore::open(Arc::new(dir), with_timeout).expect("open");
    while told.try_recv().is_ok() {}
    tell(&mut index, 0..10, 7);
    // one sync each for the chains, the log and the journal
    for _ in 0..3 {
        told.recv().expect("a sync");
    }
    drop(index);
    let index = open(&kept);
    let mut found = [None];
    index.lookup(&[key(9)], &mut found).expect("lookup");
    assert!(found[0].is_some());
}

#[test]
fn bloomstore_without_a_timeout_waits_for_a_checkpoint() {
    let dir = MemDir::new();
    let mut index = open(&dir);
    tell(&mut index, 0..10, 7);
    assert!(index.flush_waiting().expect("flush"));
    assert!(!index.flush_waiting().expect("flush"), "nothing waits");
    tell(&mut index, 10..20, 7);
    drop(index);
    let mut found = [None; 2];
    let asked = open(&dir).lookup(&[key(9), key(19)], &mut found);
    asked.expect("lookup");
    assert_eq!(found.map(|found| found.is_some()), [true, false]);
}
