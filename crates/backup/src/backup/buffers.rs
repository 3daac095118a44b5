//! Buffers of readers, used again so that their pages are touched once.

use parking_lot::Mutex;

use super::read::PAGE_BYTES;
use super::segment::SEGMENT_BYTES;
use super::source::JOB_BYTES;

/// Buffers in two sizes, used again so that their pages are touched once.
pub struct Buffers {
    small: Mutex<Vec<Vec<u8>>>,
    large: Mutex<Vec<Vec<u8>>>,
    large_bytes: usize,
    carried_bytes_max: usize,
}

impl Buffers {
    /// For chunks up to `chunk_bytes_max`.
    pub fn new(chunk_bytes_max: usize) -> Self {
        Self {
            small: Mutex::default(),
            large: Mutex::default(),
            large_bytes: SEGMENT_BYTES + chunk_bytes_max + PAGE_BYTES,
            carried_bytes_max: chunk_bytes_max,
        }
    }

    /// What a buffer for so many bytes really takes.
    pub fn size_for(&self, bytes: usize) -> usize {
        if bytes <= JOB_BYTES {
            JOB_BYTES
        } else {
            bytes.max(self.large_bytes)
        }
    }

    /// What the buffer of a segment takes.
    pub fn segment_bytes(&self) -> usize {
        self.large_bytes
    }

    /// One for so many bytes, or more.
    pub fn get(&self, bytes: usize) -> Vec<u8> {
        let size = self.size_for(bytes);
        let pool = if size == JOB_BYTES {
            &self.small
        } else {
            &self.large
        };
        let pooled = if size <= self.large_bytes {
            pool.lock().pop()
        } else {
            None
        };
        pooled.unwrap_or_else(|| vec![0; size])
    }

    /// One for a segment, and where in it the segment is read to: at a page's start, with room before it for the end of the segment before.
    pub fn for_segment(&self) -> (Vec<u8>, usize) {
        let buffer = self.get(self.large_bytes);
        let place = buffer.as_ptr().addr() + self.carried_bytes_max;
        let start = self.carried_bytes_max + place.next_multiple_of(PAGE_BYTES) - place;
        (buffer, start)
    }

    /// Takes a buffer back.
    pub fn put(&self, buffer: Vec<u8>) {
        match buffer.len() {
            JOB_BYTES => self.small.lock().push(buffer),
            n if n == self.large_bytes => self.large.lock().push(buffer),
            _ => {}
        }
    }
}
