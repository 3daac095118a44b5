//! The whole stream as one chunk.

use crate::{ChunkLimits, Chunker};

/// One chunk for each stream, up to `bytes_max`: deduplication of whole files.
///
/// ```
/// use onefold_chunk::{Chunks, whole_file::WholeFile};
///
/// assert_eq!(Chunks::new(WholeFile::new(1 << 20), &[7; 10_000]).count(), 1);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WholeFile {
    bytes_max: usize,
}

impl WholeFile {
    /// Streams of up to `bytes_max` bytes (at least 1) are one chunk each; longer ones are cut at every `bytes_max`,
    /// since a caller must be able to hold a chunk.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max: bytes_max.max(1),
        }
    }
}

impl Chunker for WholeFile {
    fn limits(&self) -> ChunkLimits {
        ChunkLimits {
            min: self.bytes_max,
            mean: self.bytes_max,
            max: self.bytes_max,
        }
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        data.len().min(self.bytes_max)
    }
}
