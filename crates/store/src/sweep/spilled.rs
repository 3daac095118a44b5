//! The sweep's working file: pieces one behind the other, each with its checksum, for what is deleted hangs on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_io::os::Scratch;
use onefold_io::{Dir, Disk, ErrorKind, frame};

use crate::{Error, Result};

/// The folder of the file, in the repository.
pub(crate) const SCRATCH_FOLDER: &str = "scratch";
/// The file there.
pub(crate) const SPILLED: &str = "marks";
/// Behind each piece.
pub(crate) const CHECKSUM_BYTES: usize = 8;

/// A working file. It grows at its end.
pub(crate) struct Spilled {
    place: SpillFile,
    end: AtomicU64,
}

enum SpillFile {
    Named(Arc<dyn Disk>),
    Nameless(Scratch),
}

impl Spilled {
    /// An empty one in `folder`; without, one that has no name.
    pub(crate) fn create(folder: Option<&dyn Dir>) -> Result<Self> {
        let place = match folder {
            Some(folder) => SpillFile::Named(folder.create(SPILLED)?),
            None => SpillFile::Nameless(Scratch::create().map_err(Error::Temporary)?),
        };
        let end = AtomicU64::new(0);
        Ok(Self { place, end })
    }

    /// Where the next piece begins, in bytes.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Writes `pieces`, which are [sealed](seal), behind all that is there, and gives where they begin.
    pub(crate) fn append(&self, pieces: &[u8]) -> Result<u64> {
        let start = self.end();
        match &self.place {
            SpillFile::Named(disk) => disk.write_at(pieces, start)?,
            SpillFile::Nameless(file) => file.write_at(pieces, start).map_err(Error::Temporary)?,
        }
        self.end
            .store(start + pieces.len() as u64, Ordering::Relaxed);
        Ok(start)
    }

    /// Gives back the room of all from `end` on, as far as that can be done.
    pub(crate) fn cut(&self, end: u64) {
        let _ = match &self.place {
            SpillFile::Named(disk) => disk.set_len(end),
            SpillFile::Nameless(file) => file.set_len(end),
        };
        self.end.store(end, Ordering::Relaxed);
    }

    /// Reads a piece of this many bytes, its checksum included, and returns it without the checksum.
    ///
    /// # Errors
    /// Damaged where it is not what was written.
    pub(crate) fn piece(&self, start: u64, stored_bytes: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; stored_bytes];
        match &self.place {
            SpillFile::Named(disk) => disk.read_at(&mut bytes, start)?,
            SpillFile::Nameless(file) => {
                file.read_at(&mut bytes, start).map_err(Error::Temporary)?
            }
        }
        // An empty piece has no bytes.
        let Some((piece, checksum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else {
            return Ok(Vec::new());
        };
        let (found, expected) = (frame::crc64(piece), u64::from_le_bytes(*checksum));
        if found != expected {
            let what = format!("checksum {found:#018x}, expected {expected:#018x}");
            return Err(Error::damaged(self.name(), Some(start), what));
        }
        bytes.truncate(stored_bytes - CHECKSUM_BYTES);
        Ok(bytes)
    }

    fn name(&self) -> String {
        match self.place {
            SpillFile::Named(_) => format!("{SCRATCH_FOLDER}/{SPILLED}"),
            SpillFile::Nameless(_) => "temporary file of marks".into(),
        }
    }
}

/// Ends the piece that begins at `start` of `bytes`.
pub(crate) fn seal(bytes: &mut Vec<u8>, start: usize) {
    let checksum = frame::crc64(&bytes[start..]);
    bytes.extend_from_slice(&checksum.to_le_bytes());
}

/// Whether it is for want of room that a working file failed.
pub(crate) fn is_full(error: &Error) -> bool {
    matches!(error, Error::Io(error) | Error::Temporary(error) if error.kind == ErrorKind::NoSpace)
}
