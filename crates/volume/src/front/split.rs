//! Requests of any alignment as whole chunks: the full ones in the middle, and partial ones at the edges.

use std::ops::Range;

use crate::{Error, Geometry, Op, Request, Result};

/// The chunks that a range of bytes touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    /// First byte.
    pub offset: u64,
    /// Bytes, at least 1.
    pub bytes: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
}

impl Span {
    /// Chunks of which any byte is touched.
    pub fn touched(&self) -> Range<u64> {
        self.offset / self.chunk_bytes..self.end().div_ceil(self.chunk_bytes)
    }

    /// Chunks of which every byte is touched.
    pub fn whole(&self) -> Range<u64> {
        let start = self.offset.div_ceil(self.chunk_bytes);
        start..(self.end() / self.chunk_bytes).max(start)
    }

    /// Chunks that are touched in part: none, the first, the last, or both.
    pub fn edges(&self) -> impl Iterator<Item = u64> {
        let (touched, whole) = (self.touched(), self.whole());
        let first = (touched.start < whole.start).then_some(touched.start);
        let last = (whole.end < touched.end).then_some(touched.end - 1);
        // Where all lies within one chunk, the first is the last.
        first
            .into_iter()
            .chain(last.filter(|last| Some(*last) != first))
    }

    /// Whether all chunks are whole.
    pub fn is_aligned(&self) -> bool {
        self.edges().next().is_none()
    }

    /// The bytes of chunk `lbn` that are touched, from the chunk's start on.
    pub fn within(&self, lbn: u64) -> Range<usize> {
        let start = lbn * self.chunk_bytes;
        let from = self.offset.max(start) - start;
        let to = self.end().min(start + self.chunk_bytes) - start;
        from as usize..to as usize
    }

    fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// Checks that the device can carry out the request.
///
/// # Errors
/// [`Error::Invalid`] with the limit that it breaks; [`Error::ReadOnly`].
pub(super) fn check(request: &Request, geometry: &Geometry) -> Result<()> {
    let invalid = |what: String| Err(Error::Invalid { what });
    let end = request.offset.checked_add(request.bytes);
    if end.is_none_or(|end| end > geometry.bytes) {
        return invalid(format!(
            "{} bytes at {} lie beyond the device's {} bytes",
            request.bytes, request.offset, geometry.bytes
        ));
    }
    if matches!(request.op, Op::Write | Op::Discard | Op::WriteZeroes) && !geometry.is_writable {
        return Err(Error::ReadOnly {
            why: "it is a snapshot".into(),
        });
    }
    if matches!(request.op, Op::Read | Op::Write) {
        if request.bytes > u64::from(geometry.io_bytes_max) {
            return invalid(format!(
                "{} bytes at once, at most {}",
                request.bytes, geometry.io_bytes_max
            ));
        }
        if request.buffer.len() as u64 != request.bytes {
            return invalid(format!(
                "a buffer of {} bytes for {}",
                request.buffer.len(),
                request.bytes
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_one_chunk() {
        for chunk_bytes in [512, 4096] {
            for offset in (0..3 * chunk_bytes).step_by(171) {
                for bytes in (1..3 * chunk_bytes).step_by(233) {
                    let span = Span {
                        offset,
                        bytes,
                        chunk_bytes,
                    };
                    let total: usize = span.touched().map(|lbn| span.within(lbn).len()).sum();
                    assert_eq!(total as u64, bytes);
                    for lbn in span.touched() {
                        let is_whole = span.within(lbn) == (0..chunk_bytes as usize);
                        assert_eq!(is_whole, span.whole().contains(&lbn));
                        assert_eq!(!is_whole, span.edges().any(|edge| edge == lbn));
                    }
                    assert_eq!(span.is_aligned(), span.touched() == span.whole());
                }
            }
        }
    }
}
