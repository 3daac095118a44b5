//! Chunks of one length.

use crate::{Chunker, Limits};

/// Cuts every `bytes` bytes, whatever the content.
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
    fn limits(&self) -> Limits {
        Limits {
            min: self.bytes,
            mean: self.bytes,
            max: self.bytes,
        }
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        data.len().min(self.bytes)
    }
}
