//! Transactions of a number of writes (report §3.6.3): data and metadata are committed after that many, besides at every
//! flush, and earlier where the metadata is short of room that a commit frees. A batch that crosses the border is named
//! in parts.

use super::faults::{DmdedupFault, is_on};
use super::write::{ChunkFate, HashKey};
use super::{Dmdedup, Pbn};
use crate::{Error, Result};

/// Changes of the metadata for a chunk at most: its hash, its LBN, the count of its block twice, that of the old block.
const CHUNK_CHANGES_MAX: u64 = 5;

/// How long transactions are, and how far the one that is under way has come.
#[derive(Default)]
pub(super) struct Transactions {
    /// Writes after which a transaction ends; `None`: it ends at a flush alone.
    writes_max: Option<u64>,
    writes: u64,
}

impl Dmdedup {
    /// Commits after this many writes and discards of chunks; with 0 at flushes alone.
    #[must_use]
    pub fn committing_every(mut self, writes: u64) -> Self {
        self.transactions.writes_max = (writes > 0).then_some(writes);
        self
    }

    /// Names what a batch wrote, in as many transactions as it takes.
    pub(super) fn publish_all(
        &mut self,
        mut chunks: &[(u64, ChunkFate)],
        mut new_blocks: &[(Pbn, Option<HashKey>)],
    ) -> Result<()> {
        while !chunks.is_empty() {
            let (now, later) = chunks.split_at(self.room_in_transaction(chunks.len())?);
            let is_new = |(_, target): &&(u64, ChunkFate)| target.is_new();
            let (blocks, rest) = new_blocks.split_at(now.iter().filter(is_new).count());
            self.publish(now, blocks)?;
            self.add_to_transaction(now.len())?;
            (chunks, new_blocks) = (later, rest);
        }
        Ok(())
    }

    /// Counts writes, and ends the transaction where it is as long as it may be.
    pub(super) fn add_to_transaction(&mut self, writes: usize) -> Result<()> {
        let transactions = &mut self.transactions;
        transactions.writes += writes as u64;
        match transactions.writes_max {
            Some(max) if transactions.writes >= max => self.end_transaction(),
            _ => Ok(()),
        }
    }

    /// Data, then metadata.
    pub(super) fn end_transaction(&mut self) -> Result<()> {
        if !is_on(DmdedupFault::NoSyncBeforeFlush) {
            self.shared.data.sync()?;
        }
        self.shared.wait_for_readers();
        self.shared.backend()?.flush()?;
        self.transactions.writes = 0;
        Ok(())
    }

    /// How many of `chunks` chunks can be changed before the next commit, by the room that the metadata has: one at
    /// least, for which a commit is made where it has to be.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: a commit did not help, either. Nothing was changed.
    pub(super) fn changeable(&mut self, chunks: usize) -> Result<usize> {
        let mut left = self.backend()?.changes_left()? / CHUNK_CHANGES_MAX;
        if left == 0 {
            self.end_transaction()?;
            left = self.backend()?.changes_left()? / CHUNK_CHANGES_MAX;
        }
        match left {
            0 => Err(Error::NoSpace {
                what: "the metadata has no room for another chunk".into(),
            }),
            left => Ok(chunks.min(usize::try_from(left).unwrap_or(usize::MAX))),
        }
    }

    /// How many of `chunks` writes the transaction takes: one at least.
    fn room_in_transaction(&mut self, chunks: usize) -> Result<usize> {
        let changeable = self.changeable(chunks)?;
        let Transactions { writes_max, writes } = self.transactions;
        let room = writes_max.map_or(u64::MAX, |max| max.saturating_sub(writes).max(1));
        Ok(changeable.min(usize::try_from(room).unwrap_or(usize::MAX)))
    }
}
