//! Staging: chunks that were acknowledged and have not reached the engine. Reads look here first.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

use onefold_io::mix64;

use super::ack::WriteAck;
use crate::{Buffer, HeadId, Hints};

/// Neighbouring whole chunks of one write, in the memory that they came in.
pub(super) struct StagedRun {
    pub head: HeadId,
    pub first_lbn: u64,
    pub chunk_bytes: usize,
    pub buffer: Buffer,
    pub hints: Hints,
    /// Whether a page was set aside for each chunk.
    pub has_pages: bool,
    /// Answer that waits for the chunks to be written; `None` where the write is acknowledged already.
    pub ack: Option<Arc<WriteAck>>,
}

impl StagedRun {
    pub fn chunks(&self) -> usize {
        self.buffer.len() / self.chunk_bytes
    }

    pub fn chunk(&self, index: usize) -> &[u8] {
        &self.buffer[index * self.chunk_bytes..(index + 1) * self.chunk_bytes]
    }

    pub fn lbns(&self) -> Range<u64> {
        self.first_lbn..self.first_lbn + self.chunks() as u64
    }
}

/// A chunk in staging.
#[derive(Clone)]
pub(super) struct Staged {
    pub run: Arc<StagedRun>,
    pub index: usize,
    pub sequence: u64,
}

impl Staged {
    pub fn bytes(&self) -> &[u8] {
        self.run.chunk(self.index)
    }
}

/// The newest staged chunk of each LBN.
#[derive(Default)]
pub(super) struct Staging {
    chunks: HashMap<(HeadId, u64), Staged, BuildHasherDefault<LbnHasher>>,
    /// Bytes of all chunks on their way to the engine, those that a newer one hides included.
    bytes: usize,
}

impl Staging {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn get(&self, head: HeadId, lbn: u64) -> Option<&Staged> {
        self.chunks.get(&(head, lbn))
    }

    /// Puts all chunks of `run`, the first with `sequence`.
    pub fn put(&mut self, run: &Arc<StagedRun>, sequence: u64) {
        for index in 0..run.chunks() {
            self.put_chunk(run, index, sequence + index as u64);
        }
    }

    /// Puts one chunk of `run`, with `sequence`.
    pub fn put_chunk(&mut self, run: &Arc<StagedRun>, index: usize, sequence: u64) {
        self.bytes += run.chunk_bytes;
        let staged = Staged {
            run: Arc::clone(run),
            index,
            sequence,
        };
        let lbn = run.first_lbn + index as u64;
        self.chunks.insert((run.head, lbn), staged);
    }

    /// The engine has this chunk, or nobody wants it any more. A newer one of the LBN stays.
    pub fn remove(&mut self, run: &StagedRun, index: usize, sequence: u64) {
        self.bytes -= run.chunk_bytes;
        let key = (run.head, run.first_lbn + index as u64);
        if self
            .chunks
            .get(&key)
            .is_some_and(|staged| staged.sequence == sequence)
        {
            self.chunks.remove(&key);
        }
    }

    /// The staged LBNs of a range, ascending.
    pub fn within(&self, head: HeadId, lbns: Range<u64>) -> Vec<u64> {
        let keys = self.chunks.keys();
        let mut found: Vec<_> = keys
            .filter(|(of, lbn)| *of == head && lbns.contains(lbn))
            .map(|(_, lbn)| *lbn)
            .collect();
        found.sort_unstable();
        found
    }
}

/// Spreads an LBN over 64 bits: clients choose LBNs, but gain nothing by choosing ones that collide, since staging is
/// small.
#[derive(Default)]
pub(super) struct LbnHasher(u64);

impl Hasher for LbnHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix64(self.0.rotate_left(32) ^ number);
    }
}
