//! Two Thresholds, Two Divisors (Eshghi and Tang, HP Labs 2005, §5): Rabin chunks that, at the maximum, fall back to
//! the last place that a softer divisor would have cut at.
//!
//! The paper tests a remainder by each divisor; here the signature is compared with two thresholds, which is as likely,
//! and allows any mean. With this signature the paper's parameters give 991 bytes on random data (the paper says
//! 1,015), and all are scaled by that.
//!
//! *Faults known of public versions, not copied:* masks in place of the divisors, which give powers of two only; a
//! window that is empty at the minimum, so that the first 48 positions depend on where the chunk began and not on
//! content alone; a chunk as long as all given data where no backup was found, even beyond the maximum; a cut at the
//! backup where the stream ends before the maximum; and a scale rounded to a whole multiple of the paper's mean.

use crate::rabin::{Sum, WINDOW};
use crate::real;
use crate::{ChunkLimits, Chunker};

/// The paper's parameters, for a mean of [`PAPER_MEAN`]: thresholds and main divisor; the backup divisor is half of it.
const PAPER_MIN: f64 = 460.0;
const PAPER_MAX: f64 = 2800.0;
const PAPER_DIVISOR: f64 = 540.0;
/// Mean of chunks with those parameters on random data.
const PAPER_MEAN: f64 = 991.0;

/// Content-defined chunks by TTTD.
///
/// ```
/// use onefold_chunk::{Chunks, tttd::Tttd};
///
/// let old: Vec<u8> = (0..200_000u32).flat_map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes()).collect();
/// let new = [b"in front", &old[..]].concat();
/// let chunks = |data| Chunks::new(Tttd::new(8192), data).collect::<std::collections::HashSet<&[u8]>>();
/// let (before, after) = (chunks(&old[..]), chunks(&new[..]));
/// // All but the first few chunks are found again.
/// assert!(after.difference(&before).count() < 5);
/// ```
#[derive(Clone, Debug)]
pub struct Tttd {
    limits: ChunkLimits,
    main: u32,
}

impl Tttd {
    /// The paper's parameters scaled to `mean` bytes, at least 256.
    pub fn new(mean: usize) -> Self {
        let mean = mean.max(256);
        let scale = mean as f64 / PAPER_MEAN;
        let limits = ChunkLimits {
            min: (PAPER_MIN * scale) as usize,
            mean,
            max: (PAPER_MAX * scale) as usize,
        };
        let main = (real::power_of_two(32) / (PAPER_DIVISOR * scale)) as u32;
        Self { limits, main }
    }
}

impl Chunker for Tttd {
    fn limits(&self) -> ChunkLimits {
        self.limits
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let ChunkLimits { min, max, .. } = self.limits;
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
