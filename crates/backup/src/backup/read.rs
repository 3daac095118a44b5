//! Reads one file: opens it without following links, reads data and skips holes, cuts, and notices when another program
//! writes meanwhile.
//!
//! Large files whose pages the kernel does not hold are read past the page cache: that takes a fifth of the kernel's
//! time, and leaves in the cache the pages that the machine's real work has put there.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use onefold_chunk::Chunker;
use onefold_io::os::{FileWindow, begin_write_back};
use onefold_io::{DIRECT_ALIGN, unless_interrupted};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Advice, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::meta::{Stat, xattrs_of};
use crate::walk::opened::{self, OpenedFile};
use crate::{Kind, Progress, Xattrs};

/// Interval at which a silent stream is left, in nanoseconds, to see whether its bytes are still wanted.
const STREAM_LOOK_NS: i64 = 100_000_000;
/// Wait before a leased file is tried again, and number of tries: the holder of the lease has three seconds in all.
const LEASE_WAIT: Duration = Duration::from_millis(20);
const LEASE_WAITS_MAX: u32 = 150;
/// Seconds for which the kernel may leave pages dirty: half a minute by default, and until it gets to them.
const DIRTY_SECS: i64 = 60;
/// Times that a hole's end is looked for while other programs make holes there.
const HOLE_LOOKS_MAX: u32 = 16;
/// Least bytes of a read past the page cache; shorter reads go through it.
const DIRECT_READ_BYTES_MIN: usize = 256 << 10;

/// A file open for reading.
pub struct Source<'a> {
    /// Handle that the file is read through.
    pub handle: Arc<Handle>,
    /// Cancellation, set for streams: their next bytes may never come, so the wait must be able to end.
    cancel: Option<&'a Progress>,
    /// Result of `stat` when the file was opened (or looked at, if nothing was written since).
    pub stat: Stat,
    /// Extended attributes, or why they cannot be had; the content may be readable all the same.
    pub xattrs: Result<Xattrs, Errno>,
}

/// An open file that several threads read at once.
pub struct Handle {
    fd: OwnedFd,
    /// Handle that reads past the page cache, once it was asked for; `None` where the file system has none.
    direct: OnceLock<Option<OwnedFd>>,
}

/// Share of a part of a file that is in RAM.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cached {
    /// All of it: it need not even be copied.
    Whole,
    /// A quarter of it or more: reading means copying rather than waiting for the disk.
    Mostly,
    /// Less of it.
    Little,
}

/// Opens `name` in `dir` for a backup.
///
/// # Errors
/// `NXIO`: the name is no regular file (any more). `LOOP`: it is a symbolic link. `AGAIN`: another program has a lease
/// on it and did not give it back in three seconds. Others of the system. A failure to read attributes is kept in the
/// source.
pub fn open(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Source<'static>, Errno> {
    Ok(open_to_look(dir, name)?.for_backup())
}

/// Makes a source of a file that was opened earlier to be looked at, and looked like `stat`.
pub fn opened(file: OpenedFile, stat: Stat) -> Source<'static> {
    let source = Source {
        stat,
        xattrs: Ok(Xattrs::new()),
        handle: Handle::new(file.into_fd()),
        cancel: None,
    };
    source.for_backup()
}

/// Opens `name` in `dir` for its content alone: without its attributes, and without writing dirty pages back.
///
/// # Errors
/// Errors of [`open`].
pub fn open_to_look(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Source<'static>, Errno> {
    let source = Source::file(open_leased(dir, name)?)?;
    match source.stat.kind {
        Kind::File => Ok(source),
        _ => Err(Errno::NXIO),
    }
}

/// Opens a device or a pipe, also through a link, without waiting for a program that writes into it.
///
/// # Errors
/// `NXIO`: the name is neither (any more), or a device that is not there. Others of the system.
pub fn open_special(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    match Stat::of(&fd)?.kind {
        Kind::Fifo | Kind::CharDevice | Kind::BlockDevice => Ok(fd),
        _ => Err(Errno::NXIO),
    }
}

/// Whether pages of the file may still be dirty since it was changed. While they are dirty, a program that has them
/// mapped changes them again without a fault, and no time shows it: such a change would be in no later backup.
fn is_fresh(stat: &Stat) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs() as i64);
    stat.ctime.secs > now.saturating_sub(DIRTY_SECS)
}

/// Opens the file. The first try tells the holder of a lease (a file server, for a client that writes) to give it back;
/// the holder has some seconds to do so.
fn open_leased(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let mut waits = LEASE_WAITS_MAX;
    loop {
        match opened::open(dir, name) {
            Err(Errno::AGAIN) if waits > 0 => {
                waits -= 1;
                std::thread::sleep(LEASE_WAIT);
            }
            other => return other,
        }
    }
}

impl<'a> Source<'a> {
    /// Makes a source of a file that is open already; its attributes are not read.
    ///
    /// # Errors
    /// Errors of `fstat`, for example of a server that is gone.
    pub fn file(fd: OwnedFd) -> Result<Self, Errno> {
        Ok(Self {
            stat: Stat::of(&fd)?,
            xattrs: Ok(Xattrs::new()),
            handle: Handle::new(fd),
            cancel: None,
        })
    }

    /// Reads the attributes, and has dirty pages written back, so that later writes show in the file's times.
    fn for_backup(mut self) -> Self {
        if is_fresh(&self.stat) {
            begin_write_back(self.handle.fd.as_fd());
        }
        self.xattrs = xattrs_of(self.handle.fd.as_fd());
        self
    }

    /// Makes a source of a pipe or other stream, which becomes a file that looks like `stat`. Its reads end with
    /// `CANCELED` soon after `cancel` says so.
    pub fn stream(fd: OwnedFd, stat: Stat, cancel: &'a Progress) -> Self {
        Self {
            handle: Handle::new(fd),
            cancel: Some(cancel),
            stat,
            xattrs: Ok(Xattrs::new()),
        }
    }

    /// Whether the file was written to since it was opened.
    ///
    /// # Errors
    /// Errors of `fstat`, for example of a server that is gone.
    pub fn changed(&self) -> Result<bool, Errno> {
        Ok(!Stat::of(&self.handle.fd)?.same_content(&self.stat))
    }

    /// Whether the content is unchanged since the file was looked at, and `name` in `dir` still stands for it. Changed
    /// properties other than the content are taken over, but the earlier ctime is kept: the next backup is to see that
    /// the ctime changed.
    pub fn is_as_it_was(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> bool {
        let now = Stat::of(&self.handle.fd).ok();
        let Some(now) = now.filter(|now| now.same_content(&self.stat)) else {
            return false;
        };
        if now.ctime == self.stat.ctime {
            self.stat = now;
            return true;
        }
        // A file that was removed or renamed has another ctime as well.
        Stat::at(dir, name, false).is_ok_and(|there| there.same_content(&self.stat))
    }

    /// Looks at the file again, before it is read again.
    ///
    /// # Errors
    /// Errors of `fstat` and `lseek`. A failure to read attributes is kept in the source.
    pub fn look_again(&mut self) -> Result<(), Errno> {
        self.stat = Stat::of(&self.handle.fd)?;
        self.xattrs = xattrs_of(self.handle.fd.as_fd());
        rustix::fs::seek(&self.handle.fd, SeekFrom::Start(0)).map(drop)
    }

    /// Whether the file may have holes: it has fewer blocks than its size needs.
    pub fn may_have_holes(&self) -> bool {
        self.stat.blocks.saturating_mul(512) < self.stat.size
    }

    /// Tells the kernel that the whole file will be read in order.
    pub fn read_ahead(&self) {
        // This is advice: a file system that ignores it is read all the same.
        let _ = rustix::fs::fadvise(&self.handle.fd, 0, None, Advice::Sequential);
    }

    /// Whether the file is read from front to back until it ends, since its length is not known.
    pub fn is_stream(&self) -> bool {
        self.cancel.is_some() || self.stat.size == 0
    }

    /// Reads on until `buf` is full or the file ends; returns the bytes that were read.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read). Bytes that were read before the error are in `buf`, and passed.
    pub fn read_fully(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.read(&mut buf[filled..])? {
                0 => break,
                n => filled += n,
            }
        }
        Ok(filled)
    }

    /// Reads on into `buf`; returns the bytes that were read, 0 at the end.
    ///
    /// # Errors
    /// `CANCELED` for a stream that was cancelled; those of the system, such as `IO` for a bad sector.
    pub fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        loop {
            if let Some(cancel) = self.cancel {
                wait_for_bytes(self.handle.fd.as_fd(), cancel)?;
            }
            match unless_interrupted(|| rustix::io::read(&self.handle.fd, &mut *buf)) {
                // Another program has taken the bytes that were there.
                Err(Errno::AGAIN) if self.cancel.is_some() => {}
                other => return other,
            }
        }
    }

    /// Returns the next data at or after `at`, up to the size that the file had when it was opened; empty where only a
    /// hole is left.
    ///
    /// # Errors
    /// Errors of [`data_from`](Self::data_from).
    pub fn run_from(&self, at: u64) -> Result<Range<u64>, Errno> {
        let size = match self.stat.size {
            // A size of 0 may also be that of a file that does not tell its size.
            0 => u64::MAX,
            size => size,
        };
        if !self.may_have_holes() {
            return Ok(at..size);
        }
        let data = self.data_from(at)?.filter(|data| data.start < size);
        Ok(data.map_or(size..size, |data| data.start..data.end.min(size)))
    }

    /// Upper bound of the bytes that are data and not hole.
    pub fn data_bytes_max(&self) -> u64 {
        match self.stat.blocks {
            // Some file systems claim 0 blocks for all files.
            0 => self.stat.size,
            blocks => blocks.saturating_mul(512).min(self.stat.size),
        }
    }

    /// Whether all of the file's data except a sixteenth is in RAM, as far as the kernel tells. Holes do not count.
    pub fn is_nearly_cached(&self) -> bool {
        let mut may_be_missing = self.data_bytes_max() / 16;
        let mut at = 0;
        while let Ok(data) = self.run_from(at) {
            let len = data.end - data.start;
            if len == 0 {
                return true;
            }
            let cached = onefold_io::os::cached_bytes(self.handle.fd.as_fd(), data.start, len);
            let missing = cached.map_or(u64::MAX, |cached| len.saturating_sub(cached));
            let Some(rest) = may_be_missing.checked_sub(missing) else {
                return false;
            };
            (may_be_missing, at) = (rest, data.end);
        }
        false
    }

    /// Returns the range of the next data at or after `at`; never empty, and `None` where only a hole is left.
    ///
    /// # Errors
    /// Errors of `lseek`. A file system without holes is no error: all of the file is data.
    pub fn data_from(&self, at: u64) -> Result<Option<Range<u64>>, Errno> {
        let seek = |to| rustix::fs::seek(&self.handle.fd, to);
        let (mut start, mut end) = (at, at);
        let mut looks = HOLE_LOOKS_MAX;
        while end <= start && looks > 0 {
            start = match seek(SeekFrom::Data(start)) {
                Ok(start) => start,
                Err(Errno::NXIO) => return Ok(None),
                Err(Errno::INVAL) => return Ok(Some(at..u64::MAX)),
                Err(e) => return Err(e),
            };
            // A hole at the very start of the data was made by another program just now: look again.
            end = match seek(SeekFrom::Hole(start)) {
                // The file was cut short just now: the rest counts as a hole, and the file as changed.
                Err(Errno::NXIO) => return Ok(None),
                other => other?,
            };
            looks -= 1;
        }
        seek(SeekFrom::Start(start))?;
        // Holes that keep coming are read as zeros.
        Ok(Some(start..if end > start { end } else { u64::MAX }))
    }
}

impl std::io::Read for Source<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        Ok(Source::read(self, buf)?)
    }
}

impl Handle {
    fn new(fd: OwnedFd) -> Arc<Self> {
        Arc::new(Self {
            fd,
            direct: OnceLock::new(),
        })
    }

    /// Reads `len` bytes at `offset` into the front of `buf`; returns the bytes that were read, fewer at the file's
    /// end. Bytes that come from the disk are read past the page cache where offset and `buf` allow that; then `buf` is
    /// written to up to the end of the next page.
    ///
    /// # Errors
    /// Errors of the system, such as `IO` for a bad sector; then the contents of `buf` mean nothing.
    pub fn fill(
        &self,
        buf: &mut [u8],
        len: usize,
        offset: u64,
        from_disk: bool,
    ) -> Result<usize, Errno> {
        let mut filled = 0;
        while filled < len {
            let at = offset + filled as u64;
            let direct = from_disk.then(|| self.direct_for(&buf[filled..], len - filled, at));
            let got = match direct.flatten() {
                Some(direct) => {
                    let end = buf
                        .len()
                        .min(filled + (len - filled).next_multiple_of(DIRECT_ALIGN));
                    let part = &mut buf[filled..end];
                    match unless_interrupted(|| rustix::io::pread(direct, &mut *part, at)) {
                        // The device needs a coarser alignment than a page.
                        Err(Errno::INVAL) => self.read_at(&mut buf[filled..len], at)?,
                        other => other?.min(len - filled),
                    }
                }
                None => self.read_at(&mut buf[filled..len], at)?,
            };
            if got == 0 {
                break;
            }
            filled += got;
        }
        Ok(filled)
    }

    /// Returns the handle past the page cache, if a read of this place is worth it.
    fn direct_for(&self, buf: &[u8], len: usize, offset: u64) -> Option<&OwnedFd> {
        let aligned = (offset as usize | buf.as_ptr().addr()).is_multiple_of(DIRECT_ALIGN)
            && len.next_multiple_of(DIRECT_ALIGN) <= buf.len();
        if !aligned || len < DIRECT_READ_BYTES_MIN {
            return None;
        }
        let open = || {
            let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
            // Only the file's owner may open it with `NOATIME`.
            let open = |more| rustix::fs::open(&path, flags | more, Mode::empty());
            open(OFlags::NOATIME)
                .or_else(|_| open(OFlags::empty()))
                .ok()
        };
        self.direct.get_or_init(open).as_ref()
    }

    /// Returns how much of this range is in RAM; `None` where the kernel does not say.
    pub fn cached(&self, offset: u64, len: usize) -> Option<Cached> {
        let cached = onefold_io::os::cached_bytes(self.fd.as_fd(), offset, len as u64)?;
        Some(match cached {
            cached if cached >= len as u64 => Cached::Whole,
            cached if cached >= len as u64 / 4 => Cached::Mostly,
            _ => Cached::Little,
        })
    }

    /// Maps `len` bytes from `offset` on, which must begin a page; `None` where that is not possible.
    pub fn window(&self, offset: u64, len: usize) -> Option<FileWindow> {
        FileWindow::map(self.fd.as_fd(), offset, len)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
        unless_interrupted(|| rustix::io::pread(&self.fd, &mut *buf, offset))
    }
}

/// Waits until a read would not block: bytes, an end or an error are there.
fn wait_for_bytes(fd: BorrowedFd<'_>, cancel: &Progress) -> Result<(), Errno> {
    let look = Timespec {
        tv_sec: 0,
        tv_nsec: STREAM_LOOK_NS,
    };
    while !cancel.is_over() {
        match poll(
            &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
            Some(&look),
        ) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(e) => return Err(e),
        }
    }
    Err(Errno::CANCELED)
}

/// Splits the front of `buffer` into chunks of these lengths.
pub fn pieces(
    mut buffer: &[u8],
    lengths: impl Iterator<Item = u32>,
) -> impl Iterator<Item = &[u8]> {
    lengths.map(move |len| {
        let (piece, rest) = buffer.split_at(len as usize);
        buffer = rest;
        piece
    })
}

/// Cuts `data` as far as the cuts are certain: all of it where the stream ends with it, else until less than a longest
/// chunk is left. Appends the chunks' lengths; returns how many bytes they cover.
pub fn cut(chunker: &mut dyn Chunker, data: &[u8], ends: bool, lengths: &mut Vec<u32>) -> usize {
    chunker.cuts(data, ends, &mut |len| lengths.push(len as u32))
}

#[cfg(test)]
mod tests;
