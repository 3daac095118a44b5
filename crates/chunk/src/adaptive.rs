//! Two sizes of chunks: long ones where the bytes look random, short ones everywhere else.
//!
//! Bytes that are encrypted, or compressed as far as can be, come again as whole files or not at all, so short chunks
//! of them find next to nothing, and cost as much metadata as any: at a mean of 8 KiB a repository of random bytes is
//! 1.5 % larger than they are, at 2.1 MiB 0.01 %. That size of a chunk may depend on what lies around it is the idea of
//! bimodal chunking (Kruus, Ungureanu, Dubnicki: Bimodal Content Defined Chunking for Backup Streams, FAST 2010), whose
//! chunks are short where known data ends; here what decides is in the data itself, so that equal data is cut alike
//! whatever is known, but for what changes in place (below).
//!
//! 1. *Looks.* Where a chunk begins, [`SAMPLE_BYTES`] of every [`PIECE_BYTES`] are counted, as far as the longest chunk
//!    reaches: is each sample, and are all of them together, as evenly spread over the 256 values of a byte as random
//!    bytes are (χ² below [`CHI_SQUARED_MAX`])?
//! 2. *Long.* If so, [`sieve`](crate::sieve) cuts within [`LONG_BYTES_MIN`] and [`LONG_BYTES_MAX`]. So it does what is
//!    left of a stream behind a long chunk.
//! 3. *Short.* If not, sieve cuts at the mean that was asked for, at least as far as [`PLAIN_BYTES`] beyond the first
//!    sample that is uneven; then comes the next look.
//!
//! What is deflated (zip and what is built on it, PNG, gzip) is uneven enough to be cut finely, so the members that two
//! archives have in common are found. What is not: LZMA, strong video codecs, anything encrypted. All that is shorter
//! than [`LONG_BYTES_MIN`] is cut finely, and so is a disk that is encrypted with LUKS, known by its header.
//!
//! **What changes in place.** Encrypted disks and databases do, a few KiB here and there. Who knows that a file has
//! changed can cut a long chunk that is new into short ones ([`Chunker::short`]): where such a file changes, it is
//! stored once more in short chunks, and from then on finely.
//!
//! **Worst case.** Data made to look random at every sample is cut into long chunks: it costs duplicates, and neither
//! time nor RAM. A look counts 48 KiB of 3 MiB at most, and there is one for each long chunk, or for [`PLAIN_BYTES`]:
//! as many looks as that are cut short by their first sample, and of those that go on each passes over as much as it
//! counted.
//!
//! **Downside.** The first change of a place costs its long chunk, 2.1 MiB. Where two files have random bytes in
//! common, but not from their beginning, what comes first of them is not found: 3.5 MiB on average, 6.4 once in ten
//! times (of 60 places; with chunks of 2 to 3 MiB it would be 13 and 35). A cut depends on the chunks before, as far as
//! the last end that was told of or [`Chunker::begin`].

use crate::sieve::Sieve;
use crate::{Chunker, Hints, Limits};

/// The shortest long chunk, in bytes, but for the last one of a stream.
pub const LONG_BYTES_MIN: usize = 5 << 18;
/// The longest one, in bytes.
pub const LONG_BYTES_MAX: usize = 3 << 20;
/// A sample is taken of so many bytes,
pub const PIECE_BYTES: usize = 64 << 10;
/// and has so many.
pub const SAMPLE_BYTES: usize = 1 << 10;
/// Bytes that are cut finely from an uneven sample on, before the next look.
pub const PLAIN_BYTES: usize = 256 << 10;
/// What χ² of random bytes hardly ever exceeds: it is 255 on average with a standard deviation of 23, and above this
/// once in ten billion samples.
pub const CHI_SQUARED_MAX: u64 = 420;

/// What streams begin with that look random and change in place: disks encrypted with LUKS.
const CHANGES_IN_PLACE: &[u8] = b"LUKS\xba\xbe";

/// Two sizes of chunks: 1.25 to 3 MiB where the bytes look random, those of [`Sieve`] everywhere else.
///
/// It must be told of each stream with [`Chunker::begin`].
///
/// ```
/// use onefold_chunk::{Chunks, adaptive::Adaptive};
///
/// let mut state = 1u64;
/// let mut random = || {
///     state = state.wrapping_mul(6364136223846793005).wrapping_add(99);
///     (state >> 56) as u8
/// };
/// let noise: Vec<u8> = (0..8 << 20).map(|_| random()).collect();
/// assert_eq!(Chunks::new(Adaptive::new(8192), &noise).count(), 4);
/// let letters: Vec<u8> = noise.iter().map(|byte| b'a' + byte % 26).collect();
/// assert!(Chunks::new(Adaptive::new(8192), &letters).count() > 900);
/// ```
#[derive(Clone)]
pub struct Adaptive {
    short: Sieve,
    long: Sieve,
    /// The chunk before, of this stream, was a long one.
    follows_long: bool,
    /// Bytes before the next look.
    plain_bytes: usize,
    /// Nothing of the stream is looked at.
    is_plain: bool,
}

/// What is seen where a chunk begins.
enum Look {
    /// Random bytes.
    Long,
    /// So many bytes to cut finely.
    Short(usize),
    /// Nothing uneven yet.
    More,
}

impl Adaptive {
    /// Chunks of `mean` bytes on average where bytes do not look random.
    pub fn new(mean: usize) -> Self {
        Self::of(
            Sieve::new(mean),
            Sieve::within(LONG_BYTES_MIN, LONG_BYTES_MAX, None),
        )
    }

    /// Chunks as [`new`](Self::new) makes them, with cut points that depend on `key`. Which bytes look random does not.
    pub fn keyed(mean: usize, key: &[u8; 32]) -> Self {
        let long = Sieve::within(LONG_BYTES_MIN, LONG_BYTES_MAX, Some(key));
        Self::of(Sieve::keyed(mean, key), long)
    }

    fn of(short: Sieve, long: Sieve) -> Self {
        Self {
            short,
            long,
            follows_long: false,
            plain_bytes: 0,
            is_plain: false,
        }
    }

    /// What comes next is cut as the beginning of a stream. What was looked at of the bytes before depends on how they
    /// came.
    fn start_over(&mut self) {
        (self.follows_long, self.plain_bytes) = (false, 0);
    }

    /// What `data` looks like, with which the stream `ends` or not.
    fn look(&self, data: &[u8], ends: bool) -> Look {
        let window = &data[..data.len().min(LONG_BYTES_MAX)];
        let is_cut_off = window.len() < LONG_BYTES_MAX;
        if is_cut_off && ends && window.len() < LONG_BYTES_MIN && !self.follows_long {
            return Look::Short(window.len());
        }
        let mut all = [0; 256];
        for (at, piece) in window.chunks(PIECE_BYTES).enumerate() {
            // At the end of what is there, a sample may be shorter than it will be.
            if piece.len() < SAMPLE_BYTES && is_cut_off && !ends {
                break;
            }
            let counts = counts(&piece[..piece.len().min(SAMPLE_BYTES)]);
            if chi_squared(&counts) > CHI_SQUARED_MAX {
                return Look::Short(at * PIECE_BYTES + PLAIN_BYTES);
            }
            all.iter_mut()
                .zip(counts)
                .for_each(|(sum, count)| *sum += count);
        }
        if is_cut_off && !ends {
            return Look::More;
        }
        match chi_squared(&all) > CHI_SQUARED_MAX {
            true => Look::Short(window.len()),
            false => Look::Long,
        }
    }

    /// [`Chunker::cut`], wherever the stream ends.
    fn cut_one(&mut self, data: &[u8]) -> usize {
        if !self.is_plain && self.plain_bytes == 0 {
            match self.look(data, data.len() < LONG_BYTES_MAX) {
                Look::Short(bytes) => (self.plain_bytes, self.follows_long) = (bytes, false),
                Look::Long | Look::More => {
                    self.follows_long = true;
                    return self.long.cut(data);
                }
            }
        }
        let length = self.short.cut(data);
        self.plain_bytes = self.plain_bytes.saturating_sub(length);
        length
    }

    /// Cuts finely what is to be, as far as is sure; gives how many bytes that covers.
    fn cut_short(&mut self, data: &[u8], ends: bool, chunk: &mut dyn FnMut(usize)) -> usize {
        // No chunk begins behind the plain bytes.
        let reach = self.plain_bytes.saturating_add(self.short.limits().max - 1);
        let part = &data[..data.len().min(reach)];
        let covered = self
            .short
            .cuts(part, ends && part.len() == data.len(), chunk);
        self.plain_bytes = self.plain_bytes.saturating_sub(covered);
        covered
    }
}

impl Chunker for Adaptive {
    /// The mean is that of what does not look random.
    fn limits(&self) -> Limits {
        let short = self.short.limits();
        Limits {
            max: short.max.max(LONG_BYTES_MAX),
            ..short
        }
    }

    fn ahead(&self) -> usize {
        self.short.limits().max
    }

    fn short(&mut self) -> Option<&mut dyn Chunker> {
        Some(&mut self.short)
    }

    fn begin(&mut self, hints: &Hints<'_>) {
        self.is_plain = hints.head.starts_with(CHANGES_IN_PLACE);
        self.start_over();
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let length = self.cut_one(data);
        // So little is there only where a stream ends.
        if length == data.len() && length < self.limits().max {
            self.start_over();
        }
        length
    }

    fn cuts(&mut self, data: &[u8], ends: bool, chunk: &mut dyn FnMut(usize)) -> usize {
        if self.is_plain {
            return self.short.cuts(data, ends, chunk);
        }
        let mut at = 0;
        while at < data.len() {
            let rest = &data[at..];
            if self.plain_bytes == 0 {
                match self.look(rest, ends) {
                    Look::More => break,
                    Look::Long => {
                        let length = self.long.cut(rest);
                        chunk(length);
                        at += length;
                        self.follows_long = true;
                        continue;
                    }
                    Look::Short(bytes) => (self.plain_bytes, self.follows_long) = (bytes, false),
                }
            }
            match self.cut_short(rest, ends, chunk) {
                0 => break,
                covered => at += covered,
            }
        }
        if ends {
            self.start_over();
        }
        at
    }
}

/// How often each byte comes.
fn counts(bytes: &[u8]) -> [u32; 256] {
    // Two at a time, so that a count need not wait for the one before where a byte repeats.
    let (mut even, mut odd) = ([0u32; 256], [0u32; 256]);
    let mut pairs = bytes.chunks_exact(2);
    for pair in &mut pairs {
        even[usize::from(pair[0])] += 1;
        odd[usize::from(pair[1])] += 1;
    }
    for byte in pairs.remainder() {
        even[usize::from(*byte)] += 1;
    }
    even.iter_mut()
        .zip(odd)
        .for_each(|(sum, count)| *sum += count);
    even
}

/// χ² against an even spread, with 255 degrees of freedom, rounded down; 0 of nothing.
fn chi_squared(counts: &[u32; 256]) -> u64 {
    let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    let squares: u64 = counts.iter().map(|count| u64::from(*count).pow(2)).sum();
    // Σ (c − n/256)² ÷ (n/256) = 256 Σ c² ÷ n − n
    (256 * squares).checked_div(all).unwrap_or(0) - all
}
