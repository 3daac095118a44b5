//! Reading one file: open without following links, read what is data and skip holes, cut, and notice when somebody
//! writes meanwhile.
//!
//! Large files whose pages the kernel does not hold are read past the page cache: that takes a fifth of the kernel's
//! time, and leaves in the cache what the machine's real work has put there.

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
use crate::walk::opened::{self, Opened};
use crate::{Kind, Progress, Xattrs};

/// How often a stream that sends nothing is left to see whether anybody still wants what it may send.
const STREAM_LOOK_NS: i64 = 100_000_000;
/// How long a file that somebody has a lease on is left to them before it is tried again, and how often: three seconds
/// in all.
const LEASE_WAIT: Duration = Duration::from_millis(20);
const LEASE_WAITS_MAX: u32 = 150;
/// How long the kernel leaves pages dirty: half a minute by default, and until it gets to them.
const DIRTY_SECS: i64 = 60;
/// How often a hole's end is looked for while others make holes there.
const HOLE_LOOKS_MAX: u32 = 16;
/// Shorter reads are left to the page cache.
const DIRECT_READ_BYTES_MIN: usize = 256 << 10;

/// A file open for reading.
pub struct Source<'a> {
    /// What it is read through.
    pub handle: Arc<Handle>,
    /// Set for streams: their next bytes may never come, so that somebody must be able to end the wait.
    cancel: Option<&'a Progress>,
    /// As it was when it was opened (or looked at, if nobody wrote since).
    pub stat: Stat,
    /// Its extended attributes, or why they cannot be had: its content can be all the same.
    pub xattrs: Result<Xattrs, Errno>,
}

/// What a file is read through, by several threads at once.
pub struct Handle {
    fd: OwnedFd,
    /// A handle past the page cache, once it was asked for; `None` where the file system has none.
    direct: OnceLock<Option<OwnedFd>>,
}

/// How much of a part of a file is in RAM.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cached {
    /// All: it need not even be copied.
    Whole,
    /// So much that reading it is copying rather than waiting for the disk.
    Mostly,
    /// Less.
    Little,
}

/// Opens `name` in `dir` for a backup.
///
/// # Errors
/// `NXIO`: it is no regular file (any more). `LOOP`: a symbolic link. `AGAIN`: who has a lease on it did not give it
/// back in three seconds. Others of the system. That its attributes cannot be had is told in the source.
pub fn open(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Source<'static>, Errno> {
    Ok(open_to_look(dir, name)?.for_backup())
}

/// What was opened for a backup when it was looked at, and looked like `stat`.
pub fn opened(file: Opened, stat: Stat) -> Source<'static> {
    let source = Source {
        stat,
        xattrs: Ok(Xattrs::new()),
        handle: Handle::new(file.into_fd()),
        cancel: None,
    };
    source.for_backup()
}

/// Opens `name` in `dir` for its content alone, without its attributes and without any trace of having read it.
///
/// # Errors
/// Those of [`open`].
pub fn open_to_look(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Source<'static>, Errno> {
    let source = Source::file(open_leased(dir, name)?)?;
    match source.stat.kind {
        Kind::File => Ok(source),
        _ => Err(Errno::NXIO),
    }
}

/// Opens a device or a pipe, also one that a link leads to, without waiting for whoever writes into it.
///
/// # Errors
/// `NXIO`: it is neither (any more), or a device that is not there. Others of the system.
pub fn open_special(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    match Stat::of(&fd)?.kind {
        Kind::Fifo | Kind::CharDevice | Kind::BlockDevice => Ok(fd),
        _ => Err(Errno::NXIO),
    }
}

/// Whether pages of it may still be dirty since it was changed. While they are, who has them mapped changes them again
/// without a fault, and no time tells of it: what comes behind this backup would be in none.
fn is_fresh(stat: &Stat) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs() as i64);
    stat.ctime.secs > now.saturating_sub(DIRTY_SECS)
}

/// Opens. Whoever has a lease on the file (a file server does, for a client that writes) is told to give it back by the
/// first try, and has some seconds to do so.
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
    /// What is open already; its attributes are not looked at.
    ///
    /// # Errors
    /// Those of `fstat`, as of a server that is gone.
    pub fn file(fd: OwnedFd) -> Result<Self, Errno> {
        Ok(Self {
            stat: Stat::of(&fd)?,
            xattrs: Ok(Xattrs::new()),
            handle: Handle::new(fd),
            cancel: None,
        })
    }

    /// With its attributes, and such that what is written from now on shows in its times.
    fn for_backup(mut self) -> Self {
        if is_fresh(&self.stat) {
            begin_write_back(self.handle.fd.as_fd());
        }
        self.xattrs = xattrs_of(self.handle.fd.as_fd());
        self
    }

    /// A pipe or other stream, which becomes a file that looks like `stat`. Its reads end with `CANCELED` soon after
    /// `cancel` says so.
    pub fn stream(fd: OwnedFd, stat: Stat, cancel: &'a Progress) -> Self {
        Self {
            handle: Handle::new(fd),
            cancel: Some(cancel),
            stat,
            xattrs: Ok(Xattrs::new()),
        }
    }

    /// Whether somebody wrote since it was opened.
    ///
    /// # Errors
    /// Those of `fstat`, as of a server that is gone.
    pub fn changed(&self) -> Result<bool, Errno> {
        Ok(!Stat::of(&self.handle.fd)?.same_content(&self.stat))
    }

    /// Whether nobody wrote since it was looked at, and it is still what `name` in `dir` stands for. What else changed
    /// counts as it is by now, but of another ctime nothing does: the next backup is to see that it is another one.
    pub fn is_as_it_was(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> bool {
        let now = Stat::of(&self.handle.fd).ok();
        let Some(now) = now.filter(|now| now.same_content(&self.stat)) else {
            return false;
        };
        if now.ctime == self.stat.ctime {
            self.stat = now;
            return true;
        }
        // A file that is removed, or renamed, has another ctime as well.
        Stat::at(dir, name, false).is_ok_and(|there| there.same_content(&self.stat))
    }

    /// Looks again, before it is read again.
    ///
    /// # Errors
    /// Those of `fstat` and `lseek`. That its attributes cannot be had is told in the source.
    pub fn look_again(&mut self) -> Result<(), Errno> {
        self.stat = Stat::of(&self.handle.fd)?;
        self.xattrs = xattrs_of(self.handle.fd.as_fd());
        rustix::fs::seek(&self.handle.fd, SeekFrom::Start(0)).map(drop)
    }

    /// Whether it may have holes: fewer blocks than its size needs.
    pub fn may_have_holes(&self) -> bool {
        self.stat.blocks.saturating_mul(512) < self.stat.size
    }

    /// Tells the kernel that all of it will be read in order.
    pub fn read_ahead(&self) {
        // Advice only: a file system that takes none is read all the same.
        let _ = rustix::fs::fadvise(&self.handle.fd, 0, None, Advice::Sequential);
    }

    /// Whether it is to be read on until it ends, not at places: where that is, is not known.
    pub fn is_stream(&self) -> bool {
        self.cancel.is_some() || self.stat.size == 0
    }

    /// Reads on until `buf` is full or the end is there.
    ///
    /// # Errors
    /// Those of [`read`](Self::read); what was read before is in `buf`, and passed.
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

    /// Reads on into `buf`; 0 at the end.
    ///
    /// # Errors
    /// `CANCELED` of a stream that nobody waits for any more; those of the system, as `IO` for a bad sector.
    pub fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        loop {
            if let Some(cancel) = self.cancel {
                wait_for_bytes(self.handle.fd.as_fd(), cancel)?;
            }
            match unless_interrupted(|| rustix::io::read(&self.handle.fd, &mut *buf)) {
                // Somebody else has taken what was there.
                Err(Errno::AGAIN) if self.cancel.is_some() => {}
                other => return other,
            }
        }
    }

    /// The next data at or after `at`, up to the file's end as it was when it was opened; empty where only a hole is
    /// left.
    ///
    /// # Errors
    /// Those of [`data_from`](Self::data_from).
    pub fn run_from(&self, at: u64) -> Result<Range<u64>, Errno> {
        let size = match self.stat.size {
            // So says one that is not, too.
            0 => u64::MAX,
            size => size,
        };
        if !self.may_have_holes() {
            return Ok(at..size);
        }
        let data = self.data_from(at)?.filter(|data| data.start < size);
        Ok(data.map_or(size..size, |data| data.start..data.end.min(size)))
    }

    /// At most so many of its bytes are data.
    pub fn data_bytes_max(&self) -> u64 {
        match self.stat.blocks {
            // So say some file systems of all files.
            0 => self.stat.size,
            blocks => blocks.saturating_mul(512).min(self.stat.size),
        }
    }

    /// Whether all of its data but a little is in RAM, as far as the kernel tells; what is there of its holes counts
    /// for nothing.
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

    /// Where the next data at or after `at` begins and ends; never empty, and `None` where only a hole is left.
    ///
    /// # Errors
    /// Those of `lseek`. A file system that knows no holes is none of them: all is data.
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
            // Where that is at the data's start, somebody has made a hole of it since.
            end = match seek(SeekFrom::Hole(start)) {
                // Cut short since: what is left is as a hole, and the file has changed.
                Err(Errno::NXIO) => return Ok(None),
                other => other?,
            };
            looks -= 1;
        }
        seek(SeekFrom::Start(start))?;
        // Of a hole that comes as often as it is looked for, the zeros are read.
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

    /// Reads `len` bytes at `offset` into the front of `buf`; fewer where it ends. Of what comes from the disk, past
    /// the page cache where the place and `buf` allow that; then `buf` is written to up to the next page's end.
    ///
    /// # Errors
    /// Those of the system, as `IO` for a bad sector; what `buf` holds then means nothing.
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
                        // The device wants a coarser place than a page.
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

    /// The handle past the page cache, if a read there is worth it.
    fn direct_for(&self, buf: &[u8], len: usize, offset: u64) -> Option<&OwnedFd> {
        let aligned = (offset as usize | buf.as_ptr().addr()).is_multiple_of(DIRECT_ALIGN)
            && len.next_multiple_of(DIRECT_ALIGN) <= buf.len();
        if !aligned || len < DIRECT_READ_BYTES_MIN {
            return None;
        }
        let open = || {
            let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
            // Only its owner may read a file without a trace.
            let open = |more| rustix::fs::open(&path, flags | more, Mode::empty());
            open(OFlags::NOATIME)
                .or_else(|_| open(OFlags::empty()))
                .ok()
        };
        self.direct.get_or_init(open).as_ref()
    }

    /// How much of this is in RAM; `None` where the kernel does not say.
    pub fn cached(&self, offset: u64, len: usize) -> Option<Cached> {
        let cached = onefold_io::os::cached_bytes(self.fd.as_fd(), offset, len as u64)?;
        Some(match cached {
            cached if cached >= len as u64 => Cached::Whole,
            cached if cached >= len as u64 / 4 => Cached::Mostly,
            _ => Cached::Little,
        })
    }

    /// `len` bytes from `offset` on, which begins a page, where they are in RAM; `None` where that cannot be.
    pub fn window(&self, offset: u64, len: usize) -> Option<FileWindow> {
        FileWindow::map(self.fd.as_fd(), offset, len)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
        unless_interrupted(|| rustix::io::pread(&self.fd, &mut *buf, offset))
    }
}

/// Waits until a read would not: bytes, an end or an error are there.
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

/// Cuts as much of `data` as is sure: all of it where the stream ends with it, else until less than a longest chunk is
/// left. Appends the chunks' lengths; returns how many bytes they cover.
pub fn cut(chunker: &mut dyn Chunker, data: &[u8], ends: bool, lengths: &mut Vec<u32>) -> usize {
    chunker.cuts(data, ends, &mut |len| lengths.push(len as u32))
}

#[cfg(test)]
mod tests;
