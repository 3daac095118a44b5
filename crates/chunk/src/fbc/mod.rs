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
//! With the user's own parameters, [`Fbc::counting`] does the dissertation's two stages in one pass: algorithm 1 counts
//! while coarse chunks are cut, and they are split at the segments that are frequent by then.
//!
//! In a repository all threads share one table ([`SharedFbc`]), and its sketch is kept for the next backup.
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
mod frequency;
mod params;
mod segments;
mod shared;
mod window;

pub use estimate::Estimator;
pub use filter::bias;
pub(crate) use params::KNOBS;
pub use params::Params;
pub use segments::{SegmentFacts, Segments, SketchError};
pub use shared::SharedFbc;

use crate::{ChunkLimits, Chunker, StreamHints};
use coarse::Coarse;
use frequency::Frequency;
use window::{RabinWindow, passes};

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
    limits: ChunkLimits,
    window: RabinWindow,
    segments: Segments,
    stage: Stage,
    /// State of the stream, in a chunker of one stream.
    stream: StreamState,
    bytes_done: u64,
    /// The counter of candidates, where they are counted while chunks are cut.
    frequency: Option<Frequency>,
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

/// The state of a stream between two chunks.
#[derive(Clone, Copy, Default)]
struct StreamState {
    /// Bytes to the end of the coarse chunk that is being split.
    coarse_left: usize,
    /// Whether this coarse chunk is not split, because of the escape frequency.
    stays_whole: bool,
}

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
        let limits = ChunkLimits {
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
        let limits = ChunkLimits {
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

    /// The two stages in one pass: candidates are counted by algorithm 1 as chunks are cut, and coarse chunks are split
    /// at the segments that are frequent by then. θ, v, r₀, r₁ and the stage ratio are those of `params`; `sketch` has
    /// the counts of an earlier run with the same parameters, or is an empty table.
    ///
    /// ```
    /// use onefold_chunk::{Chunker, fbc::{Fbc, Params, Segments}};
    ///
    /// let params = Params { threshold: 9, ..Params::new(512) };
    /// let mut fbc = Fbc::counting(params, Segments::new(512, params.modulo, 1000));
    /// let block: Vec<u8> = (0..9000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    /// (0..20).for_each(|_| { fbc.cuts(&block, true, &mut |_| {}); });
    /// assert!(!fbc.segments().is_empty());
    /// ```
    pub fn counting(params: Params, sketch: Segments) -> Self {
        let frequency = Frequency::new(&params);
        let mut fbc = Self::with(params, sketch);
        // Candidates that begin in a chunk may end behind it.
        fbc.limits.max += params.segment_bytes;
        fbc.frequency = Some(frequency);
        fbc
    }

    fn made(params: Params, limits: ChunkLimits, segments: Segments, stage: Stage) -> Self {
        Self {
            ahead: match stage {
                Stage::Fresh { .. } if params.segment_bytes >= AHEAD_SEGMENT_MIN => Some(AHEAD),
                _ => None,
            },
            params,
            limits,
            window: RabinWindow::new(segments.window_bytes()),
            segments,
            stage,
            stream: StreamState::default(),
            bytes_done: 0,
            frequency: None,
        }
    }

    /// The segments known now: the sketch for a later run.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// RAM of the chunker in bytes.
    pub fn bytes(&self) -> usize {
        let filters = self.frequency.as_ref().map_or(0, Frequency::bytes);
        self.segments.bytes() + filters + 2 * 256 * size_of::<u64>()
    }

    /// Bytes of the stretch to search for segments: up to the end of the coarse chunk, or the longest chunk.
    fn stretch(&self, stream: &mut StreamState, data: &[u8]) -> usize {
        let Stage::Coarse(coarse) = &self.stage else {
            return data.len().min(self.limits.max);
        };
        if stream.coarse_left == 0 || stream.coarse_left > data.len() {
            stream.coarse_left = coarse.cut(data);
            stream.stays_whole = self.params.escape.is_some_and(|escape| {
                let chunk = &data[..stream.coarse_left];
                let signature = coarse::signature(self.window.of(chunk), chunk.len());
                let known = self.segments.get(signature);
                known.is_some_and(|known| known.count >= escape)
            });
        }
        stream.coarse_left
    }

    /// The next chunk that ends in a segment, if there is one.
    fn choose(&self, data: &[u8]) -> Option<ChosenChunk> {
        let length = self.window.bytes;
        if data.len() < length {
            return None;
        }
        let count_min = self
            .frequency
            .as_ref()
            .map_or(0, |counted| counted.count_min);
        let longest = match self.stage {
            Stage::Coarse(_) => length + length / 8,
            Stage::Fresh { to, .. } => to,
        };
        let mut sum = self.window.of(&data[..length]);
        let mut new: Option<ChosenChunk> = None;
        let mut end = length;
        loop {
            if passes(sum, self.segments.modulo) {
                let known = self.segments.get(sum);
                match known.filter(|known| known.count >= count_min) {
                    Some(known) if known.chunk_bytes > 0 => {
                        let begin = end.saturating_sub(known.chunk_bytes as usize);
                        let is_other = begin < length / 8 && self.is_other(known, &data[..end]);
                        let old = ChosenChunk {
                            signature: sum,
                            begin,
                            end,
                            is_other,
                            ..ChosenChunk::default()
                        };
                        // A segment that ended a chunk wins over any new one that it overlaps; with another chunk
                        // before it, not over a segment seen before.
                        let wins = |new: &ChosenChunk| new.end <= begin || is_other && new.is_known;
                        return new.filter(wins).or(Some(old));
                    }
                    Some(_) if new.as_ref().is_none_or(|new| !new.is_known) => {
                        new = Some(ChosenChunk {
                            signature: sum,
                            begin: end - length,
                            end,
                            is_known: true,
                            ..ChosenChunk::default()
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
    fn consider(&self, new: &mut Option<ChosenChunk>, signature: u64, end: usize) {
        if let Stage::Fresh { from, to } = self.stage {
            let is_lower = new
                .as_ref()
                .is_none_or(|new| !new.is_known && signature < new.signature);
            if (from..=to).contains(&end) && is_lower {
                *new = Some(ChosenChunk {
                    signature,
                    end,
                    is_new: true,
                    ..ChosenChunk::default()
                });
            }
        }
    }

    /// In one pass: whether the chunk differs from the last one that this segment ended.
    fn is_other(&self, known: &SegmentFacts, chunk: &[u8]) -> bool {
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

    /// The next chunk of a stream.
    fn look(&self, stream: &mut StreamState, data: &[u8]) -> NextChunk {
        let stretch = self.stretch(stream, data);
        let mut cut = self.chunk(&data[..stretch], stream.stays_whole);
        stream.coarse_left = stream.coarse_left.saturating_sub(cut.length);
        if self.frequency.is_some() {
            // Each window of the stream counts once: with the chunk that it begins in.
            let end = (cut.length + self.window.bytes).min(data.len());
            cut.occurrences = self.candidates(&data[..end], 1);
        }
        cut
    }

    /// The end of the chunk at the beginning of `stretch`, and what to remember of it.
    fn chunk(&self, stretch: &[u8], stays_whole: bool) -> NextChunk {
        let choice = if stays_whole {
            None
        } else {
            self.choose(stretch)
        };
        match choice {
            // The part in front of the segment is too short for a chunk of its own.
            Some(choice) if choice.begin < self.window.bytes / 8 => {
                let chunk = &stretch[..choice.end];
                NextChunk {
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
                    occurrences: Vec::new(),
                }
            }
            choice => NextChunk {
                length: choice.map_or(stretch.len(), |choice| choice.begin),
                ..NextChunk::default()
            },
        }
    }

    /// Remembers the cut, and returns its length.
    fn settle(&mut self, cut: NextChunk) -> usize {
        let epoch = (self.bytes_done >> 20) as u32;
        if let Some(signature) = cut.ends_in {
            self.track(signature, &cut);
        }
        for signature in cut.changes {
            let segment = self.segments.entries.entry(signature).or_default();
            (segment.count, segment.epoch) = (segment.count.max(1), epoch);
        }
        if let Some(frequency) = &mut self.frequency {
            for signature in cut.occurrences {
                frequency.count(signature, epoch, &mut self.segments);
                self.segments.forget();
            }
        }
        self.segments.forget();
        self.bytes_done += cut.length as u64;
        cut.length
    }

    /// Remembers that the segment ends this chunk.
    fn track(&mut self, signature: u64, cut: &NextChunk) {
        let epoch = (self.bytes_done >> 20) as u32;
        let segment = self.segments.entries.entry(signature).or_default();
        // Counting includes this occurrence already.
        if self.frequency.is_none() {
            segment.count = segment.count.saturating_add(1);
        }
        segment.epoch = epoch;
        if segment.chunk_bytes == 0 {
            segment.chunk_bytes = cut.length as u32;
        }
        segment.content = cut.content;
    }
}

/// The next chunk, and what to remember of it.
#[derive(Default)]
struct NextChunk {
    length: usize,
    /// Signature of the segment that the chunk ends in.
    ends_in: Option<u64>,
    /// Hash of the chunk's bytes, where it ends in a segment.
    content: u32,
    /// Candidates in the chunk, where it differs from the last one that its segment ended.
    changes: Vec<u64>,
    /// Candidates that begin in the chunk, where occurrences are counted.
    occurrences: Vec<u64>,
}

/// A chunk that ends in a segment.
#[derive(Default)]
struct ChosenChunk {
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
    fn limits(&self) -> ChunkLimits {
        self.limits
    }

    fn begin(&mut self, _hints: &StreamHints<'_>) {
        self.stream = StreamState::default();
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let mut stream = self.stream;
        let cut = self.look(&mut stream, data);
        self.stream = stream;
        self.settle(cut)
    }
}
