//! The write path (report Figure 3.3), a batch at a time, in the order that is safe: look up, allocate, write the data,
//! wait for it, and only then name it.
//!
//! ```text
//! write: plan (look up, allocate) ─▶ gather ─▶ data device, behind ─▶ settle: hashes, LBNs, counts
//! ```
//!
//! Batches settle in their order. What is new in one that has not settled is known to the next ones (`pending`): these
//! settle behind it, or, where its write fails, not at all.

use std::collections::HashMap;

use onefold_chunk::Fingerprint;

use super::faults::{DmdedupFault, is_on};
use super::{Backend, DataArea, Dmdedup, HASH_KEY_BYTES};
use crate::side_threads::Running;
use crate::{Buffer, ChunkContent, Error, HashedChunk, Key, Pbn, Result};

/// Batches on their way to the device at most.
pub(super) const IN_FLIGHT_MAX: usize = 3;
/// Blocks without room that are passed over in search of one with.
const PASSED_MAX: usize = 1 << 20;

/// Writes neighbours, of which each run has a first block and bytes, one behind the other in the memory.
fn write_runs(data: &DataArea, memory: &[u8], runs: &[(Pbn, usize)]) -> Result<()> {
    let mut at = 0;
    for (first, bytes) in runs {
        data.write(*first, &memory[at..at + bytes])?;
        at += bytes;
    }
    Ok(())
}

/// The key of a content in the hash index.
pub(super) type HashKey = [u8; HASH_KEY_BYTES];

/// Fate of one chunk of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkFate {
    /// Zeros: the LBN is unmapped.
    Unmapped,
    /// The content is known: its block is written, or is being written before this chunk settles.
    Known(Pbn),
    /// The content is new, and its data is being written.
    New(Pbn),
    /// New, and not to be deduplicated.
    NoDedup(Pbn),
}

impl ChunkFate {
    /// Whether the chunk has a new block.
    pub fn is_new(self) -> bool {
        matches!(self, Self::New(_) | Self::NoDedup(_))
    }
}

/// A batch on its way to the device.
pub(super) struct InFlight {
    /// LBN and target of each chunk that was not refused, in order.
    chunks: Vec<(u64, ChunkFate)>,
    /// Blocks that are being written, and the key under which the content is to be found; `None` where it is not to be.
    new_blocks: Vec<(Pbn, Option<HashKey>)>,
    running: RunningData,
}

/// The memory of a batch on its way, which comes back, and whether it was written.
type RunningData = Running<(Buffer, Result<()>)>;

/// A batch after lookups and allocation, before anything of it can be seen.
struct PlannedBatch<'a> {
    chunks: Vec<(u64, ChunkFate)>,
    refused: Vec<usize>,
    new_blocks: Vec<(Pbn, Option<HashKey>)>,
    /// Contents of the new blocks.
    contents: Vec<&'a [u8]>,
}

impl Dmdedup {
    pub(super) fn write_batch(&mut self, chunks: &[HashedChunk<'_>]) -> Result<Vec<usize>> {
        for chunk in chunks {
            let end = chunk.lbn.0.saturating_add(1);
            self.shared.check(&(chunk.lbn.0..end))?;
        }
        let plan = self.plan(chunks)?;
        self.is_changed = true;
        let running = if plan.contents.is_empty() {
            Running::ended((Buffer::zeroed(0), Ok(())))
        } else {
            self.write_data(&plan)?
        };
        self.in_flight.push_back(InFlight {
            chunks: plan.chunks,
            new_blocks: plan.new_blocks,
            running,
        });
        let is_done = |batch: &InFlight| batch.running.is_done();
        while self.in_flight.len() >= IN_FLIGHT_MAX || self.in_flight.front().is_some_and(is_done) {
            self.settle_one()?;
        }
        Ok(plan.refused)
    }

    /// Waits until all batches have settled.
    pub(super) fn settle_all(&mut self) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.settle_one()?;
        }
        Ok(())
    }

    /// Waits for the oldest batch, and names what it wrote. Where that failed, it and all behind it name nothing.
    fn settle_one(&mut self) -> Result<()> {
        let Some(batch) = self.in_flight.pop_front() else {
            return Ok(());
        };
        let gone = || (Buffer::zeroed(0), Err(Error::Closing));
        let (memory, result) = batch.running.wait().unwrap_or_else(gone);
        if !memory.is_empty() {
            self.memories.push(memory);
        }
        let result = if is_on(DmdedupFault::FailedWriteIsNamed) {
            Ok(())
        } else {
            result
        };
        let settled = result.and_then(|()| self.publish_all(&batch.chunks, &batch.new_blocks));
        if let Err(error) = settled {
            let mut blocks: Vec<_> = batch.new_blocks;
            for later in std::mem::take(&mut self.in_flight) {
                // Its memory and its blocks are in use until it ends.
                let _ = later.running.wait();
                blocks.extend(later.new_blocks);
            }
            if !is_on(DmdedupFault::FailedWriteStaysPending) {
                self.pending.clear();
            }
            // A backend that failed takes nothing back, and the first error is the one to tell.
            let _ = give_back(&mut self.shared.backend()?, &blocks);
            return Err(error);
        }
        Ok(())
    }

    /// Finds all hashes of the batch at once, then allocates a block for each content that is new.
    fn plan<'a>(&mut self, chunks: &[HashedChunk<'a>]) -> Result<PlannedBatch<'a>> {
        let hash = |chunk: &HashedChunk<'_>| match &chunk.content {
            ChunkContent::Fingerprinted(fingerprint, _) => Some(hash_key(fingerprint)),
            _ => None,
        };
        let hashes: Vec<_> = chunks.iter().filter_map(hash).collect();
        let mut known = hashes.iter().zip(self.known(&hashes)?);
        let mut plan = PlannedBatch {
            chunks: Vec::with_capacity(chunks.len()),
            refused: Vec::new(),
            new_blocks: Vec::new(),
            contents: Vec::new(),
        };
        for (at, chunk) in chunks.iter().enumerate() {
            let target = match chunk.content {
                ChunkContent::Zero => Some(ChunkFate::Unmapped),
                ChunkContent::NoDedup(bytes) => self
                    .new_block(&mut plan, chunk.has_page, None, bytes)?
                    .map(ChunkFate::NoDedup),
                ChunkContent::Fingerprinted(_, bytes) => {
                    let Some((key, found)) = known.next() else {
                        continue;
                    };
                    match found.or_else(|| self.pending.get(key).copied()) {
                        Some(pbn) => Some(ChunkFate::Known(pbn)),
                        None => self
                            .new_block(&mut plan, chunk.has_page, Some(*key), bytes)?
                            .map(ChunkFate::New),
                    }
                }
            };
            match target {
                Some(target) => plan.chunks.push((chunk.lbn.0, target)),
                None => plan.refused.push(at),
            }
        }
        Ok(plan)
    }

    /// A block for new content; `None` where there is no page for it.
    fn new_block<'a>(
        &mut self,
        plan: &mut PlannedBatch<'a>,
        has_page: bool,
        key: Option<HashKey>,
        bytes: &'a [u8],
    ) -> Result<Option<Pbn>> {
        if bytes.len() != self.shared.data.block_bytes() {
            return Err(Error::Invalid {
                what: format!(
                    "a chunk of {} bytes, expected {}",
                    bytes.len(),
                    self.shared.data.block_bytes()
                ),
            });
        }
        let pbn = if has_page { self.allocate()? } else { None };
        if let Some(pbn) = pbn {
            self.pending.extend(key.map(|key| (key, pbn)));
            plan.new_blocks.push((pbn, key));
            plan.contents.push(bytes);
        }
        Ok(pbn)
    }

    /// A block, with room on the host. Those without are passed over, and free again after the next commit.
    fn allocate(&mut self) -> Result<Option<Pbn>> {
        let mut passed = Vec::new();
        let found = loop {
            let Some(pbn) = self.free_block()? else {
                break None;
            };
            if self.room.reaches(&self.shared.data, pbn.0)? {
                break Some(pbn);
            }
            passed.push((pbn, None));
            if passed.len() == PASSED_MAX {
                break None;
            }
        };
        let mut rest = &passed[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(self.changeable(rest.len())?);
            give_back(&mut self.shared.backend()?, now)?;
            rest = later;
        }
        Ok(found)
    }

    /// A block; where only such are left that a commit makes free, commits.
    fn free_block(&mut self) -> Result<Option<Pbn>> {
        let mut backend = self.backend()?;
        if let Some(pbn) = backend.alloc_block()? {
            return Ok(Some(pbn));
        }
        if backend.stats().blocks_waiting == 0 {
            return Ok(None);
        }
        drop(backend);
        self.commit_changes()?;
        self.backend()?.alloc_block()
    }

    /// Puts the data of new blocks side by side, and has it written, neighbours together.
    fn write_data(&mut self, plan: &PlannedBatch<'_>) -> Result<RunningData> {
        let block_bytes = self.shared.data.block_bytes();
        let bytes = plan.contents.len() * block_bytes;
        let mut memory = self.memories.pop().unwrap_or_else(|| Buffer::zeroed(0));
        if memory.len() < bytes {
            memory = Buffer::zeroed(bytes.next_power_of_two());
        }
        for (place, content) in memory.chunks_exact_mut(block_bytes).zip(&plan.contents) {
            place.copy_from_slice(content);
        }
        let neighbours = plan.new_blocks.chunk_by(|(a, _), (b, _)| a.0 + 1 == b.0);
        let writes: Vec<_> = neighbours
            .map(|run| (run[0].0, run.len() * block_bytes))
            .collect();
        self.counts.data_writes += writes.len() as u64;
        let data = self.shared.data.clone();
        let write = move || {
            let written = write_runs(&data, &memory, &writes);
            (memory, written)
        };
        Ok(self.writers.run(write))
    }

    /// Names what was written: first the hashes, then the LBNs, in the order of the batch.
    pub(super) fn publish(
        &mut self,
        chunks: &[(u64, ChunkFate)],
        new_blocks: &[(Pbn, Option<HashKey>)],
    ) -> Result<()> {
        let shared = std::sync::Arc::clone(&self.shared);
        let mut backend = shared.backend()?;
        for (pbn, key) in new_blocks {
            if let Some(key) = key {
                backend.insert(shared.hashes, Key::Sparse(key), *pbn)?;
                backend.inc_ref(*pbn)?;
                // Until its LBN is mapped, only the hash names it.
                self.garbage += 1;
                self.pending.remove(key);
            }
        }
        let keys: Vec<_> = chunks.iter().map(|(lbn, _)| Key::Linear(*lbn)).collect();
        let mut old = vec![None; keys.len()];
        backend.lookup(shared.lbns, &keys, &mut old)?;
        let mut changed: HashMap<u64, Option<Pbn>> = HashMap::new();
        // Neighbours that ascend come once each: no earlier chunk of the batch can have changed them.
        let is_ascending = chunks.is_sorted_by(|(a, _), (b, _)| a < b);
        for ((lbn, target), mut old) in chunks.iter().zip(old) {
            if let Some(now) = changed.get(lbn) {
                old = *now;
            }
            let new = match *target {
                ChunkFate::Unmapped => None,
                ChunkFate::Known(pbn) | ChunkFate::New(pbn) | ChunkFate::NoDedup(pbn) => Some(pbn),
            };
            self.count_write(*target, old);
            self.map(&mut backend, *lbn, old, new)?;
            if !is_ascending {
                changed.insert(*lbn, new);
            }
        }
        Ok(())
    }

    /// Maps an LBN to another block, or to none, and counts references.
    pub(super) fn map(
        &mut self,
        backend: &mut Backend<'_>,
        lbn: u64,
        old: Option<Pbn>,
        new: Option<Pbn>,
    ) -> Result<()> {
        if old == new {
            return Ok(());
        }
        let store = self.shared.lbns;
        match new {
            Some(pbn) => {
                backend.insert(store, Key::Linear(lbn), pbn)?;
                // From 1 to 2: the first LBN besides the hash.
                let is_first = backend.inc_ref(pbn)? == 2;
                self.garbage = self.garbage.saturating_sub(u64::from(is_first));
            }
            None => backend.delete(store, Key::Linear(lbn))?,
        }
        if let Some(pbn) = old {
            let count = backend.dec_ref(pbn)?;
            self.garbage += u64::from(count == 1);
            self.shared.forget_prefetched(pbn, count);
        }
        Ok(())
    }

    fn count_write(&mut self, target: ChunkFate, old: Option<Pbn>) {
        let counts = &mut self.counts;
        match target {
            ChunkFate::Unmapped => counts.zeros += 1,
            ChunkFate::Known(pbn) => {
                counts.duplicate += 1;
                counts.equal += u64::from(old == Some(pbn));
            }
            ChunkFate::New(_) => counts.unique += 1,
            ChunkFate::NoDedup(_) => {
                counts.unique += 1;
                counts.nodedup += 1;
            }
        }
        match old {
            Some(_) => counts.overwrites += 1,
            None => counts.new += 1,
        }
    }
}

/// Blocks that were not written are free again: nothing named them.
fn give_back(backend: &mut Backend<'_>, blocks: &[(Pbn, Option<HashKey>)]) -> Result<()> {
    blocks.iter().try_for_each(|(pbn, _)| {
        backend.inc_ref(*pbn)?;
        backend.dec_ref(*pbn).map(drop)
    })
}

pub(super) fn hash_key(fingerprint: &Fingerprint) -> HashKey {
    let mut key = [0; HASH_KEY_BYTES];
    key.copy_from_slice(&fingerprint.0[..HASH_KEY_BYTES]);
    key
}
