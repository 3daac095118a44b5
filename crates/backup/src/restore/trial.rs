//! A file without a name, to try out what the file system of a folder makes of it.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, Timestamps};
use rustix::io::Errno;

use super::apply::timespec;
use crate::meta::Stat;

/// An empty file in the file system of `dir`, which is gone when it is closed.
pub fn nameless(dir: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let (flags, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    match rustix::fs::openat(dir, ".", flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        other => return other,
    }
    let before = Stat::of(dir)?;
    let name = format!(".onefold-{}.tmp", std::process::id());
    let fresh = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(dir, &name[..], fresh, mode)?;
    rustix::fs::unlinkat(dir, &name[..], AtFlags::empty())?;
    // The folder may be complete, with the times of the snapshot.
    let times = Timestamps {
        last_access: timespec(before.atime),
        last_modification: timespec(before.mtime),
    };
    let _ = rustix::fs::futimens(dir, &times);
    Ok(file)
}
