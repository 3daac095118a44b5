//! Room on the host's file system: a data file is sparse, and its file system may be full before it is. So blocks count
//! as free only once the file system keeps room for them, and a full one is told before a write is acknowledged.
//!
//! Blocks are allocated one after the other, so room is kept for all blocks up to some distance ahead of the last one.

use super::DataArea;
use crate::{Error, Result};

/// Room is kept for this many bytes ahead: more than staging and what is on its way.
const AHEAD_BYTES: u64 = 64 << 20;

/// A full file system is asked again after this many blocks.
const ASK_AGAIN: u64 = 1024;

/// Up to which block there is room.
pub(super) struct BlockRoom {
    /// Blocks below have room.
    kept: u64,
    /// The highest block in use so far, and one more.
    used: u64,
    /// The file system had no room for more when it was asked last.
    is_full: bool,
    asked: u64,
}

impl BlockRoom {
    /// Blocks below `used` were written before.
    pub fn new(data: &DataArea, used: u64) -> Result<Self> {
        let mut room = Self {
            kept: used,
            used,
            is_full: false,
            asked: 0,
        };
        room.keep(data)?;
        Ok(room)
    }

    /// A block was allocated: keeps room ahead of it. `false`: there is no room for the block itself.
    pub fn reaches(&mut self, data: &DataArea, block: u64) -> Result<bool> {
        let is_short = block >= self.kept || self.kept - block < ahead(data) / 2;
        self.asked += 1;
        if is_short && (!self.is_full || self.asked.is_multiple_of(ASK_AGAIN)) {
            self.used = self.used.max(block + 1);
            self.keep(data)?;
        }
        Ok(block < self.kept)
    }

    /// Asks the file system for more room, if it was full.
    pub fn ask_again(&mut self, data: &DataArea) -> Result<()> {
        if self.is_full {
            self.keep(data)
        } else {
            Ok(())
        }
    }

    /// Blocks that cannot be written for want of room.
    pub fn missing(&self, data: &DataArea) -> u64 {
        if self.is_full {
            data.blocks() - self.kept
        } else {
            0
        }
    }

    fn keep(&mut self, data: &DataArea) -> Result<()> {
        let wanted = data.blocks().min(self.used + ahead(data));
        if wanted <= self.kept {
            return Ok(());
        }
        match data.allocate(self.kept, wanted - self.kept) {
            Ok(()) => {
                self.kept = wanted;
                self.is_full = false;
                Ok(())
            }
            Err(Error::NoSpace { .. }) => {
                self.is_full = true;
                self.keep_some(data)
            }
            Err(error) => Err(error),
        }
    }

    /// As many blocks as still fit, by halves: the last MiB are worth it.
    fn keep_some(&mut self, data: &DataArea) -> Result<()> {
        let mut count = ahead(data) / 2;
        while count > 0 && self.kept < data.blocks() {
            let more = count.min(data.blocks() - self.kept);
            match data.allocate(self.kept, more) {
                Ok(()) => self.kept += more,
                Err(Error::NoSpace { .. }) => count /= 2,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn ahead(data: &DataArea) -> u64 {
    AHEAD_BYTES / data.block_bytes() as u64
}
