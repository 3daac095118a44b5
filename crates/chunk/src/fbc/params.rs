//! The parameters of the dissertation, by the names that it gives them.

use super::coarse::Coarse;
use crate::knobs::{Knob, Knobs, Values};

/// Parameters that a user may set, with the defaults of §2.5.4.
pub(crate) const KNOBS: [Knob; 5] = [
    Knob {
        key: "threshold",
        values: Values::Whole(1, 1_000_000),
        default: "5",
        about: "θ: segments that are estimated to come more often than this are frequent, and coarse chunks are split at them; with any parameter, all are cut in the two stages of the dissertation",
    },
    Knob {
        key: "filters",
        values: Values::Whole(1, 16),
        default: "3",
        about: "v: Bloom filters of 0.8 MB, which a segment must be in before it is counted",
    },
    Knob {
        key: "modulo",
        values: Values::PowerOfTwo(1, 4096),
        default: "32",
        about: "r₀: the pre-filter lets one place in this many pass",
    },
    Knob {
        key: "resample",
        values: Values::Real(0.001, 1.0),
        default: "1",
        about: "r₁: share of the places behind the pre-filter that is counted, at random",
    },
    Knob {
        key: "ratio",
        values: Values::Whole(2, 256),
        default: "16",
        about: "the mean coarse chunk in segments, which are half of --chunk-size; a backup holds coarse chunks, so a repository bounds their length",
    },
];

/// Parameters; the defaults are those of §2.5.4.
///
/// ```
/// use onefold_chunk::fbc::Params;
///
/// // Segments of 2 KiB are frequent from the third time on.
/// let params = Params { threshold: 2, ..Params::new(2048) };
/// assert_eq!((params.modulo, params.filters), (32, 3));
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Params {
    /// Length of a frequent segment, in bytes.
    pub segment_bytes: usize,
    /// The pre-filter r₀: one of this many candidates passes; a power of two.
    pub modulo: u32,
    /// Bloom filters side by side: v.
    pub filters: usize,
    /// Bytes of each Bloom filter.
    pub filter_bytes: usize,
    /// Threshold θ: segments estimated to occur more often are frequent.
    pub threshold: u32,
    /// The second sampling rate r₁ of all occurrences, at random; 1 counts all.
    pub resample: f64,
    /// Mean of a coarse chunk in segments.
    pub stage_ratio: usize,
    /// The longest coarse chunk, in bytes; 16 segments where that is more.
    pub coarse_bytes_max: usize,
    /// Escape frequency of §2.6: coarse chunks seen at least this often are not split. `None`: all are split.
    pub escape: Option<u32>,
    /// Largest number of segments that are tracked.
    pub entries_max: usize,
}

impl Params {
    /// The default of `entries_max`: the load limit of tables with 2¹⁸ places. The estimator's table takes 3 MiB, a
    /// chunker's 6.25 MiB, a sketch 4.4 MiB.
    pub const ENTRIES_MAX: usize = 229_000;

    /// The dissertation's parameters, for segments of `segment_bytes` (at least 64).
    pub fn new(segment_bytes: usize) -> Self {
        Self {
            segment_bytes: segment_bytes.max(64),
            modulo: 32,
            filters: 3,
            filter_bytes: 800_000,
            threshold: 5,
            resample: 1.0,
            stage_ratio: 16,
            coarse_bytes_max: 100_000,
            escape: None,
            entries_max: Self::ENTRIES_MAX,
        }
    }

    /// The parameters that `knobs` sets, and the dissertation's for all others, for chunks of `mean` bytes where
    /// segments are frequent: segments have half of the mean.
    pub(crate) fn of(knobs: &Knobs, mean: usize) -> Self {
        let usual = Self::new(mean / 2);
        let whole = |key, other: usize| knobs.whole(key).map_or(other, |number| number as usize);
        let ratio = whole("ratio", usual.stage_ratio);
        Self {
            threshold: whole("threshold", usual.threshold as usize) as u32,
            filters: whole("filters", usual.filters),
            modulo: whole("modulo", usual.modulo as usize) as u32,
            resample: knobs.real("resample").unwrap_or(usual.resample),
            stage_ratio: ratio,
            // A limit at the mean would cut coarse chunks of one length.
            coarse_bytes_max: usual.coarse_bytes_max.max(2 * ratio * usual.segment_bytes),
            ..usual
        }
    }

    /// The chunker of the first stage.
    pub(super) fn coarse(&self) -> Coarse {
        let mean = self.stage_ratio * self.segment_bytes;
        Coarse::new(mean, self.coarse_bytes_max.max(mean))
    }
}
