//! The first pass: which fixed-size segments are frequent, in a few megabytes whatever the stream (§2.4.2, algorithm 1).

use super::Params;
use super::coarse::{self, Coarse};
use super::filter::{ParallelFilter, Random, bias};
use super::segments::{Segment, Segments};
use super::window::{Window, passes};

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
    window: Window,
    filter: ParallelFilter,
    random: Random,
    counted: Segments,
    sum: u64,
    coarse: Option<OpenChunk>,
    /// The last bytes: a window or, before there are so many, all.
    before: Vec<u8>,
}

/// The coarse chunk that has not ended yet.
struct OpenChunk {
    coarse: Coarse,
    hash: u64,
    sum: u64,
    bytes: usize,
}

impl Estimator {
    /// Nothing seen yet; random choices follow from `seed`.
    pub fn new(params: Params, seed: u64) -> Self {
        Self {
            window: Window::new(params.segment_bytes),
            filter: ParallelFilter::new(params.filters, params.filter_bytes, seed),
            random: Random(seed ^ 0x5eed),
            counted: Segments::new(params.segment_bytes, params.modulo, params.entries_max),
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

    /// The next bytes of the stream.
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
        if passes(self.sum, self.counted.modulo) {
            self.candidate(self.sum);
        }
    }

    /// Algorithm 1. The count holds what is seen after the filter; what is missed before is added at the end.
    fn candidate(&mut self, signature: u64) {
        if !passes(signature, self.counted.modulo) || !self.random.chance(self.params.resample) {
            return;
        }
        if let Some(known) = self.counted.entries.get_mut(&signature) {
            known.count = known.count.saturating_add(1);
        } else if self.filter.passes(signature) {
            let first = Segment {
                count: 1,
                ..Segment::default()
            };
            self.counted.entries.insert(signature, first);
            self.counted.thin();
        }
    }

    /// What the estimator takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.filter.bytes() + self.counted.bytes() + self.before.capacity()
    }

    /// The segments that occur more than `threshold` times, with the estimate: what was counted, the bias added, divided by the second
    /// sampling rate.
    pub fn finish(mut self) -> Segments {
        let (bias, params) = (bias(self.params.filters), &self.params);
        self.counted.entries.retain(|_, segment| {
            let estimate = (f64::from(segment.count) + bias) / params.resample;
            segment.count = estimate.min(f64::from(u32::MAX)) as u32;
            estimate > f64::from(params.threshold)
        });
        self.counted.entries.shrink_to_fit();
        self.counted
    }
}
