//! The two seams to devices: [`Disk`], an array of bytes, and [`Dir`], a folder of disks.

use std::sync::Arc;

use crate::Result;

/// One read of a batch: fill `buf` from `offset`.
pub struct ReadAt<'a> {
    /// Where on the disk, in bytes.
    pub offset: u64,
    /// What to fill, whole.
    pub buf: &'a mut [u8],
}

/// An array of bytes: a file, a device, memory. Shared between threads; each call is independent of the others.
pub trait Disk: Send + Sync {
    /// The length in bytes.
    fn len(&self) -> Result<u64>;

    /// Whether it holds no byte.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from `offset`, or fails with [`ErrorKind::Short`](crate::ErrorKind::Short) where the disk ends
    /// before.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// All `reads`, in any order and as much at once as the device likes. Fails as `read_at` would for one of the
    /// failed reads.
    fn read_many_at(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        reads
            .iter_mut()
            .try_for_each(|read| self.read_at(read.buf, read.offset))
    }

    /// Says that these bytes are read soon: who can fetch them meanwhile may. It waits for nothing, and cannot fail.
    fn will_read(&self, _offset: u64, _len: u64) {}

    /// Says that the next reading is to ask the device, not what the system keeps of it in RAM: who can see to that
    /// does, of what is durable. It cannot fail.
    fn forget_cached(&self) {}

    /// What lets [`read_across`](crate::read_across) read this disk in one batch with others. `None`: it is asked by
    /// itself.
    fn batch_file(&self) -> Option<crate::BatchFile<'_>> {
        None
    }

    /// Writes all of `data` at `offset`; the disk grows where needed. Durable only after `sync`.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()>;

    /// Returns once everything written before is durable (content and length).
    fn sync(&self) -> Result<()>;

    /// Cuts or extends (with zeros) to `len` bytes.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Says that these bytes are no longer needed; they read as zeros or as before.
    fn discard(&self, offset: u64, len: u64) -> Result<()>;
}

/// What a [`Dir`] holds under one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// The name within its folder.
    pub name: String,
    /// A folder, not a disk.
    pub is_dir: bool,
}

/// How [`Dir::lock`] holds its lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// Many at once, none exclusive.
    Shared,
    /// Alone.
    Exclusive,
}

/// Held from [`Dir::lock`] until dropped, or until the process dies, however it dies.
pub trait LockGuard: Send + Sync {}

/// A folder on a disk, or a simulated one.
///
/// Names hold no `/`, are not `.` or `..`, and have at most 255 bytes; others are
/// [`ErrorKind::Denied`](crate::ErrorKind::Denied). Disks and folders within share one space of names; `rename` is for
/// disks.
///
/// `create`, `rename` and `remove` are atomic, and durable only after `sync` of the folder.
pub trait Dir: Send + Sync {
    /// An existing disk, for reading only.
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>>;

    /// An existing disk, for reading and writing.
    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>>;

    /// A new, empty disk; [`ErrorKind::Exists`](crate::ErrorKind::Exists) where the name is taken.
    fn create(&self, name: &str) -> Result<Arc<dyn Disk>>;

    /// Renames, replacing what stood under `to`.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Renames; [`ErrorKind::Exists`](crate::ErrorKind::Exists) where `to` is taken.
    fn rename_new(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a disk. One that is open stays readable through its handles.
    fn remove(&self, name: &str) -> Result<()>;

    /// Everything in the folder, sorted by name. Asks for none by itself: a folder may hold very many.
    fn list(&self) -> Result<Vec<DirEntry>>;

    /// The bytes of a disk that is not opened for that; [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) where there
    /// is none. Of a folder it means nothing.
    fn len_of(&self, name: &str) -> Result<u64>;

    /// Returns once all creations, renames and removals before are durable.
    fn sync(&self) -> Result<()>;

    /// A folder within, made where it is missing (durable after `sync` of this folder).
    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>>;

    /// A folder within, or [`ErrorKind::NotFound`](crate::ErrorKind::NotFound).
    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>>;

    /// Removes an empty folder within.
    fn remove_subdir(&self, name: &str) -> Result<()>;

    /// An advisory lock named by the file `name`, which is made where it is missing and never removed by the lock.
    /// `None` where another handle, in this process or another, holds a conflicting one. Freed when the guard drops or
    /// the process dies.
    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>>;
}
