//! Files and block devices that one opener has to himself: `O_EXCL` on a block device, which also keeps it from being
//! mounted, and `flock` on any other file.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::FileDisk;
use super::flock::{FileLock, no_locks};
use crate::{Error, ErrorKind, Result, unless_interrupted};

impl FileDisk {
    /// Opens an existing file or block device at any path, for reading and writing, and for this opener alone: until the
    /// disk is dropped, or the process dies, every other call of this function fails.
    ///
    /// # Errors
    /// [`ErrorKind::InUse`] where another has it, or a block device is mounted; errors of
    /// [`open_write`](Self::open_write); [`ErrorKind::Device`] where the file system has no locks.
    pub fn open_alone(path: &Path) -> Result<Self> {
        let shown = path.display().to_string();
        // Linux takes no notice of EXCL on what is no block device.
        let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
        let file = match unless_interrupted(|| rustix::fs::open(path, flags, Mode::empty())) {
            Err(Errno::BUSY) => return Err(in_use(shown)),
            opened => File::from(opened.map_err(|e| Error::from_io("open", &shown, e))?),
        };
        let claim = claim(&file, &shown)?;
        Ok(Self::new(file, shown)?.claimed(claim))
    }
}

/// Locks what is no block device.
fn claim(file: &File, path: &str) -> Result<Option<FileLock>> {
    let failed = |e| Error::from_io("lock", path, e);
    let kind = file.metadata().map_err(failed)?.file_type();
    if kind.is_block_device() {
        return Ok(None);
    }
    let lock = FlockOperation::NonBlockingLockExclusive;
    match unless_interrupted(|| rustix::fs::flock(file, lock)) {
        Ok(()) => Ok(Some(FileLock(file.try_clone().map_err(failed)?))),
        Err(Errno::WOULDBLOCK) => Err(in_use(path.to_owned())),
        Err(e @ (Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP)) => {
            Err(no_locks(failed(e.into())))
        }
        Err(e) => Err(failed(e.into())),
    }
}

fn in_use(path: String) -> Error {
    let what = "another process has it, or it is mounted";
    Error::new("open", path, ErrorKind::InUse, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_opened_alone_is_free_when_dropped() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        std::fs::write(&path, [7; 4096]).unwrap();
        let first = FileDisk::open_alone(&path).unwrap();
        let second = FileDisk::open_alone(&path).map(drop).unwrap_err();
        assert_eq!(second.kind, ErrorKind::InUse);
        FileDisk::open(&path).expect("whoever only looks is let in");
        drop(first);
        FileDisk::open_alone(&path).expect("it is free");
    }
}
