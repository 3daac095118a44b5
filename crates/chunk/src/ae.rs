//! Asymmetric Extremum (Zhang et al., INFOCOM 2015, §III): a cut comes a fixed window after a value larger than all
//! before it in the chunk.
//!
//! The value of a position is the eight bytes from it, as a big-endian number, as in the paper: single bytes tie so
//! often that the mean of chunks no longer follows `(e − 1) · window`. There is no hash, and the only limit is the one
//! set here because of memory: eight times the mean.
//!
//! The search for the next larger value runs on vectors (see [`Isa`]): two bytes of every position's value tell nearly
//! all that are smaller, and the few others are compared whole. [`Ae::on`] chooses the instructions; all cut
//! identically.
//!
//! *The published constant.* The paper gives the window as the mean divided by `e − 1`. That is derived for a chunk
//! that begins at a random place, but chunks begin behind a window in which nothing was larger than the last extremum,
//! and the mean of random data comes out 4 % longer than asked for; this module divides by the measured constant
//! instead.
//!
//! *Faults known of public versions, not copied:* values of one byte, compared as signed numbers or not as the compiler
//! has it. A byte saturates: once a window is likely to hold the largest value there is, nothing exceeds it, and every
//! chunk ends a window behind the first of those, so that the mean of random data stays far from the one asked for.
//!
//! Measured on one Zen 4 core at a mean of 8 KiB, 256 MiB of random data out of memory: 2.6 GB/s byte by byte (3.1 in
//! one loop over a chunk), 5 in plain blocks, 14 with SSE2, 23 with AVX2, 21 with AVX-512.

use crate::real;
pub use crate::simd::Isa;
use crate::simd::{Simd, value_at};
use crate::{ChunkLimits, Chunker};

/// Bytes of a position's value.
const VALUE: usize = 8;

/// Mean chunk in terms of the window, measured over 48 MiB of random data. The paper has `e − 1 = 1.718`, see the
/// module.
const MEAN_PER_WINDOW: f64 = 1.783;

/// Content-defined chunks by Asymmetric Extremum.
///
/// ```
/// use onefold_chunk::{Chunker, ae::Ae};
///
/// let mut data = vec![0; 100_000];
/// data[5000] = 1;
/// let mut ae = Ae::new(8192);
/// // Zeros have no extremum but their first; the largest value begins at the byte that is not zero.
/// assert_eq!(ae.cut(&data[1000..]), ae.limits().min + 4000);
/// ```
#[derive(Clone, Debug)]
pub struct Ae {
    limits: ChunkLimits,
    window: usize,
    simd: Simd,
}

impl Ae {
    /// Chunks of `mean` bytes, at least 256.
    pub fn new(mean: usize) -> Self {
        let mean = mean.max(256);
        let window = real::round(mean as f64 / MEAN_PER_WINDOW) as usize;
        let limits = ChunkLimits {
            min: window,
            mean,
            max: 8 * mean,
        };
        let simd = Simd::best();
        Self {
            limits,
            window,
            simd,
        }
    }

    /// This chunker, with the same cuts, computed by the instructions `isa`: for tests and measurements. `None` where
    /// the CPU does not have them.
    pub fn on(&self, isa: Isa) -> Option<Self> {
        let simd = Simd::on(isa)?;
        Some(Self {
            simd,
            ..self.clone()
        })
    }
}

impl Chunker for Ae {
    fn limits(&self) -> ChunkLimits {
        self.limits
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let data = &data[..data.len().min(self.limits.max)];
        // The last position that has a value.
        let Some(last) = data.len().checked_sub(VALUE) else {
            return data.len();
        };
        let mut at = 0;
        while at + self.window <= last {
            let (from, to) = (at + 1, at + self.window);
            let found = self
                .simd
                .position_above(&data[from..to + VALUE], value_at(data, at));
            match found {
                Some(further) => at = from + further,
                None => return to,
            }
        }
        // The rest holds no whole window behind any further extremum either.
        data.len()
    }
}
