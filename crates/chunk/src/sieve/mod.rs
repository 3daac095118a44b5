//! Sieve: a cheap linear hash picks candidates at memory speed, a strong hash of the last 32 bytes picks the cut among
//! them.
//!
//! 1. *Linear bits.* Carry-less multiplication of the data by a 64-bit key gives, at every position, eight GF(2)-linear
//!    bits of the 9 bytes that end there; vectors of 128 to 512 bits give 16 to 64 positions at once.
//! 2. *Candidates.* A position is a candidate where those bits, XOR a constant, are all zero, and some bits of the
//!    position before are zero too: one position in 2⁸ to 2¹⁶, chosen so that a search meets about 16 of them. A run of
//!    zeros has none.
//! 3. *The cut* is after the candidate in `[min, max)` with the smallest strong hash (the first of equals); at `max`
//!    where there is none. A rest of a stream that is shorter than `max` stays whole.
//!
//! Every chunk thus ends at a place that the content alone determines, without a threshold that may fail to be met.
//!
//! **Worst case.** Crafted data can make every position a candidate. A chunk's search therefore ends at its
//! `CANDIDATES_MAX`-th candidate, and the cut is the best of those: since no chunk is shorter than `min`, hardly more
//! than `CANDIDATES_MAX / min` strong hashes are computed per byte of input (one in eight bytes at a mean of 8 KiB). A
//! run of one byte value, whatever the value, has no candidates: the key has an even number of bits set, so the linear
//! bits of such a run have even parity, and the constant has odd parity. Data without candidates costs the linear pass
//! alone and is cut at `max`; cuts inside it are then not content-defined, but for the end of the run.
//!
//! **Once only.** The searches of neighbouring chunks overlap where a cut comes early. [`Chunker::cuts`] keeps the
//! candidates behind a cut for the next search, so that no byte is scanned twice and no candidate hashed twice. Whether
//! a position is a candidate, and its hash, depend on content alone.
//!
//! **Spread.** `min` and `max` are half of the middle away from it. A wider range makes chunks less equal, and an edit
//! hits long chunks oftener than short ones; a narrower one finds back later. Measured on four neighbouring releases of
//! a Python package of 22,600 files of 9 KB, and on their tar archives, at equal real means, as an average over four
//! choices of the constants:
//!
//! | `min`–`max` | files, 3072 | files, 5500 | tar, 3072 | tar, 8192 | new bytes an edit, in means |
//! |---|---|---|---|---|---|
//! | 0.25–1.75 | 3.295 | 3.049 | 1.894 | 1.418 | 1.15 |
//! | 0.4–1.6 | 3.308 | 3.054 | 1.923 | 1.439 | 1.10 |
//! | **0.5–1.5** | 3.313 | 3.055 | 1.940 | 1.450 | 1.08 |
//! | 0.6–1.4 | 3.307 | 3.056 | 1.949 | 1.459 | 1.05–1.08 |
//! | `fastcdc` crate | 3.283 | 3.017 | 1.878 | 1.424 | 1.3–1.4 |
//!
//! The choice of the constants alone moves these ratios by up to 2 % either way: data of this kind repeats the same few
//! phrases.
//!
//! **The end.** Cutting the rest of a file between `min` and `max` would leave pieces far below the mean, file after
//! file. With whole rests, the same files have ratios of 3.323 and 3.071 in the first two columns.
//!
//! **Threshold.** `sieve-threshold` cuts at the first candidate of `[min, max)` whose strong hash is below a threshold,
//! and takes the smallest hash only where none is. Half as far from the middle as a classic chunker (`min` is half of
//! the mean, `max` four times that), it needs two candidates to a cut where the smallest of a range needs sixteen, so
//! short chunks cost less: 5–25 % at means of 512 to 4096. Its DER at equal real means is 1 % above to 0.5 % below that
//! of the smallest (docs/chunkers). Ends of streams are cut where a hash is below the threshold, else they stay whole.
//!
//! All versions (scalar, PCLMULQDQ, AVX2 and AVX-512 with VPCLMULQDQ, NEON with PMULL) cut identically; the fastest
//! that the CPU has is chosen at run time.

#[cfg(all(feature = "std", target_arch = "aarch64"))]
mod aarch64;
mod isa;
#[cfg(any(
    all(feature = "std", target_arch = "x86_64"),
    all(feature = "std", target_arch = "aarch64")
))]
mod lanes;
mod linear;
mod positions;
mod scan;
mod search;
mod split;
mod strong;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod x86;

use crate::odds::odds_for;
use crate::real;
use crate::{ChunkLimits, Chunker};
use alloc::vec::Vec;

pub use isa::SieveIsa;
pub use split::Candidates;

use positions::Positions;
use search::{CutCandidate, CutSearch, Range, SCAN_BYTES_MAX, Scanner};
use strong::Strong;

/// Candidates between `min` and `max`, on average over random data, as near as powers of two allow.
///
/// The density is never above one in 256 positions, so there are fewer at means below 4 KiB. Fewer make the cut less
/// free, more cost strong hashes. On the data under *Spread*, 16 and 32 gave ratios that differ by 0.4 % at most, in
/// either direction.
const CANDIDATES: f64 = 16.0;
/// Candidates after which a search ends: over twenty times as many as in random data, so that only crafted or very
/// periodic data reaches it.
pub const CANDIDATES_MAX: usize = 512;
/// Bytes that are scanned at a time where many chunks are cut at once: many strong hashes together are computed faster.
const AHEAD: usize = 64 * 1024;
/// Bytes that the strong hash covers. No chunk is shorter than twice this, so a window never reaches before its chunk.
const WINDOW: usize = 32;
/// The range `min` and `max` for chunks of `mean` bytes.
///
/// The middle of the range would be the mean if searches did not overlap. The range behind a cut that is searched
/// already holds no smaller hash than the cut's, so the next cut tends to lie further on: chunks of random data come
/// out 2.3 % longer than the middle, and longer still where a range holds only a few candidates (measured over 256 MiB
/// for middles from 256 to 65,536; the fit is good to 0.5 %).
fn search_range(mean: usize) -> (usize, usize) {
    let mut middle = mean as f64;
    for _ in 0..8 {
        let candidates = (MAX_PER_MIDDLE - MIN_PER_MIDDLE) * middle / 256.0;
        middle = mean as f64 / (1.023 + 0.46 * real::exp(-0.97 * candidates));
    }
    let min = ((middle * MIN_PER_MIDDLE) as usize).max(2 * WINDOW);
    (min, (middle * MAX_PER_MIDDLE) as usize)
}

/// With a threshold: the mean divided by the shortest chunk, and below, the longest chunk divided by the mean.
const THRESHOLD_MIN_PART: usize = 2;
const THRESHOLD_MAX_MEANS: usize = 4;
/// With a threshold, candidates to a cut, as near as powers of two allow.
const CANDIDATES_A_CUT: f64 = 2.0;
/// The shortest chunk in terms of the middle of the range, and the longest. See *Spread* above.
const MIN_PER_MIDDLE: f64 = 0.5;
const MAX_PER_MIDDLE: f64 = 2.0 - MIN_PER_MIDDLE;

/// The content-defined chunker with which Onefold cuts by default, within [`Adaptive`](crate::adaptive). See the
/// module.
///
/// ```
/// use onefold_chunk::{Chunks, sieve::Sieve};
///
/// let old: Vec<u8> = (0..200_000u32).flat_map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes()).collect();
/// let new = [b"in front", &old[..]].concat();
/// let chunks = |data| Chunks::new(Sieve::new(8192), data).collect::<std::collections::HashSet<&[u8]>>();
/// let (before, after) = (chunks(&old[..]), chunks(&new[..]));
/// // All but the first few chunks are found again.
/// assert!(after.difference(&before).count() < 5);
/// ```
#[derive(Clone)]
pub struct Sieve {
    limits: ChunkLimits,
    /// A candidate whose hash is below this ends the search; 0: no candidate does.
    threshold: u64,
    scanner: Scanner,
    search: CutSearch,
}

impl Sieve {
    /// Chunks of `mean` bytes on average, within 2 % on random data from a mean of 512 on, between 0.48 and 1.47 times
    /// that; `mean` is at least 256.
    pub fn new(mean: usize) -> Self {
        Self::with(mean, Strong::unkeyed())
    }

    /// Chunks as [`new`](Self::new) makes them, with cut points that depend on `key`: the strong hash is AES-128 in
    /// CBC-MAC over the window.
    ///
    /// Which positions are candidates does not depend on the key; which candidate is cut at does.
    pub fn keyed(mean: usize, key: &[u8; 32]) -> Self {
        Self::with(mean, Strong::keyed(key))
    }

    /// Chunks that end at the first candidate whose strong hash is below a threshold, within 3 % of `mean` on random
    /// data; see *Threshold*.
    pub fn threshold(mean: usize) -> Self {
        Self::below_threshold(mean, Strong::unkeyed())
    }

    /// Chunks as [`threshold`](Self::threshold) makes them, with cut points that depend on `key` as those of
    /// [`keyed`](Self::keyed) do.
    pub fn threshold_keyed(mean: usize, key: &[u8; 32]) -> Self {
        Self::below_threshold(mean, Strong::keyed(key))
    }

    /// Chunks between `min`, at least 64, and `max` bytes; cut points depend on `key`, if one is given.
    pub(crate) fn within(min: usize, max: usize, key: Option<&[u8; 32]>) -> Self {
        let limits = ChunkLimits {
            min,
            mean: min.midpoint(max),
            max,
        };
        let strong = key.map_or_else(Strong::unkeyed, Strong::keyed);
        Self::made(limits, (max - min) as f64 / CANDIDATES, 0, strong)
    }

    fn with(mean: usize, strong: Strong) -> Self {
        let mean = mean.max(256);
        let (min, max) = search_range(mean);
        let limits = ChunkLimits { min, mean, max };
        Self::made(limits, (max - min) as f64 / CANDIDATES, 0, strong)
    }

    fn below_threshold(mean: usize, strong: Strong) -> Self {
        let mean = mean.max(256);
        let (min, max) = (mean / THRESHOLD_MIN_PART, THRESHOLD_MAX_MEANS * mean);
        let limits = ChunkLimits { min, mean, max };
        let odds = odds_for(limits);
        let sieve = Self::made(limits, 1.0 / (odds * CANDIDATES_A_CUT), 0, strong);
        let candidates = 256.0 * f64::from(u32::from(sieve.scanner.mask) + 1);
        Self {
            threshold: (odds * candidates * real::power_of_two(64)) as u64,
            ..sieve
        }
    }

    /// A chunker with a candidate about every `spacing` positions.
    fn made(limits: ChunkLimits, spacing: f64, threshold: u64, strong: Strong) -> Self {
        // A candidate at every 2^(8 + extra)th position.
        let extra = (real::round(real::log2(spacing)) as i32 - 8).clamp(0, 8) as u32;
        let isa = SieveIsa::available().pop().expect("scalar is always there");
        Self {
            limits,
            threshold,
            scanner: Scanner {
                isa,
                mask: ((1u32 << extra) - 1) as u8,
                strong,
                ahead: 0,
                scan_bytes_max: SCAN_BYTES_MAX,
                found: Positions::new(),
                hashes: Vec::new(),
            },
            search: CutSearch::default(),
        }
    }

    /// This chunker, with the same cuts, computed by the instructions `isa`: for tests and measurements. `None` where
    /// the CPU does not have them.
    pub fn on(&self, isa: SieveIsa) -> Option<Self> {
        let mut other = self.clone();
        other.scanner.isa = isa;
        SieveIsa::available().contains(&isa).then_some(other)
    }

    /// The end of the chunk that begins at `start`; `start` only grows between restarts of the search. `more` as in
    /// [`CutSearch::end`].
    fn end(
        &mut self,
        data: &[u8],
        start: usize,
        more: &mut impl FnMut(&mut Scanner, usize, usize, &mut Vec<CutCandidate>) -> usize,
    ) -> usize {
        let ChunkLimits { min, max, .. } = self.limits;
        // The data is shorter than a longest chunk only where the stream ends. See *The end* above.
        let rest = data.len() - start < max;
        if rest && (self.threshold == 0 || data.len() - start <= min) {
            return data.len();
        }
        let range = Range {
            from: start + min,
            to: data.len().min(start + max),
            threshold: self.threshold,
            rest,
        };
        let mut more = |from, to, found: &mut _| more(&mut self.scanner, from, to, found);
        self.search.end(range, &mut more)
    }

    fn cuts_with(
        &mut self,
        data: &[u8],
        ends: bool,
        chunk: &mut dyn FnMut(usize),
        mut more: impl FnMut(&mut Scanner, usize, usize, &mut Vec<CutCandidate>) -> usize,
    ) -> usize {
        self.search.restart();
        self.scanner.ahead = AHEAD;
        let mut start = 0;
        while start < data.len() && (ends || data.len() - start >= self.limits.max) {
            let end = self.end(data, start, &mut more);
            chunk(end - start);
            start = end;
        }
        start
    }
}

impl Chunker for Sieve {
    fn limits(&self) -> ChunkLimits {
        self.limits
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        self.search.restart();
        self.scanner.ahead = 0;
        self.end(data, 0, &mut |scanner, from, to, found| {
            scanner.scan(data, from, to, found)
        })
    }

    fn cuts(&mut self, data: &[u8], ends: bool, chunk: &mut dyn FnMut(usize)) -> usize {
        self.cuts_with(data, ends, chunk, |scanner, from, to, found| {
            scanner.scan(data, from, to, found)
        })
    }
}
