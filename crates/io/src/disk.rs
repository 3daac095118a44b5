//! The two seams to devices: [`Disk`], an array of bytes, and [`Dir`], a folder of disks.

use std::sync::Arc;

use crate::Result;

/// One read of a batch: fill `buf` from `offset`.
pub struct ReadAt<'a> {
    /// Offset on the disk, in bytes.
    pub offset: u64,
    /// The buffer to fill, as a whole.
    pub buf: &'a mut [u8],
}

/// One write of a batch.
#[derive(Clone, Copy)]
pub struct WriteAt<'a> {
    /// Offset on the disk, in bytes.
    pub offset: u64,
    /// The bytes to write, as a whole.
    pub data: &'a [u8],
}

/// A stretch of a disk, from some offset on: data or a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// Offset where the stretch ends, in bytes: something else begins, or the disk ends.
    pub end: u64,
    /// Whether nothing was written there: a hole reads as zeros.
    pub is_hole: bool,
}

/// An array of bytes: a file, a device, memory. Shared between threads; each call is independent of the others.
pub trait Disk: Send + Sync {
    /// The length in bytes.
    ///
    /// # Errors
    /// The device does not tell its length: kind by [`ErrorKind::of`](crate::ErrorKind::of).
    fn len(&self) -> Result<u64>;

    /// Whether the disk holds no byte.
    ///
    /// # Errors
    /// Errors of [`len`](Disk::len).
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// [`Short`](crate::ErrorKind::Short): the disk ends before. [`Medium`](crate::ErrorKind::Medium): these bytes
    /// cannot be read; others may be. All errors name the offset; the content of `buf` is then undefined.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// Does all `reads`, in any order and as many at once as the device takes.
    ///
    /// # Errors
    /// The error of [`read_at`](Disk::read_at) for one of the failed reads; the content of every `buf` is then
    /// undefined.
    fn read_many_at(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        reads
            .iter_mut()
            .try_for_each(|read| self.read_at(read.buf, read.offset))
    }

    /// Announces that these bytes will be read soon, so that they can be read ahead. The call neither waits nor fails.
    fn will_read(&self, _offset: u64, _len: u64) {}

    /// Asks that the next reads come from the device and not from the system's cache: a disk that can drops the cached
    /// data that is durable. The call cannot fail.
    fn forget_cached(&self) {}

    /// The file through which [`read_across`](crate::read_across) reads this disk in one batch with others. `None`: the
    /// disk is read by its own methods.
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

    /// Does all `writes`, which must not overlap, in any order and as many at once as the device takes.
    ///
    /// # Errors
    /// The error of [`write_at`](Disk::write_at) for one of the failed writes; any of the others may be written or not.
    fn write_many_at(&self, writes: &[WriteAt<'_>]) -> Result<()> {
        writes
            .iter()
            .try_for_each(|write| self.write_at(write.data, write.offset))
    }

    /// Makes `len` bytes at `offset` read as zeros, without taking space where the device can do that. The disk grows
    /// at most to the end of these bytes. Durable only after `sync`.
    ///
    /// # Errors
    /// Errors of [`write_at`](Disk::write_at).
    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        write_zeroes_by_hand(self, offset, len)
    }

    /// The stretch at `offset`, which must be within the disk. A disk that does not know its holes has none.
    ///
    /// # Errors
    /// Errors of [`len`](Disk::len).
    fn stretch_at(&self, _offset: u64) -> Result<Stretch> {
        let (end, is_hole) = (self.len()?, false);
        Ok(Stretch { end, is_hole })
    }

    /// Returns once everything written before is durable (content and length).
    ///
    /// # Errors
    /// [`Medium`](crate::ErrorKind::Medium) or [`Device`](crate::ErrorKind::Device): writes since the last `sync` may
    /// be lost, and no later success means that they are not.
    fn sync(&self) -> Result<()>;

    /// Cuts or extends (with zeros) the disk to `len` bytes.
    ///
    /// # Errors
    /// [`NoSpace`](crate::ErrorKind::NoSpace) for a length that the device cannot hold;
    /// [`Denied`](crate::ErrorKind::Denied) where the disk was opened for reading; [`Device`](crate::ErrorKind::Device)
    /// for a block device.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Reserves room for these bytes, which must be within the disk's length: a later write of them does not fail for
    /// lack of space. Their content stays. A device without such a function does nothing.
    ///
    /// # Errors
    /// [`NoSpace`](crate::ErrorKind::NoSpace), or another error of the device.
    fn allocate(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    /// Announces that these bytes are no longer needed; they then read as zeros or as before. A device that has no use
    /// for this does nothing.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied) where the disk was opened for reading, or another error of the device.
    fn discard(&self, offset: u64, len: u64) -> Result<()>;
}

/// Writes zeros like any other bytes.
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

/// An entry of a [`Dir`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// Name of the entry within its folder.
    pub name: String,
    /// Whether the entry is a folder, not a disk.
    pub is_dir: bool,
}

/// The kind of lock that [`Dir::lock`] takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// Many locks at once, but none with an exclusive one.
    Shared,
    /// One lock alone.
    Exclusive,
}

/// A lock, held from [`Dir::lock`] until dropped, or until the process dies in any way.
pub trait LockGuard: Send + Sync {}

/// A folder on a disk, or a simulated one.
///
/// Names hold no `/`, are not `.` or `..`, and have at most 255 bytes; others are
/// [`ErrorKind::Denied`](crate::ErrorKind::Denied). Disks and folders within share one space of names. An operation on
/// a disk fails with [`ErrorKind::NotAFile`](crate::ErrorKind::NotAFile) where a folder has the name.
///
/// `create`, `rename` and `remove` are atomic, and durable only after `sync` of the folder.
pub trait Dir: Send + Sync {
    /// Opens an existing disk for reading only.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound); [`Denied`](crate::ErrorKind::Denied);
    /// [`TooManyOpen`](crate::ErrorKind::TooManyOpen); [`NotAFile`](crate::ErrorKind::NotAFile) where the name is a
    /// folder's, a symbolic link's, a pipe's or a socket's.
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>>;

    /// Opens an existing disk for reading and writing.
    ///
    /// # Errors
    /// Errors of [`open`](Dir::open); [`Denied`](crate::ErrorKind::Denied) also for a disk that may only be read.
    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>>;

    /// Creates a new, empty disk for reading and writing.
    ///
    /// # Errors
    /// [`Exists`](crate::ErrorKind::Exists) where the name is taken; [`NoSpace`](crate::ErrorKind::NoSpace);
    /// [`Denied`](crate::ErrorKind::Denied); [`TooManyOpen`](crate::ErrorKind::TooManyOpen).
    fn create(&self, name: &str) -> Result<Arc<dyn Disk>>;

    /// Renames a disk, replacing a disk named `to`; or a folder, for which `to` must be free.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) where there is no `from`;
    /// [`NotAFile`](crate::ErrorKind::NotAFile) where `to` is a folder, and [`Device`](crate::ErrorKind::Device) where
    /// `from` is one and `to` is not free; [`Denied`](crate::ErrorKind::Denied). After a failure of the device, the
    /// rename may have happened.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Renames a disk to a name that must be free.
    ///
    /// # Errors
    /// [`Exists`](crate::ErrorKind::Exists) where `to` is taken, by a disk or a folder; otherwise the errors of
    /// [`rename`](Dir::rename).
    fn rename_new(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a disk. An open disk stays readable through its handles.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound); [`NotAFile`](crate::ErrorKind::NotAFile) for a folder;
    /// [`Denied`](crate::ErrorKind::Denied). After a failure of the device, the removal may have happened.
    fn remove(&self, name: &str) -> Result<()>;

    /// Lists everything in the folder, sorted by name, without a call for each entry: a folder may hold very many.
    ///
    /// # Errors
    /// The folder cannot be read, or was removed ([`NotFound`](crate::ErrorKind::NotFound)).
    fn list(&self) -> Result<Vec<DirEntry>>;

    /// The length in bytes of a disk, without opening it. For a folder the number means nothing.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) where there is no such name, or another error of the device.
    fn len_of(&self, name: &str) -> Result<u64>;

    /// The time when a disk was last written or [marked as used](Dir::mark_used), in nanoseconds since 1970, or by
    /// another clock that only goes forward. A folder that keeps no such times returns 0.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) where there is no such name, or another error of the device.
    fn used_ns(&self, _name: &str) -> Result<u64> {
        Ok(0)
    }

    /// Marks a disk as used now, for callers that remove what was unused longest. The call cannot fail: a folder that
    /// keeps no such times, or may not be written, does nothing.
    fn mark_used(&self, _name: &str) {}

    /// Returns once all creations, renames and removals before are durable.
    ///
    /// # Errors
    /// [`Medium`](crate::ErrorKind::Medium) or [`Device`](crate::ErrorKind::Device): none of these changes is known to
    /// be durable.
    fn sync(&self) -> Result<()>;

    /// Opens a folder within this one, creating it where it is missing (durable after `sync` of this folder).
    ///
    /// # Errors
    /// [`NoSpace`](crate::ErrorKind::NoSpace) or [`Denied`](crate::ErrorKind::Denied) where it cannot be made;
    /// [`Device`](crate::ErrorKind::Device) where the name is a disk's; [`TooManyOpen`](crate::ErrorKind::TooManyOpen).
    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>>;

    /// Opens an existing folder within this one.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound); [`Device`](crate::ErrorKind::Device) where the name is a disk's, or a
    /// symbolic link's that is not followed; [`Denied`](crate::ErrorKind::Denied);
    /// [`TooManyOpen`](crate::ErrorKind::TooManyOpen).
    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>>;

    /// Removes an empty folder within this one.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound); [`Device`](crate::ErrorKind::Device) where it is not empty, or a disk;
    /// [`Denied`](crate::ErrorKind::Denied).
    fn remove_subdir(&self, name: &str) -> Result<()>;

    /// Takes an advisory lock on the file `name`, which is made where it is missing and never removed by the lock. A
    /// folder of this name serves as well. Returns `None` where another handle, in this process or another, holds a
    /// conflicting lock. The lock is released when the guard is dropped or the process dies.
    ///
    /// # Errors
    /// The file can neither be created nor opened: [`Denied`](crate::ErrorKind::Denied),
    /// [`NoSpace`](crate::ErrorKind::NoSpace), [`TooManyOpen`](crate::ErrorKind::TooManyOpen);
    /// [`Device`](crate::ErrorKind::Device) where the file system has no locks. A lock that another holds is no error.
    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>>;
}
