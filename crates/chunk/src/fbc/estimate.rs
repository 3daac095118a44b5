//! The first pass: which fixed-size segments are frequent, in a few megabytes whatever the stream (§2.4.2, algorithm
//! 1).

use super::Params;
use super::coarse::{self, Coarse};
use super::counts::SignatureCounts;
use super::filter::{ParallelFilter, SplitMix, bias};
use super::segments::{SegmentFacts, Segments};
use super::window::{RabinWindow, passes};

/// Takes a stream in pieces and estimates how often its sampled windows occur.
///
/// ```
/// use onefold_chunk::fbc::{Estimator, Params};
///
/// let block: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
/// let mut estimator = Estimator::new(Params::new(512), 1);
/// (0..40).for_each(|_| estimator.feed(&block));
/// let frequent = estimator.finish();
/// assert!(!frequent.is_empty());
/// ```
pub struct Estimator {
    params: Params,
    window: RabinWindow,
    filter: ParallelFilter,
    random: SplitMix,
    counted: SignatureCounts,
    /// The present pre-filter: one of this many candidates passes.
    modulo: u32,
    sum: u64,
    coarse: Option<OpenChunk>,
    /// The last bytes seen: a window, or all at the beginning of the stream.
    before: Vec<u8>,
}

/// The coarsest pre-filter. Coarse chunks pass every pre-filter: where they alone are too many, no more are added.
const MODULO_MAX: u32 = 1 << 30;

/// The coarse chunk that has not ended yet.
struct OpenChunk {
    coarse: Coarse,
    hash: u64,
    sum: u64,
    bytes: usize,
}

impl Estimator {
    /// An estimator that has seen nothing; random choices follow from `seed`.
    pub fn new(params: Params, seed: u64) -> Self {
        Self {
            window: RabinWindow::new(params.segment_bytes),
            filter: ParallelFilter::new(params.filters, params.filter_bytes, seed),
            random: SplitMix(seed ^ 0x5eed),
            counted: SignatureCounts::new(params.entries_max),
            modulo: params.modulo,
            sum: 0,
            coarse: params.escape.map(|_| OpenChunk {
                coarse: params.coarse(),
                hash: 0,
                sum: 0,
                bytes: 0,
            }),
            before: Vec::new(),
            params,
        }
    }

    /// Takes the next bytes of the stream.
    pub fn feed(&mut self, mut piece: &[u8]) {
        let length = self.window.bytes;
        self.coarse_chunks(piece);
        while self.before.len() < length {
            let Some((byte, rest)) = piece.split_first() else {
                return;
            };
            self.sum = self.window.append(self.sum, *byte);
            self.before.push(*byte);
            piece = rest;
            if self.before.len() == length {
                self.candidate(self.sum);
            }
        }
        let from_before = piece.len().min(length);
        let before = std::mem::take(&mut self.before);
        for (oldest, newest) in before.iter().chain(piece).zip(piece) {
            self.slide(*oldest, *newest);
        }
        self.before = before;
        self.before.drain(..from_before);
        self.before
            .extend_from_slice(&piece[piece.len() - from_before..]);
    }

    /// Coarse chunks are counted beside the segments where there is an escape frequency.
    fn coarse_chunks(&mut self, piece: &[u8]) {
        let Some(mut open) = self.coarse.take() else {
            return;
        };
        for byte in piece {
            open.sum = self.window.append(open.sum, *byte);
            open.bytes += 1;
            if open.coarse.step(&mut open.hash, *byte) || open.bytes == open.coarse.max {
                self.candidate(coarse::signature(open.sum, open.bytes));
                (open.sum, open.hash, open.bytes) = (0, 0, 0);
            }
        }
        self.coarse = Some(open);
    }

    #[inline(always)]
    fn slide(&mut self, oldest: u8, newest: u8) {
        self.sum = self.window.slide(self.sum, oldest, newest);
        if passes(self.sum, self.modulo) {
            self.candidate(self.sum);
        }
    }

    /// Algorithm 1. The count has the occurrences after the filter; the missed ones before are added in `finish`.
    fn candidate(&mut self, signature: u64) {
        if !passes(signature, self.modulo) || !self.random.chance(self.params.resample) {
            return;
        }
        if let Some(count) = self.counted.get_mut(signature) {
            *count = count.saturating_add(1);
        } else if self.modulo < MODULO_MAX && self.filter.passes(signature) {
            let mut too_many = self.counted.insert(signature, 1);
            // A coarser pre-filter makes room and leaves the counts of the remaining signatures unchanged.
            while too_many && self.modulo < MODULO_MAX {
                self.modulo *= 2;
                too_many = self.counted.thin(self.modulo);
            }
        }
    }

    /// RAM of the estimator in bytes.
    pub fn bytes(&self) -> usize {
        self.filter.bytes() + self.counted.bytes() + self.before.capacity()
    }

    /// The segments estimated to occur more than `threshold` times. The estimate is the count plus the bias, divided by
    /// the second sampling rate. The result takes 25 to 50 bytes a segment, more than the estimator did.
    pub fn finish(self) -> Segments {
        let (bias, params) = (bias(self.params.filters), &self.params);
        let estimate = |count: u32| (f64::from(count) + bias) / params.resample;
        let mut found = Segments::new(params.segment_bytes, self.modulo, params.entries_max);
        let frequent = self
            .counted
            .iter()
            .map(|(one, count)| (one, estimate(count)));
        let frequent = frequent.filter(|(_, count)| *count > f64::from(params.threshold));
        for (signature, count) in frequent {
            let segment = SegmentFacts {
                count: count.min(f64::from(u32::MAX)) as u32,
                ..SegmentFacts::default()
            };
            found.entries.insert(signature, segment);
        }
        found.entries.shrink_to_fit();
        found
    }
}
