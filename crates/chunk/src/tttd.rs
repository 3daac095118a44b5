//! Two Thresholds, Two Divisors (Eshghi and Tang, HP Labs 2005, §5): Rabin chunks that, at the maximum, fall back to the last place that a
//! softer divisor would have cut at.

use crate::rabin::{Sum, WINDOW};
use crate::{Chunker, Limits};

/// The paper's parameters, for a mean of [`PAPER_MEAN`]: thresholds and main divisor; the backup divisor is half of it.
const PAPER_MIN: f64 = 460.0;
const PAPER_MAX: f64 = 2800.0;
const PAPER_DIVISOR: f64 = 540.0;
/// Mean of chunks with those parameters on random data.
const PAPER_MEAN: f64 = 991.0;

/// Content-defined chunks by TTTD.
#[derive(Clone, Debug)]
pub struct Tttd {
    limits: Limits,
    main: u32,
}

impl Tttd {
    /// The paper's parameters scaled to `mean` bytes, at least 256.
    pub fn new(mean: usize) -> Self {
        let mean = mean.max(256);
        let scale = mean as f64 / PAPER_MEAN;
        let limits = Limits {
            min: (PAPER_MIN * scale) as usize,
            mean,
            max: (PAPER_MAX * scale) as usize,
        };
        let main = (2f64.powi(32) / (PAPER_DIVISOR * scale)) as u32;
        Self { limits, main }
    }
}

impl Chunker for Tttd {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let Limits { min, max, .. } = self.limits;
        if data.len() <= min {
            return data.len();
        }
        let end = data.len().min(max);
        let mut backup = end;
        let mut sum = Sum::of(&data[min - WINDOW..min]);
        for i in min..end {
            sum.slide(data[i - WINDOW], data[i]);
            if sum.mark() < 2 * self.main {
                if sum.mark() < self.main {
                    return i + 1;
                }
                backup = i + 1;
            }
        }
        // A stream that ends before the maximum needs no backup.
        if end == max { backup } else { end }
    }
}
