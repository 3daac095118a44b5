//! The estimate of a tally: the dissertation's metrics (Lu 2012, eq. 2.3–2.5), with an error bar where chunks went
//! through a sketch.

use crate::Tally;

/// The figures of one choice. Bytes are those of chunks before compression.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// Number of bytes read.
    pub bytes: u64,
    /// Number of chunks, n.
    pub chunks: u64,
    /// Number of different chunks, m.
    pub unique_chunks: f64,
    /// Bytes of the different chunks.
    pub unique_bytes: f64,
    /// Half the width of the 95 % interval of `unique_bytes`; 0 where every chunk was counted by itself.
    pub unique_bytes_error: f64,
    /// Whether every chunk was counted by itself.
    pub is_exact: bool,
}

/// Bytes of a chunk's name in the chunk list (eq. 2.3).
const NAME_BYTES: f64 = 20.0;
/// Number of standard errors to either side that hold the truth 95 times of 100.
const SIGMAS: f64 = 1.96;

impl Estimate {
    /// The estimate of a tally.
    pub fn of(tally: &Tally) -> Self {
        let sketched = tally.sketch.read(tally.sketched_max);
        let alone: u64 = tally.seen.values().map(|bytes| u64::from(*bytes)).sum();
        let unique_chunks = tally.seen.len() as f64 + sketched.chunks;
        let unique_bytes = alone as f64 + sketched.bytes;
        Self {
            bytes: tally.bytes,
            chunks: tally.chunks,
            unique_chunks: unique_chunks.min(tally.chunks as f64),
            unique_bytes: unique_bytes.min(tally.bytes as f64),
            unique_bytes_error: SIGMAS * sketched.bytes_error,
            is_exact: tally.sketched_max == 0,
        }
    }

    /// DER: bytes read over bytes of different chunks.
    pub fn ratio(&self) -> f64 {
        over(self.bytes as f64, self.unique_bytes)
    }

    /// Half the width of the 95 % interval of [`ratio`](Self::ratio).
    pub fn ratio_error(&self) -> f64 {
        self.ratio() * over_zero(self.unique_bytes_error, self.unique_bytes)
    }

    /// DER_meta (eq. 2.5): the ratio with the metadata counted as stored.
    pub fn ratio_meta(&self) -> f64 {
        over(self.bytes as f64, self.unique_bytes + self.metadata_bytes())
    }

    /// Index and chunk list in bytes: m·log₂ m / 8 + 20 n (eq. 2.3).
    pub fn metadata_bytes(&self) -> f64 {
        let m = self.unique_chunks.max(1.0);
        m * m.log2() / 8.0 + NAME_BYTES * self.chunks as f64
    }

    /// Bytes saved, less the metadata (eq. 2.3); below zero where chunks cost more than they save.
    pub fn gain_bytes(&self) -> f64 {
        self.bytes as f64 - self.unique_bytes - self.metadata_bytes()
    }

    /// ACS: the average size of a chunk in bytes.
    pub fn chunk_bytes_mean(&self) -> f64 {
        over_zero(self.bytes as f64, self.chunks as f64)
    }
}

/// The ratio of two sizes; 1 where the smaller is 0.
fn over(big: f64, small: f64) -> f64 {
    if small > 0.0 { big / small } else { 1.0 }
}

fn over_zero(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
