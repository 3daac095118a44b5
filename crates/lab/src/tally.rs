//! Counts chunks by fingerprint: all of them while they fit, then a sample by content. Every halving keeps the fingerprints that end in one more
//! zero bit, so that all occurrences of a chunk are in the sample or none, whichever thread or host met them; tallies of several hosts add up.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use onefold_chunk::Fingerprint;

/// A chunk that the sample holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Its length in bytes.
    pub bytes: u32,
    /// How often it occurs.
    pub count: u32,
}

/// Chunks of one choice of chunker and mean.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Bytes of all chunks.
    pub bytes: u64,
    /// All chunks.
    pub chunks: u64,
    /// The sample holds one fingerprint of 2^`level`.
    pub level: u32,
    pub(crate) seen: HashMap<u64, Seen, BuildHasherDefault<Ready>>,
    entries_max: usize,
}

/// What an entry takes while the table doubles: old and new side by side, at most half full.
const ENTRY_BYTES: u64 = 52;
/// So deep no sample goes.
pub const LEVEL_MAX: u32 = 40;

impl Tally {
    /// Nothing counted; at most `ram_bytes` are used (some thousand at least).
    pub fn new(ram_bytes: u64) -> Self {
        Self {
            bytes: 0,
            chunks: 0,
            level: 0,
            seen: HashMap::default(),
            entries_max: ((ram_bytes / ENTRY_BYTES) as usize).max(64),
        }
    }

    /// Counts a chunk.
    pub fn add(&mut self, fingerprint: Fingerprint, bytes: usize) {
        self.bytes += bytes as u64;
        self.chunks += 1;
        let once = Seen {
            bytes: bytes as u32,
            count: 1,
        };
        self.note(fingerprint.prefix(), once);
    }

    /// Samples of at least this level only, from now on.
    pub fn thin_to(&mut self, level: u32) {
        if level > self.level {
            self.level = level.min(LEVEL_MAX);
            let level = self.level;
            self.seen.retain(|key, _| is_sampled(*key, level));
        }
    }

    /// Adds what another tally of the same choice has counted.
    pub fn merge(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.chunks += other.chunks;
        self.thin_to(other.level);
        for (key, seen) in &other.seen {
            self.note(*key, *seen);
        }
    }

    /// How many chunks the sample holds.
    pub fn sampled(&self) -> usize {
        self.seen.len()
    }

    pub(crate) fn note(&mut self, key: u64, seen: Seen) {
        if !is_sampled(key, self.level) {
            return;
        }
        let entry = self.seen.entry(key).or_insert(Seen { count: 0, ..seen });
        entry.count = entry.count.saturating_add(seen.count);
        while self.seen.len() > self.entries_max && self.level < LEVEL_MAX {
            self.thin_to(self.level + 1);
        }
    }
}

/// Whether the sample of this level holds chunks of this key.
pub fn is_sampled(key: u64, level: u32) -> bool {
    key.trailing_zeros() >= level
}

/// Keys are bits of a hash: turned, so that those of a sample, which end in zeros, differ in the low bits.
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
        self.0 = word.rotate_left(32);
    }
}
