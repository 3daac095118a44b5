//! Buffers of readers, used again so that their pages are touched once.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use onefold_chunk::Chunker;
use onefold_io::DIRECT_ALIGN;
use onefold_io::os::{FileWindow, HUGE_PAGE_BYTES, Mapped, PAGES_BYTES};
use parking_lot::Mutex;

use super::outlook::Outlook;

/// Bytes of small files that make one job; larger files stand alone.
pub const JOB_BYTES: usize = 128 << 10;
/// Segment of a large file whose bytes are in RAM already, in bytes: it is copied into a core's cache, cut and
/// fingerprinted there.
pub const SEGMENT_BYTES: usize = 512 << 10;
/// Segment whose bytes come from the disk, in bytes: a huge page, which is one request to the device. On a virtual disk
/// such reads reach twice the rate of shorter ones, and of reads into pages of 4 KiB. Mapped segments have this size,
/// too: they are not copied, and the more chunks are fingerprinted together, the quicker each is.
pub const LONG_SEGMENT_BYTES: usize = HUGE_PAGE_BYTES;

/// Number of free gathering buffers that are kept for later segments while the store has new data to work on and needs
/// the RAM. While data is known, all are kept. None is kept once other files need buffers.
const GATHERED_POOLED_MAX: usize = 1;

/// Memory that a segment or a job of small files was read into.
pub enum Buffer {
    /// Memory for small files, or for a segment that was in RAM.
    Heap(Vec<u8>),
    /// Huge pages for a segment that came from the disk.
    Huge(Mapped),
    /// Huge pages for several segments in a row that no chunk ended in.
    Gathered(Mapped),
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Huge(bytes) | Self::Gathered(bytes) => bytes,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Huge(bytes) | Self::Gathered(bytes) => bytes,
        }
    }
}

/// Bytes of a segment, and where they are.
pub enum SegmentBytes {
    /// The bytes are in a buffer of ours: no other process changes them.
    Buffer(Buffer),
    /// The bytes are in the page cache, where other processes may change them.
    Window(Arc<FileWindow>),
}

impl SegmentBytes {
    /// Whether the bytes are still those that were fingerprinted.
    pub fn is_steady(&self) -> bool {
        matches!(self, Self::Buffer(_))
    }

    /// Whether some of the bytes vanished while they were looked at.
    pub fn is_torn(&self) -> bool {
        matches!(self, Self::Window(window) if window.is_torn())
    }
}

impl Deref for SegmentBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Buffer(buffer) => buffer,
            Self::Window(window) => window,
        }
    }
}

/// Buffers in four sizes, used again so that their pages are touched once.
pub struct Buffers {
    small: Mutex<Vec<Vec<u8>>>,
    segments: Mutex<Vec<Vec<u8>>>,
    /// Free buffers for segments from the disk. The one that was given back first is used first: a device writes more
    /// slowly into memory that a core has just worked on.
    cold_segments: Mutex<VecDeque<Mapped>>,
    gathered: Mutex<Vec<Mapped>>,
    /// Room before a segment for the end of the segment before, in bytes: enough for nearly all streams, in whole
    /// pages.
    carried_bytes: usize,
    /// Largest number of bytes that can be carried in front of a segment. More than `carried_bytes` are gathered in
    /// another buffer.
    carried_bytes_max: usize,
    outlook: Arc<Outlook>,
}

impl Buffers {
    /// Makes an empty pool, with sizes that fit `chunker`.
    pub fn new(chunker: &dyn Chunker, outlook: Arc<Outlook>) -> Self {
        Self {
            outlook,
            small: Mutex::default(),
            segments: Mutex::default(),
            gathered: Mutex::default(),
            cold_segments: Mutex::default(),
            carried_bytes: chunker.ahead().next_multiple_of(PAGES_BYTES),
            carried_bytes_max: chunker.limits().max.next_multiple_of(PAGES_BYTES),
        }
    }

    /// Size of the buffer that [`Self::get`] gives for `bytes` of small files, in bytes.
    pub fn size_for(&self, bytes: usize) -> usize {
        if bytes <= JOB_BYTES {
            JOB_BYTES
        } else {
            bytes.max(self.segment_bytes(SEGMENT_BYTES))
        }
    }

    /// Size of a buffer for a segment of `bytes`, in bytes, where no more is carried into it than in nearly all
    /// streams.
    pub fn segment_bytes(&self, bytes: usize) -> usize {
        if bytes > SEGMENT_BYTES {
            self.carried_bytes + LONG_SEGMENT_BYTES
        } else {
            // The heap's blocks begin anywhere in a page.
            self.carried_bytes + SEGMENT_BYTES + DIRECT_ALIGN
        }
    }

    /// Bytes to count for a segment's buffer where `carried` bytes are likely to be carried into it: a segment that a
    /// chunk ends in is gathered with those before it. While data is known nothing is added: buffers are freed as soon
    /// as they are fingerprinted, so most of them are only being read into, and their number keeps the disk busy.
    pub fn likely_bytes(&self, bytes: usize, carried: usize) -> usize {
        let more = if self.outlook.is_known() {
            0
        } else {
            carried - self.carried_bytes
        };
        self.segment_bytes(bytes) + more
    }

    /// Gives an empty buffer for at least `bytes` of small files.
    pub fn get(&self, bytes: usize) -> Vec<u8> {
        let size = self.size_for(bytes);
        let pool = if size == JOB_BYTES {
            &self.small
        } else {
            &self.segments
        };
        let pooled = if size <= self.segment_bytes(SEGMENT_BYTES) {
            pool.lock().pop()
        } else {
            None
        };
        pooled.unwrap_or_else(|| {
            self.gathered.lock().clear();
            vec![0; size]
        })
    }

    /// Gives a buffer for a segment of `bytes`, and the offset in it that the segment is read to: the start of a page,
    /// with room before it for the end of the segment before.
    pub fn for_segment(&self, bytes: usize) -> (Buffer, usize) {
        if bytes > SEGMENT_BYTES {
            let pooled = self.cold_segments.lock().pop_front();
            let make = || Mapped::huge(self.carried_bytes, LONG_SEGMENT_BYTES);
            return (
                Buffer::Huge(pooled.unwrap_or_else(make)),
                self.carried_bytes,
            );
        }
        let buffer = self.get(self.segment_bytes(bytes));
        let place = buffer.as_ptr().addr() + self.carried_bytes;
        let start = self.carried_bytes + place.next_multiple_of(DIRECT_ALIGN) - place;
        (Buffer::Heap(buffer), start)
    }

    /// Gives a buffer for the most bytes that can be carried into a segment, and the segment behind them.
    pub fn for_gathering(&self) -> Buffer {
        let pooled = self.gathered.lock().pop();
        let make = || Mapped::huge(0, self.carried_bytes_max + LONG_SEGMENT_BYTES);
        Buffer::Gathered(pooled.unwrap_or_else(make))
    }

    /// Room before a segment for the end of the segment before, in bytes: enough for nearly all streams.
    pub fn carried_bytes(&self) -> usize {
        self.carried_bytes
    }

    /// Room before a segment for the end of the segment before, in bytes: enough for any stream.
    pub fn carried_bytes_max(&self) -> usize {
        self.carried_bytes_max
    }

    /// Takes a buffer back, or releases a window, once nothing else refers to it.
    pub fn put(&self, held: Arc<SegmentBytes>) {
        let Some(SegmentBytes::Buffer(buffer)) = Arc::into_inner(held) else {
            return;
        };
        match buffer {
            Buffer::Huge(buffer) => self.cold_segments.lock().push_back(buffer),
            Buffer::Gathered(buffer) => {
                let mut pool = self.gathered.lock();
                if self.outlook.is_known() || pool.len() < GATHERED_POOLED_MAX {
                    pool.push(buffer);
                }
            }
            Buffer::Heap(buffer) => match buffer.len() {
                JOB_BYTES => self.small.lock().push(buffer),
                n if n == self.segment_bytes(SEGMENT_BYTES) => self.segments.lock().push(buffer),
                _ => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use onefold_chunk::adaptive::Adaptive;

    use super::*;

    #[test]
    fn of_known_data_all_gathered_segments_buffers_are_kept_and_of_new_data_one() {
        let outlook = Arc::new(Outlook::default());
        let buffers = Buffers::new(&Adaptive::new(8192), outlook.clone());
        let carried = buffers.carried_bytes_max();
        assert!(carried > LONG_SEGMENT_BYTES);
        let put_ten = || {
            let held: Vec<_> = (0..10).map(|_| buffers.for_gathering()).collect();
            for buffer in held {
                buffers.put(Arc::new(SegmentBytes::Buffer(buffer)));
            }
            buffers.gathered.lock().len()
        };
        let usual = buffers.segment_bytes(LONG_SEGMENT_BYTES);
        let likely = || buffers.likely_bytes(LONG_SEGMENT_BYTES, carried);

        outlook.tell(u64::MAX / 2, false);
        assert_eq!((likely(), put_ten()), (usual, 10));
        assert_eq!(put_ten(), 10, "they are used again");
        outlook.tell(1, true);
        assert_eq!(likely(), usual + carried - buffers.carried_bytes());
        buffers.get(SEGMENT_BYTES);
        assert_eq!(buffers.gathered.lock().len(), 0, "others need the RAM");
        assert_eq!(put_ten(), GATHERED_POOLED_MAX);
    }
}
