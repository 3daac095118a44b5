//! Asymmetric Extremum (Zhang et al., INFOCOM 2015, §III): a cut comes a fixed window after a value larger than all before it in the chunk.
//!
//! The value of a position is the eight bytes from it, as a big-endian number, as the paper has it: single bytes tie so often that the mean of
//! chunks no longer follows `(e − 1) · window`. There is no hash, and no limit but the one that memory sets here: eight times the mean.

use crate::{Chunker, Limits};

/// Bytes of a position's value.
const VALUE: usize = 8;

/// The paper derives `e − 1 = 1.718` for chunks that begin anywhere. They begin behind a large value and a window of smaller ones, which makes them
/// longer: measured over 48 MiB of random data.
const MEAN_PER_WINDOW: f64 = 1.783;

/// Content-defined chunks by Asymmetric Extremum.
#[derive(Clone, Debug)]
pub struct Ae {
    limits: Limits,
    window: usize,
}

impl Ae {
    /// Chunks of `mean` bytes, at least 256.
    pub fn new(mean: usize) -> Self {
        let mean = mean.max(256);
        let window = (mean as f64 / MEAN_PER_WINDOW).round() as usize;
        let limits = Limits {
            min: window,
            mean,
            max: 8 * mean,
        };
        Self { limits, window }
    }
}

impl Chunker for Ae {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let data = &data[..data.len().min(self.limits.max)];
        let (mut largest, mut at) = (0, 0);
        for (i, value) in data.windows(VALUE).enumerate() {
            let value = u64::from_be_bytes(value.try_into().expect("eight bytes"));
            if value > largest {
                (largest, at) = (value, i);
            } else if i >= at + self.window {
                return i;
            }
        }
        data.len()
    }
}
