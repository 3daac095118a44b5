//! Frequency-Based Chunking (Lu, dissertation 2012, ch. 2): segments that occur often are found first, and coarse
//! chunks are split at them, so that an edit, or a tar header with a new time, costs the bytes around it and not a
//! chunk on either side.
//!
//! Two passes, as published: [`Estimator`] over the whole stream, then [`Fbc::with`] its result. One pass, which the
//! dissertation leaves as future work (§2.6): [`Fbc::one_pass`] tracks the heaviest hitters while it chunks, and
//! [`Fbc::segments`] is a sketch for a later run.
//!
//! Rule where frequent candidates overlap: the candidate that ended an earlier chunk wins, at the length of that chunk.
//! Where there is none, two passes take the leftmost, one pass that of the lowest signature. After an edit the next
//! known segment therefore restores the earlier cuts, which the leftmost alone would not. A rest shorter than an eighth
//! of a segment joins the segment after it.
//!
//! In one pass, a chunk that ends in a known segment may differ from its last occurrence: then some place in it
//! changes, and its candidates are remembered, so that the next occurrence is split around the change. Some candidates
//! of new chunks are remembered at once, so that even the first change can be split off.
//!
//! Measured (`docs/chunkers/fbc.md`: ten stable releases of Kubernetes as tars with times of their own): two passes
//! find 1.31 times what Rabin chunks do at average chunks of 2 to 4 KiB (1.25 times sieve), at equal ratio with 1.9 to
//! 2.9 times fewer chunks; one pass finds 1.30 to 1.35 times, 1 to 5 % more than two passes. Releases that differ more
//! in content give less.
//!
//! In a repository all threads share one table ([`Shared`]), and its sketch is kept for the next backup.
//!
//! Cuts depend on the chunks before: the same bytes can be cut otherwise later. This costs deduplication at most one
//! more copy.
//!
//! ```
//! use onefold_chunk::{Chunker, fbc::{Estimator, Fbc, Params}};
//!
//! let versions: Vec<u8> = (0..200_000u32).map(|i| (i % 20_000).wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
//! let params = Params::new(1024);
//! let mut first = Estimator::new(params, 1);
//! first.feed(&versions);
//! let mut second = Fbc::with(params, first.finish());
//! let mut rest = &versions[..];
//! while !rest.is_empty() {
//!     rest = &rest[second.cut(rest)..];
//! }
//! ```

mod coarse;
mod counts;
mod estimate;
mod filter;
mod segments;
mod shared;
mod window;

pub use estimate::Estimator;
pub use filter::bias;
pub use segments::{Segment, Segments, SketchError};
pub use shared::Shared;

use crate::{Chunker, Hints, Limits};
use coarse::Coarse;
use window::{Window, passes};

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

    /// The chunker of the first stage.
    fn coarse(&self) -> Coarse {
        let mean = self.stage_ratio * self.segment_bytes;
        Coarse::new(mean, self.coarse_bytes_max.max(mean))
    }
}

/// Chunks by frequency.
///
/// ```
/// use onefold_chunk::{Chunker, fbc::Fbc};
///
/// let text: Vec<u8> = (0..100_000u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
/// let mut fbc = Fbc::one_pass(4096);
/// fbc.cuts(&text, true, &mut |_| {});
/// // Where this run has cut, the next will, too.
/// let next = Fbc::informed(4096, fbc.segments().clone());
/// assert_eq!(next.segments().len(), fbc.segments().len());
/// ```
pub struct Fbc {
    params: Params,
    limits: Limits,
    window: Window,
    segments: Segments,
    stage: Stage,
    /// Bytes to the end of the coarse chunk that is being split.
    coarse_left: usize,
    /// Whether this coarse chunk is not split, because of the escape frequency.
    stays_whole: bool,
    bytes_done: u64,
    /// One of this many candidates of a new chunk is remembered, so that its first change can be split off.
    ahead: Option<u32>,
}

/// Candidates of a new chunk of which one is remembered: one in 256 bytes. With half as many, a second version that
/// changes costs 1 % more; with twice as many, the table is twice as large and the ratio 1 to 2 % higher.
const AHEAD: u32 = 8;
/// Shortest segment in bytes for which candidates of new chunks are remembered. With shorter ones chunks are hardly
/// longer than a segment, and pieces before a segment that all files share (a licence) were not split again. Measured
/// at a mean of 1 KiB: a ratio of 6.5 without, 5.3 with.
const AHEAD_SEGMENT_MIN: usize = 1024;

/// How unseen data is divided before segments are searched.
enum Stage {
    /// Into coarse chunks; frequent segments are known beforehand.
    Coarse(Coarse),
    /// Into chunks of `from` to `to` bytes at once, each ending in a segment that is tracked from then on.
    Fresh { from: usize, to: usize },
}

impl Fbc {
    /// The second pass, with the segments that the first found under the same parameters.
    pub fn with(params: Params, frequent: Segments) -> Self {
        let coarse = params.coarse();
        let mean = params.stage_ratio * params.segment_bytes;
        let limits = Limits {
            min: 1,
            mean,
            max: coarse.max,
        };
        Self::made(params, limits, frequent, Stage::Coarse(coarse))
    }

    /// One pass without a sketch: chunks of `mean` bytes (at least 256) where data is new, between a quarter (shorter
    /// beside known segments) and four times that.
    pub fn one_pass(mean: usize) -> Self {
        let params = Params::new(mean.max(256) / 2);
        let segments = Segments::new(params.segment_bytes, params.modulo, params.entries_max);
        Self::informed(mean, segments)
    }

    /// One pass that starts with the sketch of an earlier run with the same mean.
    pub fn informed(mean: usize, sketch: Segments) -> Self {
        let mean = mean.max(256);
        let params = Params::new(sketch.window_bytes());
        let limits = Limits {
            min: 1,
            mean,
            max: (4 * mean).max(2 * sketch.window_bytes()),
        };
        let (from, to) = (mean - mean / 4, mean + mean / 4);
        let from = from.max(sketch.window_bytes());
        let stage = Stage::Fresh {
            from,
            to: to.max(from),
        };
        Self::made(params, limits, sketch, stage)
    }

    fn made(params: Params, limits: Limits, segments: Segments, stage: Stage) -> Self {
        Self {
            ahead: match stage {
                Stage::Fresh { .. } if params.segment_bytes >= AHEAD_SEGMENT_MIN => Some(AHEAD),
                _ => None,
            },
            params,
            limits,
            window: Window::new(segments.window_bytes()),
            segments,
            stage,
            coarse_left: 0,
            stays_whole: false,
            bytes_done: 0,
        }
    }

    /// The segments known now: the sketch for a later run.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// RAM of the chunker in bytes.
    pub fn bytes(&self) -> usize {
        self.segments.bytes() + 2 * 256 * size_of::<u64>()
    }

    /// Bytes of the stretch to search for segments: up to the end of the coarse chunk, or the longest chunk.
    fn stretch(&mut self, data: &[u8]) -> usize {
        let Stage::Coarse(coarse) = &self.stage else {
            return data.len().min(self.limits.max);
        };
        if self.coarse_left == 0 || self.coarse_left > data.len() {
            self.coarse_left = coarse.cut(data);
            self.stays_whole = self.params.escape.is_some_and(|escape| {
                let chunk = &data[..self.coarse_left];
                let signature = coarse::signature(self.window.of(chunk), chunk.len());
                let known = self.segments.get(signature);
                known.is_some_and(|known| known.count >= escape)
            });
        }
        self.coarse_left
    }

    /// The next chunk that ends in a segment, if there is one.
    fn choose(&self, data: &[u8]) -> Option<Choice> {
        let length = self.window.bytes;
        if self.stays_whole || data.len() < length {
            return None;
        }
        let longest = match self.stage {
            Stage::Coarse(_) => length + length / 8,
            Stage::Fresh { to, .. } => to,
        };
        let mut sum = self.window.of(&data[..length]);
        let mut new: Option<Choice> = None;
        let mut end = length;
        loop {
            if passes(sum, self.segments.modulo) {
                match self.segments.get(sum) {
                    Some(known) if known.chunk_bytes > 0 => {
                        let begin = end.saturating_sub(known.chunk_bytes as usize);
                        let is_other = begin < length / 8 && self.is_other(known, &data[..end]);
                        let old = Choice {
                            signature: sum,
                            begin,
                            end,
                            is_other,
                            ..Choice::default()
                        };
                        // A segment that ended a chunk wins over any new one that it overlaps; with another chunk
                        // before it, not over a segment seen before.
                        let wins = |new: &Choice| new.end <= begin || is_other && new.is_known;
                        return new.filter(wins).or(Some(old));
                    }
                    Some(_) if new.as_ref().is_none_or(|new| !new.is_known) => {
                        new = Some(Choice {
                            signature: sum,
                            begin: end - length,
                            end,
                            is_known: true,
                            ..Choice::default()
                        });
                    }
                    None => self.consider(&mut new, sum, end),
                    Some(_) => {}
                }
            }
            if end == data.len() || new.as_ref().is_some_and(|new| new.end + longest <= end) {
                return new;
            }
            sum = self.window.slide(sum, data[end - length], data[end]);
            end += 1;
        }
    }

    /// In one pass, lets an unseen candidate end a new chunk if its signature is the lowest so far.
    #[inline]
    fn consider(&self, new: &mut Option<Choice>, signature: u64, end: usize) {
        if let Stage::Fresh { from, to } = self.stage {
            let is_lower = new
                .as_ref()
                .is_none_or(|new| !new.is_known && signature < new.signature);
            if (from..=to).contains(&end) && is_lower {
                *new = Some(Choice {
                    signature,
                    end,
                    is_new: true,
                    ..Choice::default()
                });
            }
        }
    }

    /// In one pass: whether the chunk differs from the last one that this segment ended.
    fn is_other(&self, known: &Segment, chunk: &[u8]) -> bool {
        matches!(self.stage, Stage::Fresh { .. })
            && known.content != 0
            && known.content != hash_of(chunk)
    }

    /// One of `share` candidates in `data`, to be remembered as of a place that changes.
    fn candidates(&self, data: &[u8], share: u32) -> Vec<u64> {
        let length = self.window.bytes;
        let mut found = Vec::new();
        if data.len() < length {
            return found;
        }
        let mut sum = self.window.of(&data[..length]);
        for (oldest, newest) in data.iter().zip(&data[length..]) {
            if passes(sum, self.segments.modulo.saturating_mul(share)) {
                found.push(sum);
            }
            sum = self.window.slide(sum, *oldest, *newest);
        }
        found
    }

    /// The end of the chunk at the beginning of `stretch`, and what to remember of it.
    fn look(&self, stretch: &[u8]) -> Cut {
        match self.choose(stretch) {
            // The part in front of the segment is too short for a chunk of its own.
            Some(choice) if choice.begin < self.window.bytes / 8 => {
                let chunk = &stretch[..choice.end];
                Cut {
                    length: choice.end,
                    ends_in: Some(choice.signature),
                    content: match self.stage {
                        Stage::Fresh { .. } => hash_of(chunk),
                        Stage::Coarse(_) => 0,
                    },
                    changes: match (choice.is_other, self.ahead) {
                        (true, _) => self.candidates(chunk, 1),
                        (_, Some(share)) if choice.is_new => self.candidates(chunk, share),
                        _ => Vec::new(),
                    },
                }
            }
            choice => Cut {
                length: choice.map_or(stretch.len(), |choice| choice.begin),
                ..Cut::default()
            },
        }
    }

    /// Remembers the cut, and returns its length.
    fn settle(&mut self, cut: Cut) -> usize {
        if let Some(signature) = cut.ends_in {
            self.track(signature, &cut);
        }
        for signature in cut.changes {
            let epoch = (self.bytes_done >> 20) as u32;
            let segment = self.segments.entries.entry(signature).or_default();
            (segment.count, segment.epoch) = (segment.count.max(1), epoch);
        }
        self.segments.forget();
        self.coarse_left = self.coarse_left.saturating_sub(cut.length);
        self.bytes_done += cut.length as u64;
        cut.length
    }

    /// Remembers that the segment ends this chunk.
    fn track(&mut self, signature: u64, cut: &Cut) {
        let epoch = (self.bytes_done >> 20) as u32;
        let segment = self.segments.entries.entry(signature).or_default();
        segment.count = segment.count.saturating_add(1);
        segment.epoch = epoch;
        if segment.chunk_bytes == 0 {
            segment.chunk_bytes = cut.length as u32;
        }
        segment.content = cut.content;
    }
}

/// The next chunk, and what to remember of it.
#[derive(Default)]
struct Cut {
    length: usize,
    /// Signature of the segment that the chunk ends in.
    ends_in: Option<u64>,
    /// Hash of the chunk's bytes, where it ends in a segment.
    content: u32,
    /// Candidates in the chunk, where it differs from the last one that its segment ended.
    changes: Vec<u64>,
}

/// A chunk that ends in a segment.
#[derive(Default)]
struct Choice {
    signature: u64,
    begin: usize,
    end: usize,
    /// Whether the segment was seen before, though no chunk ended in it.
    is_known: bool,
    /// Whether the segment ended a chunk before, with other content.
    is_other: bool,
    /// Whether the segment was unknown.
    is_new: bool,
}

/// A fast hash of a chunk, never 0. It is not secure: two chunks made to have the same hash are cut as before.
fn hash_of(chunk: &[u8]) -> u32 {
    let (words, rest) = chunk.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let sum = words.iter().chain([&last]).fold(0, |sum: u64, word| {
        (sum.rotate_left(23) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    (filter::mix(sum ^ chunk.len() as u64) >> 32) as u32 | 1
}

impl Chunker for Fbc {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn begin(&mut self, _hints: &Hints<'_>) {
        self.coarse_left = 0;
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let stretch = self.stretch(data);
        let cut = self.look(&data[..stretch]);
        self.settle(cut)
    }
}
