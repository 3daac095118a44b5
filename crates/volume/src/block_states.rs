//! Which blocks of the data device are free, in use or in between, for backends that keep their counts on a device.
//!
//! The counts on the device are 0 or what was raised. What lies in between is in RAM alone, so a crash frees it: blocks
//! that were allocated and not raised yet, and blocks that were freed since the last flush.

use std::collections::HashSet;

use crate::{Error, Pbn, Result};

/// The highest count.
const COUNT_MAX: u32 = u32::MAX - 2;
/// RAM of an entry of a set, with what the set keeps free, in bytes.
const SET_ENTRY_BYTES: u64 = 18;

/// The states of blocks that the counts do not tell, and sums.
pub(crate) struct BlockStates {
    blocks: u64,
    /// Blocks with a count above 0.
    used: u64,
    /// Where the search for a free block goes on.
    cursor: u64,
    allocated: HashSet<u64>,
    waiting: HashSet<u64>,
}

/// Result of a look at neighbouring counts.
pub(crate) enum Scan {
    /// A block that is free.
    Free(u64),
    /// None among these: the search goes on at this block.
    Next(u64),
}

impl BlockStates {
    /// States where `used` of `blocks` blocks have a count; the search for a free one begins at `cursor`.
    pub fn new(blocks: u64, used: u64, cursor: u64) -> Self {
        Self {
            blocks,
            used,
            cursor,
            allocated: HashSet::new(),
            waiting: HashSet::new(),
        }
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    pub fn used(&self) -> u64 {
        self.used
    }

    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    pub fn free(&self) -> u64 {
        let between = (self.allocated.len() + self.waiting.len()) as u64;
        self.blocks.saturating_sub(self.used + between)
    }

    pub fn ram_bytes(&self) -> u64 {
        (self.allocated.capacity() + self.waiting.capacity()) as u64 * SET_ENTRY_BYTES
    }

    /// A free block, the next one behind that which was allocated last. `scan` looks at counts from a block on, for one
    /// that is 0 and that it is not told to pass over.
    ///
    /// # Errors
    /// Those of `scan`; [`Error::Damaged`] where the counts do not have the free blocks that there should be.
    pub fn allocate(
        &mut self,
        mut scan: impl FnMut(u64, &dyn Fn(u64) -> bool) -> Result<Scan>,
    ) -> Result<Option<Pbn>> {
        if self.free() == 0 {
            return Ok(None);
        }
        let is_taken = |block| self.allocated.contains(&block) || self.waiting.contains(&block);
        let (mut at, mut rounds) = (self.cursor, 0);
        let found = loop {
            if at >= self.blocks {
                (at, rounds) = (0, rounds + 1);
            }
            if rounds > 1 {
                return Err(Error::Damaged {
                    place: "reference counts".into(),
                    what: format!("expected {} free blocks, found none", self.free()),
                });
            }
            match scan(at, &is_taken)? {
                Scan::Free(block) => break block,
                Scan::Next(next) => at = next,
            }
        };
        self.allocated.insert(found);
        self.cursor = (found + 1) % self.blocks;
        Ok(Some(Pbn(found)))
    }

    /// The count after one more reference to a block that has `count`.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the block is free, or has all the references that can be counted.
    pub fn raise(&mut self, pbn: Pbn, count: u32) -> Result<u32> {
        match count {
            0 if self.allocated.remove(&pbn.0) => {
                self.used += 1;
                Ok(1)
            }
            0 => Err(invalid(pbn, "is free, and cannot be referred to")),
            COUNT_MAX.. => Err(invalid(pbn, "has as many references as can be counted")),
            count => Ok(count + 1),
        }
    }

    /// The count after one reference less to a block that has `count`.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the block has no reference.
    pub fn lower(&mut self, pbn: Pbn, count: u32) -> Result<u32> {
        match count {
            0 => Err(invalid(pbn, "has no reference to be dropped")),
            1 => {
                self.used = self.used.saturating_sub(1);
                self.waiting.insert(pbn.0);
                Ok(0)
            }
            count => Ok(count - 1),
        }
    }

    /// Blocks that were freed can be allocated.
    pub fn release(&mut self) {
        self.waiting = HashSet::new();
    }

    /// # Errors
    /// [`Error::Invalid`]: there is no such block.
    pub fn check(&self, pbn: Pbn) -> Result<()> {
        if pbn.0 < self.blocks {
            Ok(())
        } else {
            Err(invalid(
                pbn,
                &format!("lies beyond the {} blocks", self.blocks),
            ))
        }
    }
}

fn invalid(pbn: Pbn, what: &str) -> Error {
    Error::Invalid {
        what: format!("block {} {what}", pbn.0),
    }
}
