//! Counts chunks by fingerprint: each by itself while they fit; then long chunks by themselves and the others through a
//! [`Sketch`].
//!
//! Invariant: all chunks of at most `sketched_max` bytes are in the sketch and in it alone, all others in the table.
//! When the table is full, the limit rises along a fixed series, only as far as it must. The division thus depends on
//! the chunks alone, not on their order, threads or hosts. The longest chunks stay in the table because they weigh
//! most; the others are more even, and the sketch is more exact for them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use onefold_chunk::Fingerprint;

use crate::sketch::Sketch;

/// Chunks of one choice of chunker and mean.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Bytes of all chunks. Where a merged file claims more than is possible, this and `chunks` stay at the largest
    /// number.
    pub bytes: u64,
    /// Number of all chunks.
    pub chunks: u64,
    /// Longest chunk in bytes that is counted in the sketch; 0: the sketch is not used.
    pub(crate) sketched_max: u32,
    /// Lengths of all other chunks, by fingerprint.
    pub(crate) seen: HashMap<u64, u32, BuildHasherDefault<Ready>>,
    pub(crate) sketch: Sketch,
    entries_max: usize,
}

/// RAM of an entry in bytes while the table doubles: old and new side by side, at most half full.
const ENTRY_BYTES: u64 = 52;
/// Entries that the table may have with any memory, in 416 KiB: the remaining chunks are then enough to fill the
/// registers of the sketch.
const ENTRIES_MIN: u64 = 8192;

impl Tally {
    /// An empty tally that takes at most `ram_bytes`, or the 928 KiB that a sketch and a small table need.
    pub fn new(ram_bytes: u64) -> Self {
        let entries = ram_bytes.saturating_sub(Sketch::BYTES) / ENTRY_BYTES;
        Self {
            bytes: 0,
            chunks: 0,
            sketched_max: 0,
            seen: HashMap::default(),
            sketch: Sketch::default(),
            entries_max: entries.max(ENTRIES_MIN) as usize,
        }
    }

    /// Counts a chunk.
    pub fn add(&mut self, fingerprint: Fingerprint, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.chunks = self.chunks.saturating_add(1);
        self.note(fingerprint.prefix(), bytes as u32);
    }

    /// Adds the counts of another tally of the same choice.
    pub fn merge(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.chunks = self.chunks.saturating_add(other.chunks);
        self.sketch_to(other.sketched_max);
        self.sketch.merge(&other.sketch);
        for (key, bytes) in &other.seen {
            self.note(*key, *bytes);
        }
    }

    /// The number of chunks that are counted by themselves.
    pub fn entries(&self) -> usize {
        self.seen.len()
    }

    /// Notes a chunk, which may be noted already.
    pub(crate) fn note(&mut self, key: u64, bytes: u32) {
        if bytes <= self.sketched_max {
            self.sketch.add(key, bytes);
            return;
        }
        self.seen.insert(key, bytes);
        if self.seen.len() > self.entries_max {
            let shortest = self.seen.values().copied().min();
            self.sketch_to(step(shortest.unwrap_or(0)));
        }
    }

    /// Counts chunks of at most `bytes_max` bytes in the sketch from now on, as if the table were full.
    pub fn sketch_to(&mut self, bytes_max: u32) {
        if bytes_max > self.sketched_max {
            self.sketched_max = bytes_max;
            let sketch = &mut self.sketch;
            self.seen.retain(|key, bytes| {
                let stays = *bytes > bytes_max;
                if !stays {
                    sketch.add(*key, *bytes);
                }
                stays
            });
        }
    }
}

/// The next limit of the series: the least number of five significant bits that is not below `bytes`.
fn step(bytes: u32) -> u32 {
    let unit = 1 << u64::from(bytes | 16).ilog2().saturating_sub(4);
    let limit = u64::from(bytes).next_multiple_of(unit);
    u32::try_from(limit).unwrap_or(u32::MAX)
}

/// A hasher that does nothing: keys are bits of a hash already.
#[derive(Clone, Default)]
pub struct Ready(u64);

impl Hasher for Ready {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}
