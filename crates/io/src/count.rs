//! Counting disks and folders: they wrap a [`Dir`] or [`Disk`], and their counters can be read while it is in use.
//!
//! The papers' tables and the tests of promised costs ("one page read per positive lookup") count with the same
//! counters. Invariant: an operation is counted when it is called, whether it succeeds or not; a batch counts each
//! of its reads; bytes are the requested ones.

use std::{
    ops::Sub,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{Dir, DirEntry, Disk, LockGuard, LockKind, ReadAt, Result};

/// Bytes of a page, the unit of the `*_pages` counters.
pub const PAGE_BYTES: u64 = 4096;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The number of calls of each kind of operation.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct IoCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// Counters shared by all disks and folders that were wrapped with them.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($name: AtomicU64,)*
        }

        impl Counters {
            /// The counts so far.
            pub fn counts(&self) -> IoCounts {
                IoCounts { $($name: self.$name.load(Relaxed),)* }
            }
        }

        /// The counts since `earlier`: `later - earlier`.
        impl Sub for IoCounts {
            type Output = Self;
            fn sub(self, earlier: Self) -> Self {
                Self { $($name: self.$name - earlier.$name,)* }
            }
        }
    };
}

counters! {
    /// Reads; each read of a batch counts.
    reads,
    /// Bytes of these reads.
    read_bytes,
    /// Pages of [`PAGE_BYTES`] that these reads touch.
    read_pages,
    /// Batches of reads.
    batches,
    /// Writes.
    writes,
    /// Bytes of these writes.
    write_bytes,
    /// Pages of [`PAGE_BYTES`] that these writes touch.
    write_pages,
    /// Syncs of disks.
    syncs,
    /// Changes of a disk's length.
    set_lens,
    /// Discards.
    discards,
    /// Disks opened.
    opens,
    /// Disks created.
    creates,
    /// Renames, of either kind.
    renames,
    /// Disks and folders removed.
    removes,
    /// Syncs of folders.
    dir_syncs,
    /// Lists of folders.
    lists,
    /// Queries for lengths of disks that were not open.
    lens,
    /// Folders made or opened.
    subdirs,
    /// Tries to lock.
    locks,
}

/// The number of pages that `len` bytes at `offset` touch.
fn pages(offset: u64, len: usize) -> u64 {
    match len as u64 {
        0 => 0,
        len => offset.saturating_add(len - 1) / PAGE_BYTES - offset / PAGE_BYTES + 1,
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}

impl Counters {
    /// New counters, at 0.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn read(&self, offset: u64, len: usize) {
        add(&self.reads, 1);
        add(&self.read_bytes, len as u64);
        add(&self.read_pages, pages(offset, len));
    }
}

/// A disk that counts its operations.
pub struct CountedDisk {
    disk: Arc<dyn Disk>,
    counters: Arc<Counters>,
}

impl CountedDisk {
    /// Wraps `disk` and counts operations on it.
    pub fn new(disk: Arc<dyn Disk>, counters: Arc<Counters>) -> Self {
        Self { disk, counters }
    }
}

impl Disk for CountedDisk {
    fn len(&self) -> Result<u64> {
        self.disk.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.counters.read(offset, buf.len());
        self.disk.read_at(buf, offset)
    }

    fn read_many_at(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        add(&self.counters.batches, 1);
        reads
            .iter()
            .for_each(|read| self.counters.read(read.offset, read.buf.len()));
        self.disk.read_many_at(reads)
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.disk.will_read(offset, len);
    }

    fn forget_cached(&self) {
        self.disk.forget_cached();
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        add(&self.counters.writes, 1);
        add(&self.counters.write_bytes, data.len() as u64);
        add(&self.counters.write_pages, pages(offset, data.len()));
        self.disk.write_at(data, offset)
    }

    fn sync(&self) -> Result<()> {
        add(&self.counters.syncs, 1);
        self.disk.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        add(&self.counters.set_lens, 1);
        self.disk.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.disk.allocate(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        add(&self.counters.discards, 1);
        self.disk.discard(offset, len)
    }
}

/// A folder that counts its operations, and those on all disks and folders reached through it.
pub struct CountedDir {
    dir: Arc<dyn Dir>,
    counters: Arc<Counters>,
}

impl CountedDir {
    /// Wraps `dir` and counts operations on it and in it.
    pub fn new(dir: Arc<dyn Dir>, counters: Arc<Counters>) -> Self {
        Self { dir, counters }
    }

    fn disk(&self, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        Arc::new(CountedDisk::new(disk, Arc::clone(&self.counters)))
    }

    fn folder(&self, dir: Arc<dyn Dir>) -> Arc<dyn Dir> {
        Arc::new(Self::new(dir, Arc::clone(&self.counters)))
    }
}

impl Dir for CountedDir {
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>> {
        add(&self.counters.opens, 1);
        Ok(self.disk(self.dir.open(name)?))
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>> {
        add(&self.counters.opens, 1);
        Ok(self.disk(self.dir.open_write(name)?))
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Disk>> {
        add(&self.counters.creates, 1);
        Ok(self.disk(self.dir.create(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        add(&self.counters.renames, 1);
        self.dir.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        add(&self.counters.renames, 1);
        self.dir.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        add(&self.counters.removes, 1);
        self.dir.remove(name)
    }

    fn list(&self) -> Result<Vec<DirEntry>> {
        add(&self.counters.lists, 1);
        self.dir.list()
    }

    fn len_of(&self, name: &str) -> Result<u64> {
        add(&self.counters.lens, 1);
        self.dir.len_of(name)
    }

    fn used_ns(&self, name: &str) -> Result<u64> {
        self.dir.used_ns(name)
    }

    fn mark_used(&self, name: &str) {
        self.dir.mark_used(name);
    }

    fn sync(&self) -> Result<()> {
        add(&self.counters.dir_syncs, 1);
        self.dir.sync()
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        add(&self.counters.subdirs, 1);
        Ok(self.folder(self.dir.subdir(name)?))
    }

    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        add(&self.counters.subdirs, 1);
        Ok(self.folder(self.dir.open_subdir(name)?))
    }

    fn remove_subdir(&self, name: &str) -> Result<()> {
        add(&self.counters.removes, 1);
        self.dir.remove_subdir(name)
    }

    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>> {
        add(&self.counters.locks, 1);
        self.dir.lock(name, kind)
    }
}
