//! Looking contents up by their hashes: what was read with the hint PREFETCH first, then the hash index.

use super::faults::{DmdedupFault, is_on};
use super::write::{HashKey, hash_key};
use super::{Dmdedup, Shared};
use crate::{ChunkRead, Key, NameChunks, Pbn, Result};

/// References of a block that a hash and an LBN name. One without deduplication has one: no other LBN may name it.
const NAMED_AND_MAPPED: u32 = 2;

impl Dmdedup {
    /// For each hash the block that has its content.
    pub(super) fn known(&mut self, hashes: &[HashKey]) -> Result<Vec<Option<Pbn>>> {
        let mut found = self.prefetched(hashes)?;
        let rest: Vec<usize> = (0..hashes.len())
            .filter(|at| found[*at].is_none())
            .collect();
        let keys: Vec<_> = rest.iter().map(|at| Key::Sparse(&hashes[*at])).collect();
        let mut answers = vec![None; keys.len()];
        self.backend()?
            .lookup(self.shared.hashes, &keys, &mut answers)?;
        for (at, answer) in rest.into_iter().zip(answers) {
            found[at] = answer;
        }
        Ok(found)
    }

    /// For each hash the block that a read with the hint PREFETCH has met. It is forgotten: a copy is written once.
    fn prefetched(&mut self, hashes: &[HashKey]) -> Result<Vec<Option<Pbn>>> {
        let mut found = vec![None; hashes.len()];
        if self.shared.prefetched.is_empty() {
            return Ok(found);
        }
        let shared = std::sync::Arc::clone(&self.shared);
        let mut backend = shared.backend()?;
        for (hash, found) in hashes.iter().zip(&mut found) {
            if let Some(pbn) = shared.prefetched.take(hash)
                && backend.ref_count(pbn)? >= NAMED_AND_MAPPED
            {
                *found = Some(pbn);
                self.counts.prefetched += 1;
            }
        }
        Ok(found)
    }
}

impl Shared {
    /// Reads chunks, and remembers by their hashes in which blocks they lie. Nobody may have freed a block since it was
    /// looked up: the gate keeps one from being filled anew until here, and what is mapped now is not free.
    pub(super) fn read_remembering(
        &self,
        reads: &mut [ChunkRead<'_>],
        name: NameChunks<'_>,
    ) -> Result<()> {
        let _gate = self.gate.read();
        let pbns = self.read_blocks(reads)?;
        let block_bytes = self.data.block_bytes();
        let lbns = reads.iter().flat_map(|read| self.lbns_of(read));
        let chunks = (reads.iter()).flat_map(|read| read.buffer.chunks_exact(block_bytes));
        let (mut keys, mut mapped, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for ((lbn, pbn), chunk) in lbns.zip(pbns).zip(chunks) {
            if let Some(pbn) = pbn {
                keys.push(Key::Linear(lbn));
                mapped.push(pbn);
                bytes.push(chunk);
            }
        }
        let hashes = name(&bytes);
        let mut backend = self.backend()?;
        let mut now = vec![None; keys.len()];
        backend.lookup(self.lbns, &keys, &mut now)?;
        for ((pbn, now), hash) in mapped.into_iter().zip(now).zip(&hashes) {
            if now == Some(pbn) {
                self.prefetched.insert(hash_key(hash), pbn);
            }
        }
        Ok(())
    }

    /// A block has so many references from now on: one that has none is free, and holds something else soon. The
    /// backend is locked.
    pub(super) fn forget_prefetched(&self, pbn: Pbn, count: u32) {
        if count == 0 && !is_on(DmdedupFault::PrefetchedOutlivesItsBlock) {
            self.prefetched.forget(&pbn);
        }
    }
}
