//! What a tally says: the dissertation's metrics (Lu 2012, eq. 2.3–2.5), with an error bar where only a sample was counted.

use crate::Tally;

/// The figures of one choice. Bytes are those of chunks before compression.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// Bytes read.
    pub bytes: u64,
    /// Chunks: n.
    pub chunks: u64,
    /// Different chunks: m.
    pub unique_chunks: f64,
    /// Their bytes.
    pub unique_bytes: f64,
    /// Half the width of the 95 % interval of `unique_bytes`; 0 where all chunks were counted.
    pub unique_bytes_error: f64,
    /// One fingerprint of 2^level was counted; 0: all.
    pub level: u32,
}

/// Bytes of a chunk's name in the chunk list (eq. 2.3).
const NAME_BYTES: f64 = 20.0;
/// Standard errors to either side that hold the truth 95 times of 100.
const SIGMAS: f64 = 1.96;
/// Standard errors that are no longer chance.
const SIGMAS_OF_CHANCE: f64 = 2.5;

impl Estimate {
    /// From all that was counted.
    ///
    /// Of a sample, the different bytes that it holds times 2^level, corrected by how far the sample's occurrences, times 2^level, are from
    /// all bytes, which are known: the regression estimator, with the slope of least variance. Where every chunk is alone it is exact. Without the correction where the
    /// sample is too far from all bytes for chance, as where it misses a chunk that makes up a large part of them.
    pub fn of(tally: &Tally) -> Self {
        let scale = f64::from(tally.level).exp2();
        let pairs = || {
            tally.seen.values().map(|seen| {
                let bytes = f64::from(seen.bytes);
                (bytes, bytes * f64::from(seen.count))
            })
        };
        let sum = |term: fn((f64, f64)) -> f64| pairs().map(term).sum::<f64>();
        let (unique, all) = (sum(|(once, _)| once), sum(|(_, all)| all));
        let square = sum(|(_, all)| all * all);
        let missing = tally.bytes as f64 - all * scale;
        // Bytes beyond what chance explains: some chunk that occurs very often (zeros, of a disk image) is not in the sample, and tells nothing of the others.
        let is_chance = missing.abs() <= SIGMAS_OF_CHANCE * (square * scale * (scale - 1.0)).sqrt();
        let slope = match is_chance {
            true => over_zero(sum(|(once, all)| once * all), square),
            false => 0.0,
        };
        let residuals: f64 = pairs()
            .map(|(once, all)| once - slope * all)
            .map(|residual| residual * residual)
            .sum();
        let total = tally.bytes as f64;
        let corrected = if tally.level == 0 {
            unique
        } else {
            unique * scale + slope * missing
        };
        Self {
            bytes: tally.bytes,
            chunks: tally.chunks,
            unique_chunks: tally.seen.len() as f64 * scale,
            unique_bytes: corrected.clamp(total.min(1.0), total),
            unique_bytes_error: SIGMAS * (residuals * scale * (scale - 1.0)).sqrt(),
            level: tally.level,
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

    /// DER_meta (eq. 2.5): the metadata is stored too.
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

    /// ACS: the average chunk in bytes.
    pub fn chunk_bytes_mean(&self) -> f64 {
        over_zero(self.bytes as f64, self.chunks as f64)
    }
}

/// A ratio of sizes, 1 where there is nothing.
fn over(big: f64, small: f64) -> f64 {
    if small > 0.0 { big / small } else { 1.0 }
}

fn over_zero(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
