//! Translates the tree's answers into the kernel's terms.

use std::time::{Duration, SystemTime};

use fuser::{Errno, FileAttr, FileType, INodeNo};
use onefold_backup::vfs::Attributes;
use onefold_backup::{Error, Kind, Time};

/// Bytes of a block, in which the kernel counts.
const BLOCK_BYTES: u64 = 512;
/// Bytes that programs are advised to read at once.
const READ_BYTES: u32 = 128 << 10;

/// For the attributes of a file.
pub fn attributes(of: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(of.number),
        size: of.size,
        blocks: of.data_bytes.div_ceil(BLOCK_BYTES),
        atime: time(of.atime),
        mtime: time(of.mtime),
        ctime: time(of.ctime),
        crtime: time(of.ctime),
        kind: kind(of.kind),
        perm: of.mode,
        nlink: of.links.try_into().unwrap_or(u32::MAX),
        uid: of.uid,
        gid: of.gid,
        // The kernel's 32 bits are the lower ones of `st_rdev`, for all numbers that it gives devices.
        rdev: of.rdev as u32,
        blksize: READ_BYTES,
        flags: 0,
    }
}

/// For a kind of file.
pub fn kind(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

fn time(time: Time) -> SystemTime {
    let nanos = Duration::from_nanos(time.nanos.into());
    let secs = Duration::from_secs(time.secs.unsigned_abs());
    let second = if time.secs < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(secs)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(secs)
    };
    let exact = second.and_then(|second| second.checked_add(nanos));
    exact.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// For an error: what cannot be had for whatever reason is EIO, a snapshot that is gone is not there.
pub fn errno(error: &Error) -> Errno {
    match error {
        Error::NoSnapshot(_) => Errno::ENOENT,
        Error::Store(error) if error.is_not_found() => Errno::ENOENT,
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        let (secs, nanos) = (-2, 250_000_000);
        let found = time(Time { secs, nanos });
        let before = SystemTime::UNIX_EPOCH.duration_since(found);
        assert_eq!(before.expect("before"), Duration::from_millis(1750));
        let far = time(Time {
            secs: i64::MAX,
            nanos: 0,
        });
        let _ = far;
    }
}
