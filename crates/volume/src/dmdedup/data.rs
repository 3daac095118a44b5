//! The data device as blocks: block p lies behind the device's head, p blocks on.

use std::sync::Arc;

use onefold_io::{Disk, ReadAt};

use crate::{Error, Pbn, Result};

/// The part of a device that holds blocks of one size.
#[derive(Clone)]
pub struct DataArea {
    disk: Arc<dyn Disk>,
    start: u64,
    block_bytes: u32,
    blocks: u64,
    keeps_room: bool,
}

impl DataArea {
    /// `blocks` blocks of `block_bytes` bytes from `start` on.
    pub fn new(disk: Arc<dyn Disk>, start: u64, block_bytes: u32, blocks: u64) -> Self {
        Self {
            disk,
            start,
            block_bytes,
            blocks,
            keeps_room: false,
        }
    }

    /// Blocks that are collected are not given back to the device: in a sparse file their room would go to others, and
    /// a write that was acknowledged could find none.
    #[must_use]
    pub fn keeping_room(self) -> Self {
        Self {
            keeps_room: true,
            ..self
        }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes as usize
    }

    /// Writes neighbouring blocks.
    pub(super) fn write(&self, first: Pbn, bytes: &[u8]) -> Result<()> {
        Ok(self.disk.write_at(bytes, self.offset(first)?)?)
    }

    /// Reads each piece from its block on; together, as the device likes.
    pub(super) fn read(&self, pieces: Vec<(Pbn, &mut [u8])>) -> Result<()> {
        let mut reads = Vec::with_capacity(pieces.len());
        for (pbn, buf) in pieces {
            let offset = self.offset(pbn)?;
            reads.push(ReadAt { offset, buf });
        }
        match &mut reads[..] {
            [] => Ok(()),
            [one] => Ok(self.disk.read_at(one.buf, one.offset)?),
            many => Ok(self.disk.read_many_at(many)?),
        }
    }

    pub(super) fn sync(&self) -> Result<()> {
        Ok(self.disk.sync()?)
    }

    /// Has the device keep room for neighbouring blocks.
    pub(super) fn allocate(&self, first: u64, blocks: u64) -> Result<()> {
        let bytes = blocks * u64::from(self.block_bytes);
        Ok(self.disk.allocate(self.offset(Pbn(first))?, bytes)?)
    }

    /// Gives neighbouring blocks back to the device, if it is to have them.
    pub(super) fn discard(&self, first: Pbn, blocks: u64) -> Result<()> {
        if self.keeps_room {
            return Ok(());
        }
        let bytes = blocks * u64::from(self.block_bytes);
        Ok(self.disk.discard(self.offset(first)?, bytes)?)
    }

    fn offset(&self, pbn: Pbn) -> Result<u64> {
        if pbn.0 < self.blocks {
            Ok(self.start + pbn.0 * u64::from(self.block_bytes))
        } else {
            Err(Error::Damaged {
                place: "metadata".into(),
                what: format!(
                    "it names block {}, and the data device has {}",
                    pbn.0, self.blocks
                ),
            })
        }
    }
}
