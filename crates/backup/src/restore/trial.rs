//! A file without a name, to try out how the file system of a folder behaves.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, Timestamps};
use rustix::io::Errno;

use super::apply::timespec;
use crate::meta::Stat;

/// Makes an empty file in the file system of `dir`, which vanishes when it is closed.
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
    // The folder may be complete, with the snapshot's times: set them again.
    let times = Timestamps {
        last_access: timespec(before.atime),
        last_modification: timespec(before.mtime),
    };
    let _ = rustix::fs::futimens(dir, &times);
    Ok(file)
}
