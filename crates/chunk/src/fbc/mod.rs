//! Frequency-Based Chunking (Lu, dissertation 2012, ch. 2): segments that occur often are found first, and coarse
//! chunks are split at them, so that an edit, or a tar header with a new time, costs the bytes around it and not a
//! chunk on either side.
//!
//! Two passes, as published: [`Estimator`] over the whole stream, then [`Fbc::with`] what it found. One pass, which the
//! dissertation leaves as future work (§2.6): [`Fbc::one_pass`] tracks the heaviest hitters while it chunks, and
//! [`Fbc::segments`] is a sketch for a later run.
//!
//! Rule where frequent candidates overlap: of those in a stretch, the one that ends a chunk that was cut before wins,
//! at the length it was cut with; where there is none, the leftmost in two passes, that of the lowest signature in one.
//! So after an edit the next known segment puts the cuts back where they were, which the leftmost alone would not. A
//! rest shorter than an eighth of a segment joins the segment after it.
//!
//! In one pass a chunk that ends in a known segment may hold something else than last time: then a place there changes,
//! and the candidates in it are remembered, so that it is split around what changes when it comes again. Of new chunks
//! some candidates are remembered at once, so that this can happen the first time already.
//!
//! Measured (`docs/chunkers/fbc.md`: ten stable releases of Kubernetes as tars with times of their own): two passes
//! find 1.31 times what Rabin chunks do at average chunks of 2 to 4 KiB (1.25 times sieve), at equal ratio with 1.9 to
//! 2.9 times fewer chunks; one pass finds 1.30 to 1.35 times, 1 to 5 % more than two passes. Releases that differ more
//! in content give less.
//!
//! In a repository all threads share one table ([`Shared`]), and its sketch is kept for the next backup.
//!
//! Cuts depend on the chunks before: the same bytes can be cut otherwise later. Deduplication suffers by that at most
//! one more copy.
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
    /// The pre-filter r₀ lets pass one of so many candidates; a power of two.
    pub modulo: u32,
    /// Bloom filters side by side: v.
    pub filters: usize,
    /// Bytes of each.
    pub filter_bytes: usize,
    /// Segments estimated to occur more often are frequent: θ.
    pub threshold: u32,
    /// The second sampling r₁, of every occurrence at random; 1 counts all.
    pub resample: f64,
    /// Mean of a coarse chunk in segments.
    pub stage_ratio: usize,
    /// The longest coarse chunk, in bytes; 16 segments where that is more.
    pub coarse_bytes_max: usize,
    /// Coarse chunks that themselves were seen so often are not split: the escape frequency of §2.6. `None`: all are.
    pub escape: Option<u32>,
    /// Segments that are tracked at most.
    pub entries_max: usize,
}

impl Params {
    /// The default of `entries_max`: as many as the tables hold that have 2¹⁸ places. The estimator's takes 3 MiB, that
    /// of a chunker 6.25 MiB, a sketch 4.4 MiB.
    pub const ENTRIES_MAX: usize = 229_000;

    /// The dissertation's, for segments of `segment_bytes` (at least 64).
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

    /// The first stage.
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
    /// Bytes until the coarse chunk ends that is being split.
    coarse_left: usize,
    /// Whether that coarse chunk escapes.
    stays_whole: bool,
    bytes_done: u64,
    /// One of so many candidates of a new chunk is remembered, so that it can be split where it changes first.
    ahead: Option<u32>,
}

/// One of so many candidates of a new chunk is remembered: one in 256 bytes. With half as many a second version that
/// changes costs 1 % more, with twice as many the table is twice as large and the ratio 1 to 2 % higher.
const AHEAD: u32 = 8;
/// Segments shorter than this in bytes have none remembered: chunks are hardly longer than a segment, and pieces before
/// a segment that all files share (a licence) were not split again. Measured at a mean of 1 KiB: a ratio of 6.5
/// without, 5.3 with.
const AHEAD_SEGMENT_MIN: usize = 1024;

/// How the first stage goes.
enum Stage {
    /// Coarse chunks; segments are known beforehand.
    Coarse(Coarse),
    /// Unseen stretches are split at once into chunks of these lengths, each ending in a segment that is tracked from
    /// then on.
    Fresh { from: usize, to: usize },
}

impl Fbc {
    /// The second pass, with what the first found under the same parameters.
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

    /// One pass, nothing known: chunks of `mean` bytes (at least 256) where data is new, between a quarter (shorter
    /// beside segments that are known) and four times that.
    pub fn one_pass(mean: usize) -> Self {
        let params = Params::new(mean.max(256) / 2);
        let segments = Segments::new(params.segment_bytes, params.modulo, params.entries_max);
        Self::informed(mean, segments)
    }

    /// One pass that starts with the sketch of a run before, which had the same mean.
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

    /// What is known now: the sketch for a later run.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// What the chunker takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.segments.bytes() + 2 * 256 * size_of::<u64>()
    }

    /// Bytes of the stretch in which to look for segments: to the end of the coarse chunk, or all that one chunk can
    /// be.
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
                        // One that was cut before wins over any new one that it overlaps, but not with other content
                        // over a segment seen before.
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

    /// In one pass, an unseen candidate may end a new chunk: the one with the lowest signature does.
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

    /// In one pass: whether the chunk is not the one that this segment ended last.
    fn is_other(&self, known: &Segment, chunk: &[u8]) -> bool {
        matches!(self.stage, Stage::Fresh { .. })
            && known.content != 0
            && known.content != hash_of(chunk)
    }

    /// One of `share` candidates in `data`: what is to be known of a place that changes.
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

    /// Where the chunk ends that `stretch` begins with.
    fn look(&self, stretch: &[u8]) -> Cut {
        match self.choose(stretch) {
            // Too little in front for a chunk of its own.
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

    /// Remembers the cut, and gives its length.
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

    /// The segment ends a chunk: it is remembered so.
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
    /// The segment that it ends in.
    ends_in: Option<u64>,
    /// A hash of its bytes, where it ends in one.
    content: u32,
    /// Candidates in it, where it is not what that segment ended last.
    changes: Vec<u64>,
}

/// A chunk that ends in a segment.
#[derive(Default)]
struct Choice {
    signature: u64,
    begin: usize,
    end: usize,
    /// The segment was seen before, though no chunk ended in it.
    is_known: bool,
    /// A chunk ended in the segment before, with other content.
    is_other: bool,
    /// Nothing was known of the segment.
    is_new: bool,
}

/// A hash of a chunk, never 0; quick, and no more: whoever makes two chunks alike to it gets them cut as they were.
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
