//! Files that are being written: small ones through the page cache, large ones past it.
//!
//! A large file gets all its room at once and is then written in whole pages past the page cache, by any number of
//! threads. Writing 4 GB through the cache of a machine whose memory is not warm takes five seconds of CPU, and the
//! bytes still have to be written to the disk.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use onefold_io::{Disk, FileDisk, unless_interrupted};
use parking_lot::Mutex;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::batch::FilePart;
use crate::open_files::large_max;

/// Size from which on a file is written past the page cache, in bytes, while not too many are open.
const LARGE_BYTES: u64 = 8 << 20;

/// A file open for writing.
pub enum Output {
    /// A file written through the page cache; each thread opens it anew.
    Small(OwnedFd),
    /// A file that all threads share until it is complete.
    Large(Arc<Large>),
}

/// An open large file.
pub struct Large {
    fd: OwnedFd,
    disk: FileDisk,
}

/// Large files that are open, by number in the window.
#[derive(Default)]
pub struct LargeFiles(Mutex<HashMap<u32, Arc<Large>>>);

impl LargeFiles {
    /// Returns file `number`, if it is open here.
    pub fn get(&self, number: u32) -> Option<Output> {
        self.0.lock().get(&number).cloned().map(Output::Large)
    }

    /// Wraps a file that was just made and will have `size` bytes. `whole`: all bytes are written, so there are no
    /// holes.
    pub fn made(&self, number: u32, fd: OwnedFd, size: u64, whole: bool) -> Result<Output, Errno> {
        if size < LARGE_BYTES || self.0.lock().len() >= large_max() {
            return Ok(Output::Small(fd));
        }
        if whole {
            let allocate = || rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, size);
            match unless_interrupted(allocate) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(e) => {
                    // Blocks that were allocated before the disk was full would keep smaller files out.
                    let _ = rustix::fs::ftruncate(&fd, 0);
                    return Err(e);
                }
            }
        }
        // Without a second descriptor the file is written as small ones are.
        let disk = fd.try_clone().ok();
        let disk = disk.and_then(|fd| FileDisk::from_file(File::from(fd), "").ok());
        let Some(disk) = disk else {
            return Ok(Output::Small(fd));
        };
        let large = Arc::new(Large { fd, disk });
        self.0.lock().insert(number, Arc::clone(&large));
        Ok(Output::Large(large))
    }

    /// Closes file `number`, which is complete or given up.
    pub fn close(&self, number: u32) {
        self.0.lock().remove(&number);
    }
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Small(fd) => fd.as_fd(),
            Self::Large(large) => large.fd.as_fd(),
        }
    }
}

impl Output {
    /// Writes the places; neighbours in the file that are neighbours in the buffer are written together.
    pub fn write_places(&self, places: &[FilePart], buffer: &[u8]) -> Result<(), Errno> {
        let mut places = places.iter().copied().peekable();
        while let Some(mut place) = places.next() {
            while let Some(next) = places.next_if(|next| {
                next.offset == place.offset + place.len as u64
                    && next.start == place.start + place.len
            }) {
                place.len += next.len;
            }
            self.write(&buffer[place.start..][..place.len], place.offset)?;
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Errno> {
        let fd = match self {
            Self::Large(large) => {
                return large
                    .disk
                    .write_at(bytes, offset)
                    .map_err(|e| e.source.map_or(Errno::IO, errno));
            }
            Self::Small(fd) => fd,
        };
        let mut written = 0;
        while written < bytes.len() {
            let rest = &bytes[written..];
            let at = offset + written as u64;
            written += unless_interrupted(|| rustix::io::pwrite(fd, rest, at))?;
        }
        Ok(())
    }
}

fn errno(e: std::io::Error) -> Errno {
    Errno::from_io_error(&e).unwrap_or(Errno::IO)
}
