//! SeqCDC (Udayashankar, Baba and Al-Kiswany, Middleware 2024, §3): a cut is where bytes rise several times in
//! succession; where they keep falling, data is skipped.
//!
//! Nothing is looked at before the minimum. From there on every step from one byte to the next is up, down or level;
//! level steps do not count (so a run of one value neither makes nor breaks a sequence). The `sequence`-th step up in
//! succession ends the chunk: its last byte belongs to the next chunk, as in the authors' own program. The `trigger`-th
//! step down since the last skip has `skip` positions left out, and counting begins anew.
//!
//! **Parameters.** The paper's for 8 KiB: 5 steps, trigger 50, skip 256, between 4 and 16 KiB
//! ([`SeqParameters::PAPER`]). The skip doubles with the mean there, so it is `mean / 32` here, and the longest chunk
//! `2 · mean`. With a minimum of half the mean, as published, random data gives chunks of 7.1 KB instead of 8.2 KB; so
//! [`SeqCdc::new`] raises the minimum until the mean is met. Five steps take 840 positions to be met in random data,
//! too many for small chunks: below 4 KiB it is four steps, below 1 KiB three.
//!
//! **Downsides.** Sequences depend on six bytes alone: text with a small alphabet, columns of numbers and sorted data
//! have far more or far fewer of them than random data, so the mean on real data is off by more than that of the
//! hashing chunkers; and since a skip hides what lies in it, an edit can move the cuts until both versions skip to the
//! same place again.
//!
//! The scan runs on vectors (see [`Isa`], AVX2 and AVX-512); [`SeqCdc::on`] chooses how; all cut identically. Measured
//! on one Zen 4 core at a mean of 8 KiB, 256 MiB of random data out of memory: 6.6 GB/s byte by byte, 11 with AVX2, 12
//! with AVX-512; out of the cache 11, 25 and 36.

use crate::odds::mean_of;
pub use crate::simd::Isa;
use crate::simd::{Simd, SlopeEnd, Slopes};
use crate::{ChunkLimits, Chunker};

/// The parameters that the paper calls SeqLength, SkipTrigger and SkipSize.
///
/// ```
/// use onefold_chunk::{Chunker, ChunkLimits, seqcdc::{SeqParameters, SeqCdc}};
///
/// assert_eq!(SeqParameters::for_mean(8192), SeqParameters::PAPER);
/// let limits = ChunkLimits { min: 4096, mean: 8192, max: 65_536 };
/// let mut steep = SeqCdc::tuned(limits, SeqParameters { sequence: 6, ..SeqParameters::PAPER }).unwrap();
/// assert_eq!(steep.cut(&[7; 100_000]), 65_536);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeqParameters {
    /// Steps up in succession that make a cut, 1 to 16.
    pub sequence: u32,
    /// Steps down after which data is skipped, at least 1.
    pub trigger: u32,
    /// Positions that a skip leaves out.
    pub skip: usize,
}

impl SeqParameters {
    /// The paper's parameters for a mean of 8 KiB.
    pub const PAPER: Self = Self {
        sequence: 5,
        trigger: 50,
        skip: 256,
    };

    /// The parameters that [`SeqCdc::new`] uses for a mean, see the module.
    pub fn for_mean(mean: usize) -> Self {
        let sequence = match mean {
            ..1024 => 3,
            1024..4096 => 4,
            _ => 5,
        };
        Self {
            sequence,
            skip: mean / 32,
            ..Self::PAPER
        }
    }

    /// Positions of random data for each cut, skipped ones included. A step is down half of the time, so a trigger
    /// comes every `2 · trigger` positions; exactly `n` steps up begin at `(n + 1) / (n + 2)!` of all positions.
    fn positions_per_cut(self) -> f64 {
        let factorial: f64 = (1..=self.sequence + 2).map(f64::from).product();
        let looked_at = factorial / f64::from(self.sequence + 1);
        looked_at * (1.0 + self.skip as f64 / (2.0 * f64::from(self.trigger)))
    }
}

/// Bytes behind the minimum that are prefetched at once.
const PREFETCH_BYTES: usize = 2048;

/// Content-defined chunks by monotone sequences. See the module.
///
/// ```
/// use onefold_chunk::{Chunker, seqcdc::SeqCdc};
///
/// let mut seqcdc = SeqCdc::new(8192);
/// let mut data = vec![9; 100_000];
/// data[7000..7006].copy_from_slice(&[0, 1, 2, 3, 4, 5]);
/// // The fifth step up ends at byte 7005.
/// assert_eq!(seqcdc.cut(&data), 7005);
/// ```
#[derive(Clone, Debug)]
pub struct SeqCdc {
    limits: ChunkLimits,
    parameters: SeqParameters,
    simd: Simd,
}

impl SeqCdc {
    /// Chunks of `mean` bytes (at least 256) on random data, at most twice that.
    pub fn new(mean: usize) -> Self {
        let mean = mean.max(256);
        let parameters = SeqParameters::for_mean(mean);
        let odds = 1.0 / parameters.positions_per_cut();
        let (mut low, mut high) = (64, mean);
        while low < high {
            let middle = (low + high) / 2;
            if mean_of(middle, 2 * mean, odds) < mean as f64 {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let limits = ChunkLimits {
            min: low,
            mean,
            max: 2 * mean,
        };
        Self::with(limits, parameters)
    }

    /// A chunker with any limits, in bytes, and parameters, from which the mean follows. `None` where parameters are
    /// out of their ranges or not `1 ≤ min ≤ max`.
    pub fn tuned(limits: ChunkLimits, parameters: SeqParameters) -> Option<Self> {
        let SeqParameters {
            sequence, trigger, ..
        } = parameters;
        let good = (1..=16).contains(&sequence) && trigger >= 1;
        (good && 1 <= limits.min && limits.min <= limits.max)
            .then(|| Self::with(limits, parameters))
    }

    fn with(limits: ChunkLimits, parameters: SeqParameters) -> Self {
        Self {
            limits,
            parameters,
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

impl Chunker for SeqCdc {
    fn limits(&self) -> ChunkLimits {
        self.limits
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let ChunkLimits { min, max, .. } = self.limits;
        let data = &data[..data.len().min(max)];
        let SeqParameters {
            sequence,
            trigger,
            skip,
        } = self.parameters;
        self.simd.prefetch(data, min..min + PREFETCH_BYTES);
        let mut at = min;
        while at < data.len() {
            let mut slopes = Slopes::default();
            match self.simd.slopes(data, at, &mut slopes, sequence, trigger) {
                SlopeEnd::Sequence(last) => return last,
                SlopeEnd::Downs(last) => at = last.saturating_add(1 + skip),
                SlopeEnd::Nothing => break,
            }
        }
        data.len()
    }
}
