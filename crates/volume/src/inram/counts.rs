//! Reference counts, and with them which blocks are free. Blocks are allocated one after the other (report §3.6.1).

use super::hash_table::zeroed;
use crate::{Error, Pbn, Result};

/// The highest count; what is above is a state.
pub(super) const COUNT_MAX: u32 = u32::MAX - 2;
/// Freed, and not to be allocated before the next release.
const WAITING: u32 = u32::MAX - 1;
/// Allocated, its count not raised yet.
const ALLOCATED: u32 = u32::MAX;

/// A count or a state for each block.
pub(super) struct BlockCounts {
    counts: Vec<u32>,
    /// Where the search for a free block goes on.
    cursor: u64,
    free: u64,
    waiting: Vec<u64>,
}

impl BlockCounts {
    /// # Errors
    /// [`Error::Unsupported`] where the memory cannot be had.
    pub fn new(blocks: u64) -> Result<Self> {
        Ok(Self {
            counts: zeroed(blocks)?,
            cursor: 0,
            free: blocks,
            waiting: Vec::new(),
        })
    }

    pub fn blocks(&self) -> u64 {
        self.counts.len() as u64
    }

    pub fn free(&self) -> u64 {
        self.free
    }

    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    pub fn ram_bytes(&self) -> u64 {
        (self.counts.len() * 4 + self.waiting.capacity() * 8) as u64
    }

    pub fn allocate(&mut self) -> Option<Pbn> {
        if self.free == 0 {
            return None;
        }
        let blocks = self.blocks();
        loop {
            let block = self.cursor;
            self.cursor = (block + 1) % blocks;
            let count = &mut self.counts[block as usize];
            if *count == 0 {
                *count = ALLOCATED;
                self.free -= 1;
                return Some(Pbn(block));
            }
        }
    }

    /// # Errors
    /// [`Error::Invalid`]: the block is free, or does not exist, or has all the references that can be counted.
    pub fn raise(&mut self, pbn: Pbn) -> Result<u32> {
        let count = self.of(pbn)?;
        *count = match *count {
            ALLOCATED => 1,
            0 | WAITING => return Err(invalid(pbn, "is free, and cannot be referred to")),
            COUNT_MAX => return Err(invalid(pbn, "has as many references as can be counted")),
            count => count + 1,
        };
        Ok(*count)
    }

    /// # Errors
    /// [`Error::Invalid`]: the block has no reference, or does not exist.
    pub fn lower(&mut self, pbn: Pbn) -> Result<u32> {
        let count = self.of(pbn)?;
        match *count {
            0 | WAITING | ALLOCATED => Err(invalid(pbn, "has no reference to be dropped")),
            1 => {
                *count = WAITING;
                self.waiting.push(pbn.0);
                Ok(0)
            }
            more => {
                *count = more - 1;
                Ok(more - 1)
            }
        }
    }

    /// Blocks that were freed can be allocated.
    pub fn release(&mut self) {
        for block in std::mem::take(&mut self.waiting) {
            self.counts[block as usize] = 0;
            self.free += 1;
        }
    }

    /// Where the search for a free block goes on.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Blocks that something refers to, ascending, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Pbn, u32)> {
        let all = self.counts.iter().enumerate();
        all.filter(|(_, count)| (1..=COUNT_MAX).contains(*count))
            .map(|(block, count)| (Pbn(block as u64), *count))
    }

    /// Takes over what was saved: the block is free so far, and the count is at least 1.
    pub fn restore(&mut self, pbn: Pbn, count: u32) {
        self.counts[pbn.0 as usize] = count;
        self.free -= 1;
    }

    /// Takes over what was saved: below the number of blocks.
    pub fn restore_cursor(&mut self, cursor: u64) {
        self.cursor = cursor;
    }

    fn of(&mut self, pbn: Pbn) -> Result<&mut u32> {
        let blocks = self.blocks();
        let found = self.counts.get_mut(pbn.0 as usize);
        found.ok_or_else(|| invalid(pbn, &format!("lies beyond the {blocks} blocks")))
    }
}

fn invalid(pbn: Pbn, what: &str) -> Error {
    Error::Invalid {
        what: format!("block {} {what}", pbn.0),
    }
}
