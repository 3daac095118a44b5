//! A file without a name, for data that a run must remember and has no RAM for.
//!
//! Invariant: no other process sees the file, and nothing is left of it when the process ends, in any way. The file
//! is never synced, because nobody else needs it. It lies in the folder that `TMPDIR` names, or in `/var/tmp`, which
//! unlike `/tmp` is seldom in RAM.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::{Error, Result, unless_interrupted};

/// A nameless file.
#[derive(Debug)]
pub struct Scratch {
    file: File,
    folder: String,
}

impl Scratch {
    /// Creates an empty file.
    ///
    /// # Errors
    /// No folder for temporary files can be written to: the system's error for the last one tried, `/tmp`.
    pub fn create() -> Result<Self> {
        let own = std::env::var_os("TMPDIR").map(PathBuf::from);
        let folders = own.into_iter().chain(["/var/tmp".into(), "/tmp".into()]);
        let mut last = None;
        for folder in folders.filter(|folder| folder.is_absolute()) {
            match nameless(&folder) {
                Ok(fd) => {
                    return Ok(Self {
                        file: fd.into(),
                        folder: folder.display().to_string(),
                    });
                }
                Err(e) => last = Some((folder, e)),
            }
        }
        let (folder, e) = last.expect("two folders at least were tried");
        let path = folder.display().to_string();
        Err(Error::from_io("create a temporary file in", path, e))
    }

    /// Fills `buf` from `offset` on; bytes that were never written are zeros.
    ///
    /// # Errors
    /// The device's error ([`ErrorKind::of`](crate::ErrorKind::of)), with the offset; never that the file ends.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match unless_interrupted(|| self.file.read_at(&mut buf[done..], at)) {
                Ok(0) => {
                    buf[done..].fill(0);
                    break;
                }
                Ok(n) => done += n,
                Err(e) => return Err(self.failed("read", at, e)),
            }
        }
        Ok(())
    }

    /// Writes `bytes` at `offset`; the file grows where needed.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace) or another error of the device, with the offset.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|e| self.failed("write", offset, e))
    }

    /// Cuts the file off behind `bytes` bytes.
    ///
    /// # Errors
    /// The device's error, with the offset.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        let cut = self.file.set_len(bytes);
        cut.map_err(|e| self.failed("cut", bytes, e))
    }

    fn failed(&self, op: &'static str, offset: u64, e: std::io::Error) -> Error {
        let path = format!("a temporary file in {}", self.folder);
        Error::from_io(op, path, e).at(offset)
    }
}

fn nameless(folder: &Path) -> std::result::Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::openat(CWD, folder, flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        other => return other,
    }
    // A file system without nameless files: create a file and remove its name at once.
    let fresh = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    for attempt in 0..1000 {
        let name = format!("onefold-{}-{attempt}.tmp", std::process::id());
        match rustix::fs::openat(CWD, folder.join(&name), fresh, mode) {
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
            Ok(fd) => {
                rustix::fs::unlinkat(CWD, folder.join(&name), AtFlags::empty())?;
                return Ok(fd);
            }
        }
    }
    Err(Errno::EXIST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_the_rest_is_zeros() {
        let scratch = Scratch::create().unwrap();
        scratch.write_at(b"far", 5000).unwrap();
        let mut bytes = [7; 10];
        scratch.read_at(&mut bytes, 4998).unwrap();
        assert_eq!(&bytes, b"\0\0far\0\0\0\0\0");
    }

    #[test]
    fn it_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        drop(nameless(folder.path()).unwrap());
        let _open = nameless(folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
