//! Compares a thing in the target with the snapshot's: what it is, its metadata, and a file's bytes.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use onefold_store::{ChunkReader, Session};
use rustix::fs::{Mode, OFlags, SeekFrom, seek};
use rustix::io::Errno;

use super::apply::{Applier, Meta, SET_GID, SET_UID};
use super::kept::Times;
use super::times::{TimeSteps, may_be_same};
use crate::meta::{Stat, link_target};
use crate::tree::{Visit, visit_items};
use crate::{Entry, Error, Kind, Result, Slice};

/// Largest number of bytes that are looked through for zeros at once.
const ZEROS_BYTES: u64 = 1 << 20;

/// Whether the thing has the kind, size and time that the snapshot says, and leads to the same place or device. `fd` is
/// open at least by path, and `there` is its `stat`.
pub fn looks_as(entry: &Entry, fd: &OwnedFd, there: &Stat) -> bool {
    if there.kind != entry.kind || !may_be_same(entry.mtime, there.mtime) {
        return false;
    }
    match entry.kind {
        Kind::File => there.size == entry.size,
        Kind::Symlink => link_target(fd, b"").is_ok_and(|target| target == entry.target),
        Kind::CharDevice | Kind::BlockDevice => there.rdev == entry.rdev,
        Kind::Fifo | Kind::Socket => true,
        Kind::Dir => false,
    }
}

/// Whether the thing, which is in `dir`, looks as the snapshot says, and has all of its metadata that is restored. A
/// program that has read the file since does not matter.
pub fn has_metadata(
    (dir, fd, there): (&OwnedFd, &OwnedFd, &Stat),
    entry: &Entry,
    applier: Applier<'_>,
    times: &TimeSteps,
) -> bool {
    // Also where modes do not count: nobody becomes another user by a name that was missing.
    let gives_more = there.mode & !entry.mode & (SET_UID | SET_GID) != 0;
    let kept = Times {
        is_same: |wanted| times.is_same(dir.as_fd(), wanted, there),
        keeps_access: || true,
    };
    let differences = || applier.differences(fd.as_fd(), there, &Meta::of(entry), kept);
    looks_as(entry, fd, there) && !gives_more && differences().is_empty()
}

/// Opens a file that is to have `size` bytes.
pub fn open_file(dir: &OwnedFd, name: &[u8], size: u64) -> io::Result<File> {
    // anybody who may write there may have put a pipe in its place
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let open = |flags| rustix::fs::openat(dir, name, flags, Mode::empty());
    let fd = match open(flags | OFlags::NOATIME) {
        // Only the owner may leave the access time alone.
        Err(Errno::PERM) => open(flags)?,
        other => other?,
    };
    let opened = File::from(fd);
    let there = opened.metadata()?;
    if !there.is_file() {
        return differs("it is no regular file".into());
    }
    let len = there.len();
    if len != size {
        return differs(format!("it has {len} bytes, expected {size}"));
    }
    Ok(opened)
}

/// A file in the target that is compared with its content in the snapshot.
pub struct Comparing<'a> {
    session: &'a Session,
    opened: &'a File,
    buffer: Vec<u8>,
    /// Reader of chunks, made when it is first needed.
    reader: Option<ChunkReader>,
}

/// Functions that [`Comparing::compare_all`] calls on its way.
pub struct Callbacks<'a> {
    /// Called with the number of bytes before they are compared; an error ends the comparison.
    pub step: &'a dyn Fn(u64) -> Result<()>,
    /// Makes an error of the file.
    pub failed: &'a dyn Fn(io::Error) -> Error,
}

impl<'a> Comparing<'a> {
    pub fn new(session: &'a Session, opened: &'a File) -> Self {
        Self {
            session,
            opened,
            buffer: Vec::new(),
            reader: None,
        }
    }

    /// Compares the whole file, which has the size of `entry`, with the content of `entry`; holes read as zeros.
    pub fn compare_all(
        &mut self,
        entry: &Entry,
        reader: &mut ChunkReader,
        callbacks: &Callbacks<'_>,
    ) -> Result<()> {
        let mut end = 0;
        visit_items(&entry.content, reader, &mut |visit, reader| {
            match visit {
                Visit::Recipe(_) => {}
                Visit::Data(slice, offset) => {
                    (callbacks.step)(slice.len.into())?;
                    let compared = self.compare(&slice, offset, Some(reader));
                    compared.map_err(callbacks.failed)?;
                    end = offset + u64::from(slice.len);
                }
                Visit::Hole(offset, len) => {
                    self.must_be_zeros(offset, offset + len, callbacks)?;
                    end = offset + len;
                }
            }
            Ok(true)
        })?;
        self.must_be_zeros(end, entry.size, callbacks)
    }

    fn must_be_zeros(&mut self, from: u64, to: u64, callbacks: &Callbacks<'_>) -> Result<()> {
        let mut at = from;
        while at < to {
            (callbacks.step)(0)?;
            at = match seek(self.opened, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => return Ok(()),
                // The file system does not tell its holes.
                Err(_) => at,
            };
            let len = to.saturating_sub(at).min(ZEROS_BYTES);
            self.buffer.resize(len as usize, 0);
            let read = self.opened.read_exact_at(&mut self.buffer, at);
            read.map_err(callbacks.failed)?;
            if self.buffer.iter().any(|byte| *byte != 0) {
                let what = format!("it has bytes where the snapshot has a hole, after byte {at}");
                return differs(what).map_err(callbacks.failed);
            }
            at += len;
        }
        Ok(())
    }

    /// Fails where the file has other bytes than `slice` at `offset`. A part of a chunk has no fingerprint: then the
    /// chunk is read, by `reader` if there is one.
    pub fn compare(
        &mut self,
        slice: &Slice,
        offset: u64,
        reader: Option<&mut ChunkReader>,
    ) -> io::Result<()> {
        self.buffer.resize(slice.len as usize, 0);
        self.opened.read_exact_at(&mut self.buffer, offset)?;
        let session = self.session;
        let is_same = if slice.is_whole() {
            let found = session.fingerprinter().fingerprint(&self.buffer);
            found == slice.chunk.fingerprint
        } else {
            let reader = match (reader, &mut self.reader) {
                (Some(reader), _) | (None, Some(reader)) => reader,
                (None, none) => none.insert(session.data_reader().map_err(io::Error::other)?),
            };
            let chunk = reader.read(&slice.chunk).map_err(io::Error::other)?;
            slice.of(&chunk) == self.buffer
        };
        if is_same {
            Ok(())
        } else {
            differs(format!(
                "what was written at byte {offset} reads differently"
            ))
        }
    }
}

/// Returns the error of something that is not as the snapshot says.
pub fn differs<T>(what: String) -> io::Result<T> {
    Err(io::Error::new(ErrorKind::InvalidData, what))
}
