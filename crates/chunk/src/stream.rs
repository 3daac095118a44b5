//! Chunks of a stream that comes in pieces, and of one that lies in memory.

use crate::Chunker;
use alloc::vec::Vec;

/// Bytes gathered beyond the longest chunk before they are cut: a chunker that looks ahead is faster on many chunks at
/// once, and remaining bytes are moved to the front less often.
const GATHERED_BYTES_MIN: usize = 128 << 10;
const GATHERED_BYTES_MAX: usize = 1 << 20;

/// Feeds pieces of any size to a chunker and gives the chunks, which are the same however the stream was split into
/// pieces.
///
/// Small pieces are gathered, so a chunk may be given some pieces after it is certain. Pieces longer than the gathering
/// size are cut where they lie, and only bytes that must wait for the next piece are copied. Memory: the longest chunk,
/// and as much again, at least 128 KiB and at most 1 MiB.
///
/// ```
/// use onefold_chunk::{ChunkStream, sieve::Sieve};
///
/// let mut lengths = Vec::new();
/// let mut stream = ChunkStream::new(Sieve::new(8192));
/// for piece in [&[1u8; 30_000][..], &[2; 5], &[3; 70_000]] {
///     stream.feed(piece, |chunk| lengths.push(chunk.len()));
/// }
/// stream.finish(|chunk| lengths.push(chunk.len()));
/// assert_eq!(lengths.iter().sum::<usize>(), 100_005);
/// ```
pub struct ChunkStream<C> {
    chunker: C,
    waiting: Vec<u8>,
}

impl<C: Chunker> ChunkStream<C> {
    /// A stream that has no bytes yet.
    pub fn new(chunker: C) -> Self {
        Self {
            chunker,
            waiting: Vec::new(),
        }
    }

    /// Takes the next piece and gives chunks that are certain by now, in order.
    pub fn feed(&mut self, piece: &[u8], mut chunk: impl FnMut(&[u8])) {
        let max = self.chunker.limits().max;
        let enough = max.saturating_add(max.clamp(GATHERED_BYTES_MIN, GATHERED_BYTES_MAX));
        let mut rest = piece;
        while !self.waiting.is_empty() {
            // Where the piece is long, only as much of it is copied as the first chunk may need.
            let wanted = if rest.len() >= enough { max } else { enough };
            let missing = wanted.saturating_sub(self.waiting.len());
            let (more, after) = rest.split_at(missing.min(rest.len()));
            self.waiting.extend_from_slice(more);
            if self.waiting.len() < wanted {
                return;
            }
            let covered = cut_all(&mut self.chunker, &self.waiting, false, &mut chunk);
            let left = self.waiting.len() - covered;
            if left <= more.len() {
                // All remaining bytes lie in this piece, too: go on there, without copies.
                rest = &rest[more.len() - left..];
                self.waiting.clear();
                break;
            }
            rest = after;
            self.waiting.drain(..covered);
        }
        let covered = if rest.len() >= enough {
            cut_all(&mut self.chunker, rest, false, &mut chunk)
        } else {
            0
        };
        self.waiting.extend_from_slice(&rest[covered..]);
    }

    /// Ends the stream and gives its last chunks.
    pub fn finish(mut self, mut chunk: impl FnMut(&[u8])) {
        cut_all(&mut self.chunker, &self.waiting, true, &mut chunk);
    }
}

/// Passes all chunks of `data` that are certain to `chunk`, or all where the stream `ends`; returns the bytes they
/// cover.
fn cut_all(
    chunker: &mut impl Chunker,
    data: &[u8],
    ends: bool,
    chunk: &mut impl FnMut(&[u8]),
) -> usize {
    let mut at = 0;
    chunker.cuts(data, ends, &mut |length| {
        chunk(&data[at..at + length]);
        at += length;
    })
}

/// The chunks of a stream that lies in memory, one after the other. Nothing is copied.
///
/// ```
/// use onefold_chunk::{Chunks, seqcdc::SeqCdc};
///
/// let data = vec![0; 40_000];
/// let lengths: Vec<_> = Chunks::new(SeqCdc::new(8192), &data).map(<[u8]>::len).collect();
/// assert_eq!(lengths, [16_384, 16_384, 7232]);
/// ```
pub struct Chunks<'a, C> {
    chunker: C,
    rest: &'a [u8],
}

impl<'a, C: Chunker> Chunks<'a, C> {
    /// All of `data`, from its beginning.
    pub fn new(chunker: C, data: &'a [u8]) -> Self {
        Self {
            chunker,
            rest: data,
        }
    }
}

impl<'a, C: Chunker> Iterator for Chunks<'a, C> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let (chunk, rest) = self.rest.split_at(self.chunker.cut(self.rest));
        self.rest = rest;
        Some(chunk)
    }
}

impl<C: Chunker> core::iter::FusedIterator for Chunks<'_, C> {}
