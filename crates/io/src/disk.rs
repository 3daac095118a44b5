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

/// One write of a batch.
#[derive(Clone, Copy)]
pub struct WriteAt<'a> {
    /// Where on the disk, in bytes.
    pub offset: u64,
    /// What to write, whole.
    pub data: &'a [u8],
}

/// What a disk holds from some offset on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// Where something else begins, or the disk ends, in bytes.
    pub end: u64,
    /// Nothing was written there: it reads as zeros.
    pub is_hole: bool,
}

/// An array of bytes: a file, a device, memory. Shared between threads; each call is independent of the others.
pub trait Disk: Send + Sync {
    /// The length in bytes.
    ///
    /// # Errors
    /// The device does not say it: as [`ErrorKind::of`](crate::ErrorKind::of) takes the system's answer.
    fn len(&self) -> Result<u64>;

    /// Whether it holds no byte.
    ///
    /// # Errors
    /// Those of [`len`](Disk::len).
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// [`Short`](crate::ErrorKind::Short): the disk ends before. [`Medium`](crate::ErrorKind::Medium): these bytes
    /// cannot be had, others may. All name the offset; what `buf` holds then means nothing.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// All `reads`, in any order and as much at once as the device likes.
    ///
    /// # Errors
    /// As [`read_at`](Disk::read_at) would for one of the failed reads; what any `buf` holds then means nothing.
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
    ///
    /// # Errors
    /// [`NoSpace`](crate::ErrorKind::NoSpace), also where the file would be too large;
    /// [`Denied`](crate::ErrorKind::Denied) where the disk was opened for reading;
    /// [`Medium`](crate::ErrorKind::Medium). Part of `data` may be written then.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()>;

    /// All `writes`, which do not overlap, in any order and as much at once as the device likes.
    ///
    /// # Errors
    /// As [`write_at`](Disk::write_at) would for one of the failed writes; any of the others may be written or not.
    fn write_many_at(&self, writes: &[WriteAt<'_>]) -> Result<()> {
        writes
            .iter()
            .try_for_each(|write| self.write_at(write.data, write.offset))
    }

    /// Makes `len` bytes at `offset` read as zeros, which takes no space where the device can do that. The disk does
    /// not grow by more than these bytes. Durable only after `sync`.
    ///
    /// # Errors
    /// Those of [`write_at`](Disk::write_at).
    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        write_zeroes_by_hand(self, offset, len)
    }

    /// What stands at `offset`, which is within the disk. A disk that does not know its holes has none.
    ///
    /// # Errors
    /// Those of [`len`](Disk::len).
    fn stretch_at(&self, _offset: u64) -> Result<Stretch> {
        let (end, is_hole) = (self.len()?, false);
        Ok(Stretch { end, is_hole })
    }

    /// Returns once everything written before is durable (content and length).
    ///
    /// # Errors
    /// [`Medium`](crate::ErrorKind::Medium) or [`Device`](crate::ErrorKind::Device): what was written since the last
    /// `sync` may be lost, and no later one says that it is not.
    fn sync(&self) -> Result<()>;

    /// Cuts or extends (with zeros) to `len` bytes.
    ///
    /// # Errors
    /// [`NoSpace`](crate::ErrorKind::NoSpace) for a length that the device cannot hold;
    /// [`Denied`](crate::ErrorKind::Denied) where the disk was opened for reading; [`Device`](crate::ErrorKind::Device)
    /// for a block device.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Has the device keep room for these bytes, which are within its length: a later write of them does not fail for
    /// want of space. What they hold stays. A device that has no such thing does nothing.
    ///
    /// # Errors
    /// [`NoSpace`](crate::ErrorKind::NoSpace); what the device says.
    fn allocate(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    /// Says that these bytes are no longer needed; they read as zeros or as before. A device that cannot make use of
    /// that does nothing.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied) where the disk was opened for reading; what the device says.
    fn discard(&self, offset: u64, len: u64) -> Result<()>;
}

/// Writes zeros as any other bytes.
pub(crate) fn write_zeroes_by_hand<D: Disk + ?Sized>(
    disk: &D,
    offset: u64,
    len: u64,
) -> Result<()> {
    let zeros = crate::PageBuffer::zeroed(len.min(1 << 20) as usize);
    let mut written = 0;
    while written < len {
        let count = (len - written).min(zeros.len() as u64);
        disk.write_at(&zeros[..count as usize], offset + written)?;
        written += count;
    }
    Ok(())
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
/// [`ErrorKind::Denied`](crate::ErrorKind::Denied). Disks and folders within share one space of names. Where a
/// folder stands, what is for a disk fails with [`ErrorKind::NotAFile`](crate::ErrorKind::NotAFile).
///
/// `create`, `rename` and `remove` are atomic, and durable only after `sync` of the folder.
pub trait Dir: Send + Sync {
    /// An existing disk, for reading only.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound); [`Denied`](crate::ErrorKind::Denied);
    /// [`TooManyOpen`](crate::ErrorKind::TooManyOpen); [`NotAFile`](crate::ErrorKind::NotAFile) where the name is a
    /// folder's, a symbolic link's, a pipe's or a socket's.
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>>;

    /// An existing disk, for reading and writing.
    ///
    /// # Errors
    /// Those of [`open`](Dir::open); [`Denied`](crate::ErrorKind::Denied) also for a disk that may only be read.
    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>>;

    /// A new, empty disk, for reading and writing.
    ///
    /// # Errors
    /// [`Exists`](crate::ErrorKind::Exists) where the name is taken; [`NoSpace`](crate::ErrorKind::NoSpace);
    /// [`Denied`](crate::ErrorKind::Denied); [`TooManyOpen`](crate::ErrorKind::TooManyOpen).
    fn create(&self, name: &str) -> Result<Arc<dyn Disk>>;

    /// Renames a disk, replacing one that stood under `to`; or a folder, for which `to` must be free.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) where there is no `from`;
    /// [`NotAFile`](crate::ErrorKind::NotAFile) where a folder stands under `to`, and
    /// [`Device`](crate::ErrorKind::Device) where `from` is one and `to` is not free;
    /// [`Denied`](crate::ErrorKind::Denied). A device that fails may have renamed all the
    /// same.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Renames a disk to a name that is free.
    ///
    /// # Errors
    /// [`Exists`](crate::ErrorKind::Exists) where `to` is taken, by a disk or a folder; otherwise those of
    /// [`rename`](Dir::rename).
    fn rename_new(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a disk. One that is open stays readable through its handles.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound); [`NotAFile`](crate::ErrorKind::NotAFile) for a folder;
    /// [`Denied`](crate::ErrorKind::Denied). A device that fails may have removed it all the same.
    fn remove(&self, name: &str) -> Result<()>;

    /// Everything in the folder, sorted by name. Asks for none by itself: a folder may hold very many.
    ///
    /// # Errors
    /// The folder cannot be read, or ([`NotFound`](crate::ErrorKind::NotFound)) was removed.
    fn list(&self) -> Result<Vec<DirEntry>>;

    /// The bytes of a disk that is not opened for that. Of a folder it means nothing.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) where there is none; what the device says.
    fn len_of(&self, name: &str) -> Result<u64>;

    /// Returns once all creations, renames and removals before are durable.
    ///
    /// # Errors
    /// [`Medium`](crate::ErrorKind::Medium) or [`Device`](crate::ErrorKind::Device): none of them is known to be
    /// durable.
    fn sync(&self) -> Result<()>;

    /// A folder within, made where it is missing (durable after `sync` of this folder).
    ///
    /// # Errors
    /// [`NoSpace`](crate::ErrorKind::NoSpace) or [`Denied`](crate::ErrorKind::Denied) where it cannot be made;
    /// [`Device`](crate::ErrorKind::Device) where the name is a disk's; [`TooManyOpen`](crate::ErrorKind::TooManyOpen).
    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>>;

    /// A folder within.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound); [`Device`](crate::ErrorKind::Device) where the name is a disk's, or a
    /// symbolic link's that is not followed; [`Denied`](crate::ErrorKind::Denied);
    /// [`TooManyOpen`](crate::ErrorKind::TooManyOpen).
    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>>;

    /// Removes an empty folder within.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound); [`Device`](crate::ErrorKind::Device) where it is not empty, or a disk;
    /// [`Denied`](crate::ErrorKind::Denied).
    fn remove_subdir(&self, name: &str) -> Result<()>;

    /// An advisory lock named by the file `name`, which is made where it is missing and never removed by the lock. A
    /// folder in its place serves as well.
    /// `None` where another handle, in this process or another, holds a conflicting one. Freed when the guard drops or
    /// the process dies.
    ///
    /// # Errors
    /// The file can neither be made nor opened: [`Denied`](crate::ErrorKind::Denied),
    /// [`NoSpace`](crate::ErrorKind::NoSpace), [`TooManyOpen`](crate::ErrorKind::TooManyOpen);
    /// [`Device`](crate::ErrorKind::Device) where the file system has no locks. A lock that another holds is no error.
    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>>;
}
