//! Ballast: a file in the depot's folder that holds nothing but room. Where the folder's file system is full, it is
//! emptied, so that maps and the manifest can still be written: discards, known chunks and cleaning go on. Until it is
//! whole again, no new data is taken.

use std::sync::Arc;

use onefold_io::{Dir, Disk, ErrorKind, if_there};

use crate::{Error, Result};

/// Its name in the depot's folder.
pub const NAME: &str = "ballast";

/// The file, and whether it has its room.
pub(super) struct Ballast {
    dir: Arc<dyn Dir>,
    bytes: u64,
    is_held: bool,
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
            is_held: bytes == 0,
        };
        ballast.hold()?;
        Ok(ballast)
    }

    /// Whether the file has its room.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Takes the room again, where it was released and the file system has it.
    ///
    /// # Errors
    /// The folder failed. A full file system is no error.
    pub fn hold(&mut self) -> Result<()> {
        if self.is_held {
            return Ok(());
        }
        let disk = match if_there(self.dir.open_write(NAME))? {
            Some(disk) => disk,
            None => match self.dir.create(NAME) {
                Err(error) if error.kind == ErrorKind::NoSpace => return Ok(()),
                made => made?,
            },
        };
        // Some file systems (XFS) find no room for what has room already: then it is given up, and taken at once.
        for _ in 0..2 {
            match self.fill(&*disk) {
                Ok(()) => {
                    self.is_held = true;
                    return Ok(());
                }
                Err(Error::NoSpace { .. }) => disk.set_len(0)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn fill(&self, disk: &dyn Disk) -> Result<()> {
        disk.set_len(self.bytes)?;
        Ok(disk.allocate(0, self.bytes)?)
    }

    /// Gives the room up. Returns whether there was any.
    pub fn release(&mut self) -> bool {
        if self.bytes == 0 || !std::mem::take(&mut self.is_held) {
            return false;
        }
        let emptied = (self.dir.open_write(NAME)).and_then(|disk| disk.set_len(0));
        emptied.is_ok()
    }
}
