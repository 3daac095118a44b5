//! Rapid Asymmetric Maximum (Widodo et al., 2017, §3): a cut is after the first byte behind a fixed window that is no
//! smaller than the largest byte in it.
//!
//! Both steps run on vectors of bytes (see [`Isa`]); [`Ram::on`] chooses the instructions, and [`Isa::Scalar`] goes
//! byte by byte. All cut identically. No byte is larger than 255, so the vectors skip the rest of a window once they
//! have found one: data that compresses badly is cut in a fraction of the time that reading it takes.
//!
//! Measured on one Zen 4 core at a mean of 8 KiB, 256 MiB of random data out of memory: 3.5 GB/s byte by byte, 29 GB/s
//! with any vectors (8.3 times as fast), 26 in plain blocks; of bytes that are never 255, 28 GB/s; out of the cache, 80
//! GB/s and more.
//!
//! *Faults known of public versions, not copied:* one returns the position of the byte that it found as the length, so
//! the deciding byte lies outside of the chunk (and is the first of the next one's window); and it takes `mean − 256`
//! as the window whatever the mean, which is right for random data only where a window is sure to hold a 255. Here the
//! window is solved for.

use crate::real;
pub use crate::simd::Isa;
use crate::simd::Simd;
use crate::{ChunkLimits, Chunker};

/// Bytes behind the window within which most searches end.
const PREFETCH_BYTES: usize = 512;

/// Content-defined chunks by Rapid Asymmetric Maximum.
///
/// ```
/// use onefold_chunk::{Chunker, ram::Ram};
///
/// let data = vec![7; 100_000];
/// let mut ram = Ram::new(8192);
/// // All bytes are the largest: the cut is right behind the window.
/// assert_eq!(ram.cut(&data), ram.limits().min);
/// ```
#[derive(Clone, Debug)]
pub struct Ram {
    limits: ChunkLimits,
    window: usize,
    simd: Simd,
}

impl Ram {
    /// Chunks of `mean` bytes (at least 512), of which all but about 256 are the window.
    pub fn new(mean: usize) -> Self {
        let mean = mean.max(512);
        let window = window_for(mean);
        let limits = ChunkLimits {
            min: window + 1,
            mean,
            max: 8 * mean,
        };
        Self {
            limits,
            window,
            simd: Simd::best(),
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

impl Chunker for Ram {
    fn limits(&self) -> ChunkLimits {
        self.limits
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let data = &data[..data.len().min(self.limits.max)];
        if data.len() <= self.window {
            return data.len();
        }
        let (window, after) = data.split_at(self.window);
        self.simd
            .prefetch(data, self.window..self.window + PREFETCH_BYTES);
        let largest = self.simd.largest(window);
        let found = self.simd.position_from(after, largest);
        found.map_or(data.len(), |at| self.window + at + 1)
    }
}

/// The window for a mean: the mean less the expected bytes until a byte as large as the window's largest.
fn window_for(mean: usize) -> usize {
    let (mut low, mut high) = (1, mean);
    while low < high {
        let middle = (low + high) / 2;
        if middle as f64 + search_after(middle) < mean as f64 {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Expected bytes behind a window of random bytes until one is as large as its largest:
/// `Σₖ P(largest = k) · 256 / (256 − k)`.
fn search_after(window: usize) -> f64 {
    let at_most = |k: i32| real::power(f64::from(k + 1) / 256.0, window as f64);
    (0..256)
        .map(|k| (at_most(k) - at_most(k - 1)) * 256.0 / f64::from(256 - k))
        .sum()
}
