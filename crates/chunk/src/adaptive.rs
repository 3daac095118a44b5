//! Two sizes of chunks: long ones where the bytes look random, short ones everywhere else.
//!
//! Encrypted bytes, and bytes compressed as far as possible, repeat as whole files or not at all. Short chunks of them
//! find next to no duplicates and cost as much metadata as any: at a mean of 8 KiB a repository of random bytes is 1.5
//! % larger than they are, at 2.1 MiB 0.010 %, and 0.005 % as they are cut here. Chunk sizes that depend on the
//! surrounding data are the idea of bimodal chunking (Kruus, Ungureanu, Dubnicki: Bimodal Content Defined Chunking for
//! Backup Streams, FAST 2010), whose chunks are short where known data ends. Here the data itself decides, so that
//! equal data is cut alike whatever is stored already, except for data that changes in place (below).
//!
//! 1. *Looks.* Where a chunk begins, [`SAMPLE_BYTES`] of every [`PIECE_BYTES`] are counted, as far as the longest chunk
//!    reaches: is each sample, and are all samples together, as evenly spread over the 256 values of a byte as random
//!    bytes are (χ² below [`CHI_SQUARED_MAX`])?
//! 2. *Long.* If so, [`sieve`](crate::sieve) cuts within [`LONG_BYTES_MIN`] and [`LONG_BYTES_MAX`], and so the rest of
//!    a stream behind a long chunk.
//! 3. *Deep.* Behind [`DEEP_BYTES`] of neighbouring long chunks, sieve cuts within [`DEEP_BYTES_MIN`] and
//!    [`DEEP_BYTES_MAX`] where all samples up to there are as even; otherwise as before.
//! 4. *Short.* If not, sieve cuts at the mean that was asked for, at least as far as [`PLAIN_BYTES`] beyond the first
//!    uneven sample; then the next look follows.
//!
//! Deflated data (zip and formats built on it, PNG, gzip) is uneven enough to be cut finely, so that common members of
//! two archives are found. Not found are common parts of LZMA, strong video codecs, and anything encrypted. Streams
//! shorter than [`LONG_BYTES_MIN`] are cut finely, and so are disks encrypted with LUKS, known by their header.
//!
//! **Changes in place.** Encrypted disks and databases change in place, a few KiB here and there. A caller that knows
//! that a file has changed can cut a new long chunk, or its new part, into short ones ([`Chunker::short`]).
//!
//! **Worst case.** Data made to look random at every sample is cut into long chunks: it costs duplicates, and neither
//! time nor RAM. A look counts at most 48 KiB of 3 MiB, or 128 KiB of 8 MiB, and there is one look for each long chunk
//! (two where the first finds not all of 8 MiB even), or one for [`PLAIN_BYTES`]. A look that ends at its first sample
//! costs next to nothing, and a longer one passes over as many bytes as it covered.
//!
//! **Downside.** A caller without knowledge of the old data stores a long chunk for a change: 2.1 MiB, deep in random
//! bytes 5.75. Where two files share random bytes, but not from their beginning, the first of these are not found: 9
//! MiB on average, 20 once in ten times (of 60 places; with chunks of 1.25 to 3 MiB alone it would be 3.5 and 6.4, with
//! 2 to 3 MiB 13 and 35). A cut depends on the chunks before, back to the last reported end of data or
//! [`Chunker::begin`].

use crate::sieve::Sieve;
use crate::{ChunkLimits, Chunker, StreamHints};

/// The shortest long chunk in bytes, except for the last chunk of a stream.
pub const LONG_BYTES_MIN: usize = 5 << 18;
/// The longest long chunk in bytes, where it is not deep in random bytes.
pub const LONG_BYTES_MAX: usize = 3 << 20;
/// Bytes of neighbouring long chunks behind which deep chunks begin.
pub const DEEP_BYTES: usize = 4 << 20;
/// The shortest deep chunk in bytes.
pub const DEEP_BYTES_MIN: usize = 7 << 19;
/// The longest deep chunk in bytes: all samples up to there must be even.
pub const DEEP_BYTES_MAX: usize = 8 << 20;
/// Bytes of a piece: each piece has one sample, at its beginning.
pub const PIECE_BYTES: usize = 64 << 10;
/// Bytes of a sample.
pub const SAMPLE_BYTES: usize = 1 << 10;
/// Bytes that are cut finely from an uneven sample on, before the next look.
pub const PLAIN_BYTES: usize = 256 << 10;
/// Largest χ² of a sample that counts as random. Random bytes have 255 on average with a standard deviation of 23, and
/// exceed this once in ten billion samples.
pub const CHI_SQUARED_MAX: u64 = 420;

/// First bytes of streams that look random and change in place: disks encrypted with LUKS.
const CHANGES_IN_PLACE: &[u8] = b"LUKS\xba\xbe";

/// Chunks of 1.25 to 3 MiB where the bytes look random, of 3.5 to 8 deep in such bytes, and those of [`Sieve`]
/// everywhere else.
///
/// [`Chunker::begin`] must be called at the beginning of each stream.
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
/// assert_eq!(Chunks::new(Adaptive::new(8192), &noise).count(), 3);
/// let letters: Vec<u8> = noise.iter().map(|byte| b'a' + byte % 26).collect();
/// assert!(Chunks::new(Adaptive::new(8192), &letters).count() > 900);
/// ```
#[derive(Clone)]
pub struct Adaptive {
    short: Sieve,
    long: Sieve,
    deep: Sieve,
    /// Bytes of the neighbouring long chunks that end here; 0 behind a short chunk.
    long_bytes: usize,
    /// Bytes that are still to be cut finely before the next look.
    plain_bytes: usize,
    /// Whether the whole stream is cut finely, without looks.
    is_plain: bool,
}

/// Result of a look at the data where a chunk begins.
enum DataLook {
    /// The samples are random as far as the longest long chunk.
    Long,
    /// The samples are random as far as the longest deep chunk, behind [`DEEP_BYTES`] of random data.
    Deep,
    /// The data is uneven; the number of bytes to cut finely.
    Short(usize),
    /// All samples so far are even, and more data is needed to decide.
    More,
}

impl Adaptive {
    /// Chunks of `mean` bytes on average where bytes do not look random.
    pub fn new(mean: usize) -> Self {
        Self::of(Sieve::new(mean), None)
    }

    /// Chunks as [`new`](Self::new) makes them, with cut points that depend on `key`. Looks do not depend on the key.
    pub fn keyed(mean: usize, key: &[u8; 32]) -> Self {
        Self::of(Sieve::keyed(mean, key), Some(key))
    }

    fn of(short: Sieve, key: Option<&[u8; 32]>) -> Self {
        Self {
            short,
            long: Sieve::within(LONG_BYTES_MIN, LONG_BYTES_MAX, key),
            deep: Sieve::within(DEEP_BYTES_MIN, DEEP_BYTES_MAX, key),
            long_bytes: 0,
            plain_bytes: 0,
            is_plain: false,
        }
    }

    /// Cuts the following data as the beginning of a stream. Earlier looks must not count, because they depend on how
    /// the data was split into calls.
    fn start_over(&mut self) {
        (self.long_bytes, self.plain_bytes) = (0, 0);
    }

    /// Looks at `data` at the beginning of a chunk; `ends`: the stream ends with `data`.
    fn look(&self, data: &[u8], ends: bool) -> DataLook {
        if self.long_bytes < DEEP_BYTES {
            return self.look_within(LONG_BYTES_MAX, data, ends);
        }
        if data.len() < DEEP_BYTES_MAX && !ends {
            return DataLook::More;
        }
        match self.look_within(DEEP_BYTES_MAX, data, ends) {
            DataLook::Long => DataLook::Deep,
            _ => self.look_within(LONG_BYTES_MAX, data, ends),
        }
    }

    /// Looks at the first `reach` bytes: [`DataLook::Long`] where all samples are even.
    fn look_within(&self, reach: usize, data: &[u8], ends: bool) -> DataLook {
        let window = &data[..data.len().min(reach)];
        let is_cut_off = window.len() < reach;
        if is_cut_off && ends && window.len() < LONG_BYTES_MIN && self.long_bytes == 0 {
            return DataLook::Short(window.len());
        }
        let mut all = [0; 256];
        for (at, piece) in window.chunks(PIECE_BYTES).enumerate() {
            // Where more data may follow, the last sample may still be incomplete: it is not counted.
            if piece.len() < SAMPLE_BYTES && is_cut_off && !ends {
                break;
            }
            let counts = counts(&piece[..piece.len().min(SAMPLE_BYTES)]);
            if chi_squared(&counts) > CHI_SQUARED_MAX {
                return DataLook::Short(at * PIECE_BYTES + PLAIN_BYTES);
            }
            all.iter_mut()
                .zip(counts)
                .for_each(|(sum, count)| *sum += count);
        }
        if is_cut_off && !ends {
            return DataLook::More;
        }
        if chi_squared(&all) > CHI_SQUARED_MAX {
            DataLook::Short(window.len())
        } else {
            DataLook::Long
        }
    }

    /// The length of the long chunk at the beginning of `data`, by the result of a look; `None`: cut finely, or look
    /// again with more data.
    fn cut_long(&mut self, look: &DataLook, data: &[u8]) -> Option<usize> {
        let length = match look {
            DataLook::Long => self.long.cut(data),
            DataLook::Deep => self.deep.cut(data),
            DataLook::Short(bytes) => {
                (self.plain_bytes, self.long_bytes) = (*bytes, 0);
                return None;
            }
            DataLook::More => return None,
        };
        self.long_bytes += length;
        Some(length)
    }

    /// [`Chunker::cut`] without the reset at the end of the stream.
    fn cut_one(&mut self, data: &[u8]) -> usize {
        if !self.is_plain && self.plain_bytes == 0 {
            let look = self.look(data, data.len() < self.limits().max);
            if let Some(length) = self.cut_long(&look, data) {
                return length;
            }
        }
        let length = self.short.cut(data);
        self.plain_bytes = self.plain_bytes.saturating_sub(length);
        length
    }

    /// Cuts the plain bytes finely as far as cuts are certain; returns the number of bytes cut.
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
    /// The limits of this chunker; the mean is that of data that does not look random.
    fn limits(&self) -> ChunkLimits {
        let short = self.short.limits();
        ChunkLimits {
            max: short.max.max(DEEP_BYTES_MAX),
            ..short
        }
    }

    fn ahead(&self) -> usize {
        self.short.limits().max
    }

    fn short(&mut self) -> Option<&mut dyn Chunker> {
        Some(&mut self.short)
    }

    fn begin(&mut self, hints: &StreamHints<'_>) {
        self.is_plain = hints.head.starts_with(CHANGES_IN_PLACE);
        self.start_over();
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let length = self.cut_one(data);
        // A chunk that takes all of `data` and is below the maximum is the last one of a stream.
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
                let look = self.look(rest, ends);
                if let Some(length) = self.cut_long(&look, rest) {
                    chunk(length);
                    at += length;
                    continue;
                }
                if matches!(look, DataLook::More) {
                    break;
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

/// The number of occurrences of each byte value.
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

/// χ² of the counts against an even spread, with 255 degrees of freedom, rounded down; 0 without counts.
fn chi_squared(counts: &[u32; 256]) -> u64 {
    let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    let squares: u64 = counts.iter().map(|count| u64::from(*count).pow(2)).sum();
    // Σ (c − n/256)² ÷ (n/256) = 256 Σ c² ÷ n − n
    (256 * squares).checked_div(all).unwrap_or(0) - all
}
