//! Files and block devices as disks.

use std::{
    fs::File,
    num::NonZeroU64,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::FileExt,
    },
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fs::{Advice, FallocateFlags, FileType, Mode, OFlags, SeekFrom},
    io::Errno,
};

use super::{
    flock::FileLock,
    turns::{Turns, WriteMode},
};
use crate::{
    BatchFile, Disk, Error, ErrorKind, ReadAt, Result, Stretch, WriteAt,
    aligned::{is_misaligned, read_through, whole_pages, write_pages},
    batch::{self, BatchError, Batching},
    batch_piece::BatchPiece,
    disk::write_zeroes_by_hand,
    os::cached_bytes,
    read_fully::read_fully,
    unless_interrupted,
    uring::{self, WritePiece},
};

/// Smallest write in bytes that goes past the page cache.
///
/// Measured on a virtual NVMe disk with ext4, 1 GiB as 16 MiB files that are each synced: 830–950 MB/s and 0.1 s of CPU
/// past the cache, 420–440 MB/s and 0.8 s through it, 250–400 MB/s with early `sync_file_range`. Containers and merged
/// runs are written once, in large pieces, and synced at once: the cache would only be a detour.
const DIRECT_WRITE_BYTES_MIN: usize = 256 << 10;

/// Smallest read in bytes that goes past the page cache, where that does not hold the data.
///
/// Measured on a virtual disk with ext4: 1.1 to 1.4 GB/s through the cache with 1 s of CPU per GiB, most of it copying
/// out of pages that were just filled, 1.8 GB/s and a fifth of that past it.
const DIRECT_READ_BYTES_MIN: usize = 512 << 10;

/// A file or a block device.
pub struct FileDisk {
    file: File,
    path: String,
    sync_failed: AtomicBool,
    batching: Batching,
    /// A handle past the page cache, opened by the first large read or write; `None` where the file system has none.
    direct: OnceLock<Option<File>>,
    turns: Turns,
    /// Held where the disk was [opened alone](FileDisk::open_alone) and is no block device.
    _claim: Option<FileLock>,
}

impl FileDisk {
    /// Opens an existing file or block device at any path, for reading only.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Denied`]; [`ErrorKind::TooManyOpen`]; [`ErrorKind::Device`] for a folder.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_path(path, false)
    }

    /// Opens an existing file or block device at any path, for reading and writing.
    ///
    /// # Errors
    /// Errors of [`open`](Self::open); [`ErrorKind::Denied`] also for a file that may only be read.
    pub fn open_write(path: &Path) -> Result<Self> {
        Self::open_path(path, true)
    }

    /// A disk over an open file from any source, with any access; `path` is for errors.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] for a folder, or where the system does not tell the kind of the file.
    pub fn from_file(file: File, path: impl Into<String>) -> Result<Self> {
        Self::new(file, path.into())
    }

    fn open_path(path: &Path, writable: bool) -> Result<Self> {
        let shown = path.display().to_string();
        let access = if writable {
            OFlags::RDWR
        } else {
            OFlags::RDONLY
        };
        let open = || rustix::fs::open(path, access | OFlags::CLOEXEC, Mode::empty());
        let file = unless_interrupted(open).map_err(|e| Error::from_io("open", &shown, e))?;
        Self::new(File::from(file), shown)
    }

    pub(super) fn new(file: File, path: String) -> Result<Self> {
        let kind = file
            .metadata()
            .map_err(|e| Error::from_io("open", &path, e))?
            .file_type();
        if kind.is_dir() {
            return Err(Error::new("open", path, ErrorKind::NotAFile, "is a folder"));
        }
        Ok(Self {
            file,
            path,
            sync_failed: AtomicBool::new(false),
            batching: Batching::default(),
            direct: OnceLock::new(),
            turns: Turns::default(),
            _claim: None,
        })
    }

    /// This disk, which holds `claim` until it is dropped.
    pub(super) fn claimed(self, claim: Option<FileLock>) -> Self {
        Self {
            _claim: claim,
            ..self
        }
    }

    /// This disk with another method for batches.
    #[must_use]
    pub fn batched(self, batching: Batching) -> Self {
        Self { batching, ..self }
    }

    /// The method by which batches are read.
    pub fn batching(&self) -> Batching {
        self.batching
    }

    /// The path that errors name.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Writes whole pages through `direct`, a handle on the same file past the page cache, and the rest through the
    /// cache, which the kernel keeps coherent.
    pub(crate) fn write_past_cache(&self, direct: &File, data: &[u8], offset: u64) -> Result<()> {
        let pages = whole_pages(offset, data.len());
        if pages.is_empty() {
            return self.write_cached(data, offset);
        }
        let (head, tail) = (&data[..pages.start], &data[pages.end..]);
        self.write_cached(head, offset)?;
        let at = offset + pages.start as u64;
        let turn = self.turns.take(WriteMode::Direct);
        let written = write_pages(direct, &data[pages.clone()], at);
        drop(turn);
        match written {
            Err(e) if is_misaligned(&e) => self.write_cached(&data[pages.clone()], at)?,
            done => done.map_err(|e| self.fail("write", e).at(at))?,
        }
        self.write_cached(tail, offset + pages.end as u64)
    }

    /// Writes `writes`, which are aligned and do not overlap, through `direct`, a handle past the page cache, side by
    /// side. Returns the writes that failed; an ordinary write then finds out what is wrong.
    pub(crate) fn write_by_ring<'a>(
        &self,
        direct: &'a File,
        writes: Vec<WriteAt<'a>>,
    ) -> Vec<WriteAt<'a>> {
        if writes.len() < 2 || matches!(self.batching, Batching::Sequential | Batching::Threads) {
            return writes;
        }
        let Some(ring) = uring::take_ring() else {
            return writes;
        };
        let file = direct;
        let pieces = writes
            .into_iter()
            .map(|WriteAt { offset, data }| WritePiece { file, offset, data });
        let _turn = self.turns.take(WriteMode::Direct);
        uring::write(ring, pieces.collect())
            .into_iter()
            .map(|WritePiece { offset, data, .. }| WriteAt { offset, data })
            .collect()
    }

    /// Makes the file system or the device create zeros, without writing them; `false` where it cannot.
    pub(crate) fn zero_in_place(&self, offset: u64, len: u64) -> Result<bool> {
        // A hole in a file reads as zeros; a device that discards promises nothing, so the kernel refuses there.
        let is_within = |end: u64| Ok::<_, Error>(end <= self.len()?);
        if len == 0 || !offset.checked_add(len).map_or(Ok(false), is_within)? {
            return Ok(len == 0);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let zero = || rustix::fs::fallocate(&self.file, flags, offset, len);
        match unless_interrupted(zero) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
            Err(e) => Err(self.fail("write zeroes to", e).at(offset)),
        }
    }

    /// The handle on the same file past the page cache, where the file system has one.
    fn direct(&self) -> Option<&File> {
        let open = || self.reopen(OFlags::DIRECT).ok();
        self.direct.get_or_init(open).as_ref()
    }

    /// The handle past the page cache, if it suits this read: a long one, whose data is not in the page cache.
    fn direct_for_read(&self, offset: u64, len: usize) -> Option<&File> {
        if len < DIRECT_READ_BYTES_MIN {
            return None;
        }
        let cached = cached_bytes(self.file.as_fd(), offset, len as u64)?;
        if cached >= len as u64 / 4 {
            return None;
        }
        self.direct()
    }

    fn write_cached(&self, data: &[u8], offset: u64) -> Result<()> {
        let _turn = self.turns.take(WriteMode::Cached);
        self.file
            .write_all_at(data, offset)
            .map_err(|e| self.fail("write", e).at(offset))
    }

    /// Opens another handle on the same file, for the same accesses, with `more` flags.
    pub(crate) fn reopen(&self, more: OFlags) -> std::result::Result<File, Errno> {
        let access = rustix::fs::fcntl_getfl(&self.file)? & OFlags::RWMODE;
        // The path under /proc needs no name: the file may have been renamed or removed.
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::open(path, access | more | OFlags::CLOEXEC, Mode::empty()).map(File::from)
    }

    fn fail(&self, op: &'static str, source: impl Into<std::io::Error>) -> Error {
        Error::from_io(op, &self.path, source)
    }

    /// The error for a disk that ends too early, or for a disk that does not tell its length.
    fn short(&self, offset: u64, wanted: usize) -> Error {
        match self.len() {
            Ok(len) => Error::short(&self.path, offset, wanted, len),
            Err(error) => error,
        }
    }

    fn is_read_only(&self) -> bool {
        let flags = rustix::fs::fcntl_getfl(&self.file);
        flags.is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDONLY)
    }
}

impl Disk for FileDisk {
    fn len(&self) -> Result<u64> {
        let stat = rustix::fs::fstat(&self.file).map_err(|e| self.fail("stat", e))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
            return rustix::fs::seek(&self.file, SeekFrom::End(0))
                .map_err(|e| self.fail("seek", e));
        }
        Ok(stat.st_size as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let past_cache = self
            .direct_for_read(offset, buf.len())
            .map(|direct| read_through(direct, buf, offset))
            .filter(|done| !done.as_ref().is_err_and(is_misaligned));
        let through_cache = || read_fully(buf, offset, |part, at| self.file.read_at(part, at));
        match past_cache.unwrap_or_else(through_cache) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.short(offset, buf.len())),
            Err(e) => Err(self.fail("read", e).at(offset)),
        }
    }

    fn read_many_at(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        let mut pieces: Vec<BatchPiece> = reads
            .iter_mut()
            .map(|ReadAt { offset, buf }| BatchPiece {
                file: &self.file,
                cached: true,
                offset: *offset,
                need: buf.len(),
                buf,
            })
            .collect();
        batch::read(&mut pieces, self.batching).map_err(|e| match e {
            BatchError::Short(i) => self.short(pieces[i].offset, pieces[i].need),
            BatchError::System(i, e) => self.fail("read", e).at(pieces[i].offset),
        })
    }

    /// Tells the kernel to read the bytes into the page cache.
    fn will_read(&self, offset: u64, len: u64) {
        // a length of 0 would mean the whole file
        if let Some(len) = NonZeroU64::new(len) {
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), Advice::WillNeed);
        }
    }

    /// Tells the kernel to drop the file's pages that are written back and not mapped.
    fn forget_cached(&self) {
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
    }

    fn batch_file(&self) -> Option<BatchFile<'_>> {
        Some(BatchFile {
            file: &self.file,
            align: 1,
            how: self.batching,
        })
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        if data.len() >= DIRECT_WRITE_BYTES_MIN
            && let Some(direct) = self.direct()
        {
            return self.write_past_cache(direct, data, offset);
        }
        self.write_cached(data, offset)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        if self.zero_in_place(offset, len)? {
            Ok(())
        } else {
            write_zeroes_by_hand(self, offset, len)
        }
    }

    fn stretch_at(&self, offset: u64) -> Result<Stretch> {
        let (len, data) = (
            self.len()?,
            rustix::fs::seek(&self.file, SeekFrom::Data(offset)),
        );
        let (end, is_hole) = match data {
            Ok(data) if data > offset => (data, true),
            Ok(_) => (
                rustix::fs::seek(&self.file, SeekFrom::Hole(offset)).unwrap_or(len),
                false,
            ),
            Err(Errno::NXIO) => (len, true),
            // the file system does not know its holes
            Err(_) => (len, false),
        };
        Ok(Stretch { end, is_hole })
    }

    fn sync(&self) -> Result<()> {
        if self.sync_failed.load(Ordering::Acquire) {
            return Err(Error::new(
                "sync",
                &self.path,
                ErrorKind::Device,
                "an earlier sync failed, so bytes may be lost",
            ));
        }
        rustix::fs::fdatasync(&self.file).map_err(|e| {
            self.sync_failed.store(true, Ordering::Release);
            self.fail("sync", e)
        })
    }

    fn set_len(&self, len: u64) -> Result<()> {
        rustix::fs::ftruncate(&self.file, len).map_err(|e| {
            let error = self.fail("set length of", e);
            // the errno of a read-only file is the same as that of an impossible length
            if e == Errno::INVAL && self.is_read_only() {
                Error {
                    kind: ErrorKind::Denied,
                    what: "opened for reading only".into(),
                    ..error
                }
            } else {
                error
            }
        })
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        // block devices have all their room, and some refuse
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => Ok(()),
            Err(e) => Err(self.fail("allocate", e).at(offset)),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(
            &self.file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            offset,
            len,
        ) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(e) => Err(self.fail("discard", e).at(offset)),
        }
    }
}
