//! Ballast: a file in the depot's folder that holds nothing but room. Where the folder's file system is full, it gives up
//! a part at a time, so that maps and the manifest can still be written: discards, known chunks and cleaning go on. While
//! more than half of it is gone, no new data is taken.
//!
//! Ballast gives up parts and never all of itself at once: what is given up and not used soon is lost to others, where
//! they fill the host.

use std::sync::Arc;

use onefold_io::{Dir, Disk, ErrorKind, if_there};

use crate::{Error, Result};

/// Its name in the depot's folder.
pub const NAME: &str = "ballast";

/// Parts in which it gives room up and takes it.
const PARTS: u64 = 16;

/// The file, and how much of its room it has.
pub(super) struct Ballast {
    dir: Arc<dyn Dir>,
    bytes: u64,
    /// Bytes that have their room: the file's length.
    held: u64,
}

impl Ballast {
    /// Ballast of `bytes`, whole where the file system has room for it; 0: none is wanted.
    ///
    /// # Errors
    /// The folder failed.
    pub fn open(dir: Arc<dyn Dir>, bytes: u64) -> Result<Self> {
        let mut ballast = Self {
            dir,
            bytes,
            held: 0,
        };
        if let Some(disk) = if_there(ballast.dir.open_write(NAME))? {
            // A crash may have left length without room.
            let there = disk.len()?.min(bytes);
            ballast.held = if allocated(&*disk, 0, there)? {
                there
            } else {
                0
            };
            disk.set_len(ballast.held)?;
        }
        ballast.hold()?;
        Ok(ballast)
    }

    /// Whether the file has all of its room.
    pub fn is_held(&self) -> bool {
        self.held >= self.bytes
    }

    /// Whether enough is left for what the map needs while data is taken.
    pub fn is_enough(&self) -> bool {
        self.held >= self.bytes / 2
    }

    /// Takes room again that was given up, as far as the file system has it.
    ///
    /// # Errors
    /// The folder failed. A full file system is no error.
    pub fn hold(&mut self) -> Result<()> {
        if self.is_held() {
            return Ok(());
        }
        let disk = match if_there(self.dir.open_write(NAME))? {
            Some(disk) => disk,
            None => match self.dir.create(NAME) {
                Err(error) if error.kind == ErrorKind::NoSpace => return Ok(()),
                made => made?,
            },
        };
        while !self.is_held() {
            let more = self.part().min(self.bytes - self.held);
            // Only what is new is asked for: some file systems (XFS) find no room for what has room already.
            let is_there = match disk.set_len(self.held + more).map_err(Error::from) {
                Ok(()) => allocated(&*disk, self.held, more)?,
                Err(Error::NoSpace { .. }) => false,
                Err(error) => return Err(error),
            };
            if !is_there {
                return Ok(disk.set_len(self.held)?);
            }
            self.held += more;
        }
        Ok(())
    }

    /// Gives a part of the room up. Returns whether there was any.
    pub fn release(&mut self) -> bool {
        if self.held == 0 {
            return false;
        }
        let left = self.held.saturating_sub(self.part());
        let cut = (self.dir.open_write(NAME)).and_then(|disk| disk.set_len(left));
        if cut.is_ok() {
            self.held = left;
        }
        cut.is_ok()
    }

    fn part(&self) -> u64 {
        self.bytes.div_ceil(PARTS)
    }
}

/// Has the file system keep room. `false`: it has not enough.
fn allocated(disk: &dyn Disk, offset: u64, bytes: u64) -> Result<bool> {
    match disk.allocate(offset, bytes).map_err(Error::from) {
        Ok(()) => Ok(true),
        Err(Error::NoSpace { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
