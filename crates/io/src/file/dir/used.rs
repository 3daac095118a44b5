//! When files were used last: the time of their last change, which callers move forward.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;

/// The time when a file in the folder `fd` was last written or marked, in nanoseconds since 1970.
pub fn time_ns(fd: &OwnedFd, name: &str) -> Result<u64, Errno> {
    let stat = rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    Ok(seconds.saturating_mul(1_000_000_000) + stat.st_mtime_nsec as u64)
}

/// Marks a file in the folder `fd` as used now, where that can be done.
pub fn mark(fd: &OwnedFd, name: &str) {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    let _ = rustix::fs::utimensat(fd, name, &times, AtFlags::SYMLINK_NOFOLLOW);
}
