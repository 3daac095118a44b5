//! The first stage (§2.4.2): coarse content-defined chunks, marked and not yet cut. A Gear hash looks at 64 bytes, as
//! the dissertation's window does.

use super::filter::mix;
use crate::ChunkLimits;
use crate::gear_table::GEAR;
use crate::odds::odds_for;

/// The signature of a coarse chunk for counting, from the fingerprint of all its bytes. It passes every pre-filter and
/// differs from all signatures of segments.
pub fn signature(sum: u64, bytes: usize) -> u64 {
    mix(sum ^ (bytes as u64) << 53) >> 33 << 32 | 1 << 63 | 1
}

/// Finds the ends of coarse chunks.
#[derive(Clone, Debug)]
pub struct Coarse {
    threshold: u64,
    /// The longest coarse chunk in bytes.
    pub max: usize,
}

impl Coarse {
    /// Coarse chunks of `mean` bytes on random data, from 1 byte to `max`.
    pub fn new(mean: usize, max: usize) -> Self {
        let limits = ChunkLimits { min: 1, mean, max };
        Self {
            threshold: (odds_for(limits) * 2f64.powi(64)) as u64,
            max,
        }
    }

    /// Length of the coarse chunk at the beginning of `data`.
    pub fn cut(&self, data: &[u8]) -> usize {
        let end = data.len().min(self.max);
        let mut hash = 0;
        let place = data[..end]
            .iter()
            .position(|byte| self.step(&mut hash, *byte));
        place.map_or(end, |at| at + 1)
    }

    /// Adds one byte; returns whether a coarse chunk ends with it. `hash` must be 0 at the beginning of each chunk.
    #[inline(always)]
    pub fn step(&self, hash: &mut u64, byte: u8) -> bool {
        *hash = (*hash << 1).wrapping_add(GEAR[byte as usize]);
        *hash < self.threshold
    }
}
