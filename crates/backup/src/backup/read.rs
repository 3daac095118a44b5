//! Reading one file: open without following links, read what is data and skip holes, cut, and notice when somebody writes meanwhile.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use onefold_chunk::Chunker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Advice, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::meta::{Stat, xattrs_of};
use crate::{Kind, Progress, Xattrs};

/// How often a stream that sends nothing is left to see whether the backup is still wanted.
const STREAM_LOOK_NS: i64 = 100_000_000;

/// A file open for reading.
pub struct Source<'a> {
    fd: OwnedFd,
    /// Set for streams: their next bytes may never come, so that somebody must be able to end the wait.
    cancel: Option<&'a Progress>,
    /// As it was when it was opened (or looked at, if nobody wrote since).
    pub stat: Stat,
    /// Its extended attributes.
    pub xattrs: Xattrs,
}

/// Opens `name` in `dir`. `NXIO`: it is no regular file (any more).
pub fn open(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Source<'static>, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = match rustix::fs::openat(dir, name, flags | OFlags::NOATIME, Mode::empty()) {
        // Only the owner may leave the access time alone.
        Err(Errno::PERM) => rustix::fs::openat(dir, name, flags, Mode::empty())?,
        other => other?,
    };
    let stat = Stat::of(&fd)?;
    if stat.kind != Kind::File {
        return Err(Errno::NXIO);
    }
    let xattrs = xattrs_of(fd.as_fd())?;
    Ok(Source {
        fd,
        cancel: None,
        stat,
        xattrs,
    })
}

impl<'a> Source<'a> {
    /// A pipe or other stream, which becomes a file that looks like `stat`. Its reads end with `CANCELED` soon after `cancel` says so.
    pub fn stream(fd: OwnedFd, stat: Stat, cancel: &'a Progress) -> Self {
        Self {
            fd,
            cancel: Some(cancel),
            stat,
            xattrs: Xattrs::new(),
        }
    }

    /// Whether somebody wrote since it was opened.
    pub fn changed(&self) -> Result<bool, Errno> {
        Ok(!Stat::of(&self.fd)?.same_state(&self.stat))
    }

    /// Looks again, before it is read again.
    pub fn look_again(&mut self) -> Result<(), Errno> {
        self.stat = Stat::of(&self.fd)?;
        self.xattrs = xattrs_of(self.fd.as_fd())?;
        rustix::fs::seek(&self.fd, SeekFrom::Start(0)).map(drop)
    }

    /// Whether it may have holes: fewer blocks than its size needs.
    pub fn may_have_holes(&self) -> bool {
        self.stat.blocks.saturating_mul(512) < self.stat.size
    }

    /// Tells the kernel that all of it will be read in order.
    pub fn read_ahead(&self) {
        // Advice only: a file system that takes none is read all the same.
        let _ = rustix::fs::fadvise(&self.fd, 0, None, Advice::Sequential);
    }

    /// Reads on into `buf`; 0 at the end.
    pub fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        if let Some(cancel) = self.cancel {
            wait_for_bytes(self.fd.as_fd(), cancel)?;
        }
        loop {
            match rustix::io::read(&self.fd, &mut *buf) {
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }

    /// Where the next data at or after `at` begins and ends; `None` where only a hole is left.
    pub fn data_from(&self, at: u64) -> Result<Option<Range<u64>>, Errno> {
        let start = match rustix::fs::seek(&self.fd, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL) => return Ok(Some(at..u64::MAX)),
            Err(e) => return Err(e),
        };
        let end = rustix::fs::seek(&self.fd, SeekFrom::Hole(start))?;
        rustix::fs::seek(&self.fd, SeekFrom::Start(start))?;
        Ok(Some(start..end))
    }
}

/// Waits until a read would not: bytes, an end or an error are there.
fn wait_for_bytes(fd: BorrowedFd<'_>, cancel: &Progress) -> Result<(), Errno> {
    let look = Timespec {
        tv_sec: 0,
        tv_nsec: STREAM_LOOK_NS,
    };
    while !cancel.is_cancelled() {
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

/// Cuts as much of `data` as is sure: all of it where the stream ends with it, else until less than a longest chunk is left.
/// Appends the chunks' lengths; returns how many bytes they cover.
pub fn cut(chunker: &mut dyn Chunker, data: &[u8], ends: bool, lengths: &mut Vec<u32>) -> usize {
    chunker.cuts(data, ends, &mut |len| lengths.push(len as u32))
}
