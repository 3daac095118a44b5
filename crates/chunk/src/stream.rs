//! Chunks of a stream that comes in pieces.

use crate::Chunker;

/// Feeds pieces of any size to a chunker and gives the chunks, which are the same however the stream was split into pieces.
///
/// Memory: at most `limits().max` bytes, and none is copied that need not wait for the next piece.
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
    /// A stream of which nothing has come yet.
    pub fn new(chunker: C) -> Self {
        Self {
            chunker,
            waiting: Vec::new(),
        }
    }

    /// Takes the next piece and gives each chunk that is certain by now, in order.
    pub fn feed(&mut self, piece: &[u8], mut chunk: impl FnMut(&[u8])) {
        let max = self.chunker.limits().max;
        let mut taken = 0;
        while !self.waiting.is_empty() {
            let missing = max.saturating_sub(self.waiting.len());
            let more = missing.min(piece.len() - taken);
            self.waiting.extend_from_slice(&piece[taken..taken + more]);
            taken += more;
            if self.waiting.len() < max {
                return;
            }
            let length = self.chunker.cut(&self.waiting);
            chunk(&self.waiting[..length]);
            let left = self.waiting.len() - length;
            if left <= taken {
                // What is left lies in this piece too: go on there, without copies.
                taken -= left;
                self.waiting.clear();
            } else {
                self.waiting.drain(..length);
            }
        }
        let rest = &piece[taken..];
        let covered = self.cut_all(rest, false, chunk);
        self.waiting.extend_from_slice(&rest[covered..]);
    }

    /// Ends the stream and gives its last chunks.
    pub fn finish(mut self, chunk: impl FnMut(&[u8])) {
        let rest = std::mem::take(&mut self.waiting);
        self.cut_all(&rest, true, chunk);
    }

    fn cut_all(&mut self, data: &[u8], ends: bool, mut chunk: impl FnMut(&[u8])) -> usize {
        let mut at = 0;
        self.chunker.cuts(data, ends, &mut |length| {
            chunk(&data[at..at + length]);
            at += length;
        })
    }
}
