//! Gear: a hash that forgets by shifting (Xia et al., Ddelta, 2014). A cut is where it falls below a threshold.

use crate::gear_table::GEAR;
use crate::odds::{odds_for, usual_limits};
use crate::{Chunker, Limits};

/// Content-defined chunks by the Gear hash of the last 64 bytes, `min` skipped first.
///
/// The threshold is compared with the whole word, whose high bits depend on all 64 bytes, so that any mean can be had.
///
/// ```
/// use onefold_chunk::{Chunks, gear::Gear};
///
/// let old: Vec<u8> = (0..200_000u32).flat_map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes()).collect();
/// let new = [b"in front", &old[..]].concat();
/// let chunks = |data| Chunks::new(Gear::new(8192), data).collect::<std::collections::HashSet<&[u8]>>();
/// let (before, after) = (chunks(&old[..]), chunks(&new[..]));
/// // All but the first few chunks are found again.
/// assert!(after.difference(&before).count() < 5);
/// ```
#[derive(Clone, Debug)]
pub struct Gear {
    limits: Limits,
    threshold: u64,
}

impl Gear {
    /// Chunks of `mean` bytes (at least 256) between a quarter and four times that.
    pub fn new(mean: usize) -> Self {
        let limits = usual_limits(mean);
        let threshold = (odds_for(limits) * 2f64.powi(64)) as u64;
        Self { limits, threshold }
    }
}

impl Chunker for Gear {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let Limits { min, max, .. } = self.limits;
        if data.len() <= min {
            return data.len();
        }
        let end = data.len().min(max);
        let mut hash = 0u64;
        for byte in &data[min.saturating_sub(64)..min] {
            hash = (hash << 1).wrapping_add(GEAR[*byte as usize]);
        }
        for (i, byte) in data[min..end].iter().enumerate() {
            hash = (hash << 1).wrapping_add(GEAR[*byte as usize]);
            if hash < self.threshold {
                return min + i + 1;
            }
        }
        end
    }
}
