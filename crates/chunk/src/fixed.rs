//! Chunks of one length.

use crate::{ChunkLimits, Chunker};

/// Cuts every `bytes` bytes, whatever the content.
///
/// ```
/// use onefold_chunk::{Chunks, fixed::Fixed};
///
/// let lengths: Vec<_> = Chunks::new(Fixed::new(4096), &[7; 10_000]).map(<[u8]>::len).collect();
/// assert_eq!(lengths, [4096, 4096, 1808]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    bytes: usize,
}

impl Fixed {
    /// Chunks of `bytes` bytes; at least 1.
    pub fn new(bytes: usize) -> Self {
        Self {
            bytes: bytes.max(1),
        }
    }
}

impl Chunker for Fixed {
    fn limits(&self) -> ChunkLimits {
        ChunkLimits {
            min: self.bytes,
            mean: self.bytes,
            max: self.bytes,
        }
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        data.len().min(self.bytes)
    }
}
