//! Rapid Asymmetric Maximum (Widodo et al., 2017, §3): a cut is after the first byte behind a fixed window that is no smaller than the largest byte in it.
//!
//! Both steps work on whole blocks of bytes without a branch a byte, which compilers turn into vector instructions. [`Ram::scalar`] goes byte by
//! byte and cuts identically.

use crate::{Chunker, Limits};

/// Bytes that are compared at once.
const BLOCK: usize = 64;

/// Content-defined chunks by Rapid Asymmetric Maximum.
#[derive(Clone, Debug)]
pub struct Ram {
    limits: Limits,
    window: usize,
    is_scalar: bool,
}

impl Ram {
    /// Chunks of `mean` bytes (at least 512), of which all but about 256 are the window.
    pub fn new(mean: usize) -> Self {
        let mean = mean.max(512);
        let window = window_for(mean);
        let limits = Limits {
            min: window + 1,
            mean,
            max: 8 * mean,
        };
        Self {
            limits,
            window,
            is_scalar: false,
        }
    }

    /// The same cuts, found byte by byte.
    pub fn scalar(mean: usize) -> Self {
        Self {
            is_scalar: true,
            ..Self::new(mean)
        }
    }
}

impl Chunker for Ram {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let data = &data[..data.len().min(self.limits.max)];
        if data.len() <= self.window {
            return data.len();
        }
        let (window, after) = data.split_at(self.window);
        let found = if self.is_scalar {
            let largest = window.iter().fold(0, |largest, byte| {
                if *byte > largest {
                    std::hint::black_box(*byte)
                } else {
                    largest
                }
            });
            after.iter().position(|byte| *byte >= largest)
        } else {
            let largest = window.iter().copied().max().unwrap_or(0);
            position_from(after, largest)
        };
        found.map_or(data.len(), |at| self.window + at + 1)
    }
}

/// The first byte that is at least `least`.
fn position_from(data: &[u8], least: u8) -> Option<usize> {
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    let has =
        |block: &[u8; BLOCK]| block.iter().fold(0, |largest, byte| (*byte).max(largest)) >= least;
    let whole = blocks.iter().position(has).unwrap_or(blocks.len());
    let tail = if whole < blocks.len() {
        &blocks[whole][..]
    } else {
        rest
    };
    let at = tail.iter().position(|byte| *byte >= least)?;
    Some(whole * BLOCK + at)
}

/// The window for a mean: the mean less the bytes until the largest byte of a window is met again.
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

/// Expected bytes behind a window of random bytes until one is as large as its largest: `Σₖ P(largest = k) · 256 / (256 − k)`.
fn search_after(window: usize) -> f64 {
    let at_most = |k: i32| (f64::from(k + 1) / 256.0).powf(window as f64);
    (0..256)
        .map(|k| (at_most(k) - at_most(k - 1)) * 256.0 / f64::from(256 - k))
        .sum()
}
