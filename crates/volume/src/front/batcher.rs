//! Batches form by themselves: a free thread takes everything that waits, up to 256 chunks, and hashes it. Batches are
//! numbered as they are taken, and reach the engine in that order.

use std::ops::Range;
use std::sync::Arc;

use onefold_chunk::{Fingerprint, fingerprints};

use super::ack::WriteAck;
use super::staging::StagedRun;
use super::state::{FrontShared, FrontState};
use super::stats::NodedupCounts;
use crate::{ChunkContent, HashedChunk, HeadId, Lbn};

/// Chunks of a batch at most: they fill the lanes of the hash, and 1 MiB of 4 KiB chunks still lies in the processor's
/// cache.
const BATCH_CHUNKS_MAX: usize = 256;

/// Number of chunks that are hashed although the engine has enough to do.
const WORTHWHILE_CHUNKS: usize = 64;
/// Batches on their way to the engine with which it has enough to do.
const BATCHES_ENOUGH: u64 = 2;

/// Work that waits for its turn.
pub(super) enum FrontTask {
    /// Chunks of a run, the first with this sequence number.
    Write {
        run: Arc<StagedRun>,
        chunks: Range<usize>,
        first_sequence: u64,
        /// Nanoseconds until which they may wait for a page, where they have waited before.
        held_until: Option<u64>,
    },
    /// Chunks to be unmapped.
    Discard(Discard),
}

/// Chunks to be unmapped.
pub(super) struct Discard {
    pub head: HeadId,
    pub lbns: Range<u64>,
    pub sequence: u64,
    pub ack: Arc<WriteAck>,
}

/// Work that the engine does in one go.
pub(super) enum EngineBatch {
    Write(Vec<BatchChunk>),
    Discard(Discard),
}

/// A chunk on its way to the engine.
pub(super) struct BatchChunk {
    pub run: Arc<StagedRun>,
    pub index: usize,
    pub sequence: u64,
    pub has_page: bool,
    /// Nanoseconds until which it may wait for a page, where it has waited before.
    pub held_until: Option<u64>,
    is_incompressible: bool,
    content: BatchContent,
}

#[derive(Clone, Copy)]
enum BatchContent {
    /// Not looked at yet, or not to be deduplicated.
    Plain,
    Zero,
    Hashed(Fingerprint),
}

impl BatchChunk {
    pub fn lbn(&self) -> u64 {
        self.run.first_lbn + self.index as u64
    }

    /// As the engine wants it.
    pub fn as_hashed(&self) -> HashedChunk<'_> {
        let bytes = self.run.chunk(self.index);
        HashedChunk {
            head: self.run.head,
            lbn: Lbn(self.lbn()),
            content: match self.content {
                BatchContent::Plain => ChunkContent::NoDedup(bytes),
                BatchContent::Zero => ChunkContent::Zero,
                BatchContent::Hashed(fingerprint) => {
                    ChunkContent::Fingerprinted(fingerprint, bytes)
                }
            },
            has_page: self.has_page,
            is_metadata: self.run.hints.metadata,
            is_incompressible: self.is_incompressible,
        }
    }
}

impl FrontState {
    /// Whether there is a batch to be hashed. While the engine has enough to do, small ones are left to grow: one of 13
    /// chunks costs the device as much as one of 40.
    pub fn has_batch(&self) -> bool {
        let is_needed = self.next_batch - self.next_for_engine < BATCHES_ENOUGH;
        !self.queue.is_empty() && (is_needed || self.queued_chunks >= WORTHWHILE_CHUNKS)
    }

    /// The next batch for the engine, if it is hashed, with all that can go with it.
    pub fn take_hashed(&mut self) -> Option<EngineBatch> {
        let mut batch = self.hashed.remove(&self.next_for_engine)?;
        self.next_for_engine += 1;
        if let EngineBatch::Write(chunks) = &mut batch {
            while let Some(EngineBatch::Write(next)) = self.hashed.get(&self.next_for_engine)
                && chunks.len() + next.len() <= BATCH_CHUNKS_MAX
            {
                if let Some(EngineBatch::Write(next)) = self.hashed.remove(&self.next_for_engine) {
                    chunks.extend(next);
                }
                self.next_for_engine += 1;
            }
        }
        Some(batch)
    }

    /// The next batch to be hashed, with its number. Discards have nothing to be hashed: they take their place in the
    /// order at once.
    pub fn take_batch(&mut self) -> Option<(u64, Vec<BatchChunk>)> {
        let mut batch = Vec::new();
        while let Some(task) = self.queue.front_mut() {
            match task {
                FrontTask::Discard(_) if !batch.is_empty() => break,
                FrontTask::Discard(_) => {
                    if let Some(FrontTask::Discard(discard)) = self.queue.pop_front() {
                        let number = self.number_batch();
                        self.hashed.insert(number, EngineBatch::Discard(discard));
                    }
                }
                FrontTask::Write {
                    run,
                    chunks,
                    first_sequence,
                    held_until,
                } => {
                    let room = BATCH_CHUNKS_MAX - batch.len();
                    let end = chunks.end.min(chunks.start + room);
                    batch.extend((chunks.start..end).map(|index| BatchChunk {
                        run: Arc::clone(run),
                        index,
                        sequence: *first_sequence + index as u64,
                        has_page: run.has_pages,
                        held_until: *held_until,
                        is_incompressible: false,
                        content: BatchContent::Plain,
                    }));
                    chunks.start = end;
                    if chunks.start == chunks.end {
                        self.queue.pop_front();
                    }
                    if batch.len() == BATCH_CHUNKS_MAX {
                        break;
                    }
                }
            }
        }
        self.queued_chunks -= batch.len();
        (!batch.is_empty()).then(|| (self.number_batch(), batch))
    }

    fn number_batch(&mut self) -> u64 {
        self.next_batch += 1;
        self.next_batch - 1
    }
}

impl FrontShared {
    /// Finds chunks of zeros, and fingerprints the others, all at once.
    pub fn hash(&self, batch: &mut [BatchChunk]) {
        let places = batch.iter().map(|chunk| (chunk.run.head, chunk.lbn()));
        let hinted = self.hints_at(places);
        let inferred = self.inferred(batch);
        let mut wanted = Vec::with_capacity(batch.len());
        let mut nodedup = NodedupCounts::default();
        for (at, chunk) in batch.iter_mut().enumerate() {
            let hints = chunk.run.hints;
            chunk.is_incompressible = hints.incompressible || hinted[at].incompressible;
            if is_zero(chunk.run.chunk(chunk.index)) {
                chunk.content = BatchContent::Zero;
            } else if hints.nodedup {
                nodedup.by_request += 1;
            } else if hinted[at].nodedup {
                nodedup.by_range += 1;
            } else if hints.metadata || inferred[at] {
                nodedup.as_metadata += 1;
            } else {
                wanted.push(at);
            }
        }
        self.counters.nodedup(&nodedup);
        let chunks = wanted.iter().map(|at| {
            let chunk = &batch[*at];
            chunk.run.chunk(chunk.index)
        });
        let hashes = fingerprints(Some(&self.hash_key), chunks);
        for (at, fingerprint) in wanted.into_iter().zip(hashes) {
            batch[at].content = BatchContent::Hashed(fingerprint);
        }
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    bytes
        .chunks(ZEROS.len())
        .all(|part| part == &ZEROS[..part.len()])
}
