//! A file that is written with hints: its places are allocated and hinted ahead of what is written, since a file that
//! is still to be written has none.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_volume::hints::HintKind;
use rustix::fs::{FallocateFlags, fallocate, fstat};
use rustix::io::Errno;

use super::hinter::Hinter;
use crate::error::{Error, Result};

/// Bytes that are allocated and hinted at once.
const PIECE_BYTES: u64 = 128 << 20;
/// Hints of a copy end after this time where nobody ends them: its process was killed.
pub const HINTS_LAST: Duration = Duration::from_secs(3600);
/// Bytes of zeros that are written at once where a file system cannot allocate ahead.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Whether both are one file, under whatever names.
fn is_same(source: impl AsFd, target: impl AsFd) -> bool {
    match (fstat(source), fstat(target)) {
        (Ok(source), Ok(target)) => {
            (source.st_dev, source.st_ino) == (target.st_dev, target.st_ino)
        }
        _ => false,
    }
}

/// A file that is being written.
pub struct HintedFile {
    file: File,
    path: PathBuf,
    /// `None` where no hint is wanted.
    hinter: Option<Hinter>,
    kinds: Vec<HintKind>,
    /// Bytes that the file will have, where that is known.
    bytes_expected: u64,
    /// The part of the file that is allocated and hinted.
    prepared: u64,
    /// Bytes that were written.
    written: u64,
    hinted: Vec<Range<u64>>,
}

impl HintedFile {
    /// Makes the file anew, which is not `source`. It will have `bytes_expected`, as far as that is known.
    ///
    /// # Errors
    /// The file cannot be made, or is the source; with hints, it lies on no attached volume.
    pub fn create(
        path: &Path,
        source: impl AsFd,
        kinds: Vec<HintKind>,
        bytes_expected: Option<u64>,
    ) -> Result<Self> {
        let failed = |error| Error::io(format!("create {}", path.display()), error);
        let was_there = path.exists();
        let mut options = File::options();
        let opened = options.write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(failed)?;
        if is_same(&source, &file) {
            return Err(Error::Usage(format!(
                "{} is the source itself",
                path.display()
            )));
        }
        let hinter = if kinds.is_empty() {
            None
        } else {
            Some(Hinter::below(&file, path).inspect_err(|_| {
                if !was_there {
                    let _ = std::fs::remove_file(path);
                }
            })?)
        };
        // Only now: a file that lies elsewhere keeps what it holds.
        file.set_len(0).map_err(failed)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            hinter,
            kinds,
            bytes_expected: bytes_expected.unwrap_or(u64::MAX),
            prepared: 0,
            written: 0,
            hinted: Vec::new(),
        })
    }

    /// Writes behind what was written before.
    ///
    /// # Errors
    /// The file system is full or failed; the depot's process has ended.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let end = self.written + bytes.len() as u64;
        while self.hinter.is_some() && self.prepared < end {
            self.prepare()?;
        }
        self.file
            .write_all_at(bytes, self.written)
            .map_err(|error| self.failed("write", error))?;
        self.written = end;
        Ok(())
    }

    /// Has everything that was written reach the disk, and ends the hints.
    ///
    /// # Errors
    /// As of [`write`](Self::write).
    pub fn finish(self) -> Result<File> {
        let synced = (self.file.set_len(self.written)).and_then(|()| self.file.sync_all());
        let ended = match &self.hinter {
            Some(hinter) => hinter.unhint(Some(&self.hinted), &self.kinds).map(drop),
            None => Ok(()),
        };
        synced.map_err(|error| self.failed("write", error))?;
        ended.map(|()| self.file)
    }

    /// Allocates and hints the next piece.
    fn prepare(&mut self) -> Result<()> {
        let end = self.prepared + PIECE_BYTES;
        // The input may have more than was expected.
        let is_within = self.prepared < self.bytes_expected;
        let end = end.min(if is_within { self.bytes_expected } else { end });
        let piece = self.prepared..end;
        self.allocate(&piece)?;
        if let Some(hinter) = &self.hinter {
            let ranges = hinter.ranges_of(&self.file, &self.path, piece.clone())?;
            hinter.hint(Some(&ranges), &self.kinds, Some(HINTS_LAST))?;
            self.hinted.extend(ranges);
        }
        self.prepared = piece.end;
        Ok(())
    }

    /// Gives a part of the file its places. Where the file system cannot allocate (ext2, ext3), zeros are written,
    /// which take no space on the volume.
    fn allocate(&self, piece: &Range<u64>) -> Result<()> {
        let bytes = piece.end - piece.start;
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, piece.start, bytes) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP) => self.write_zeros(piece),
            Err(error) => Err(self.failed("allocate", error.into())),
        }
    }

    fn write_zeros(&self, piece: &Range<u64>) -> Result<()> {
        let mut at = piece.start;
        while at < piece.end {
            let bytes = (piece.end - at).min(ZEROS.len() as u64);
            self.file
                .write_all_at(&ZEROS[..bytes as usize], at)
                .map_err(|error| self.failed("write", error))?;
            at += bytes;
        }
        let synced = self.file.sync_data();
        synced.map_err(|error| self.failed("write", error))
    }

    fn failed(&self, what: &str, error: std::io::Error) -> Error {
        Error::io(format!("{what} {}", self.path.display()), error)
    }
}
