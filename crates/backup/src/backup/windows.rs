//! Windows of a large file: parts of it in the page cache that are looked at in place.
//!
//! A re-read of stored data only needs fingerprints, and copying costs as much time as they do. Invariant: nothing that
//! is kept relies on bytes in a window. A chunk that turns out to be new is copied, and the copy must have the
//! fingerprint that was looked up. If it has not, or the window was torn, the file is read again, by copying.

use std::ops::Range;
use std::sync::Arc;

use onefold_io::os::{FileWindow, PAGES_BYTES};

use super::read::Handle;

/// Approximate size of a window, and the file size from which on files are mapped, in bytes: large enough that mapping
/// costs little, and small enough that the mapped bytes of a file (they count as the process's memory) are few more
/// than those on their way to the store.
pub const WINDOW_BYTES: usize = 8 << 20;

/// Least size of a file whose digest is kept, in bytes, by which it is verified when it is read again.
pub const DIGESTED_BYTES_MIN: u64 = WINDOW_BYTES as u64;

/// The windows of a range, one after another.
pub struct Windows<'a> {
    pub file: &'a Arc<Handle>,
    range: Range<u64>,
    /// The current window, and its offset in the file.
    window: Option<(Arc<FileWindow>, u64)>,
    /// Whether the file cannot be mapped.
    is_refused: bool,
}

/// A segment in a window.
pub struct WindowView {
    pub window: Arc<FileWindow>,
    /// Offset of the segment in the window.
    pub start: usize,
    /// Bytes of the range in the window before the segment.
    pub room: usize,
    /// Bytes right before the segment, within `room`, that no segment before had in this window.
    missing: usize,
    /// The file, and the segment's offset in it.
    pub file: Arc<Handle>,
    pub at: u64,
}

impl<'a> Windows<'a> {
    /// Makes a sequence that has no window yet.
    pub fn new(file: &'a Arc<Handle>, range: Range<u64>) -> Self {
        Self {
            file,
            range,
            window: None,
            is_refused: false,
        }
    }

    /// Returns the segment of `len` bytes at `at`, and `carried` bytes before it, but none before the range: a hole may
    /// be there, which some file systems fill when it is looked at in a mapping. `None` where the file cannot be
    /// mapped.
    pub fn view(&mut self, at: u64, len: usize, carried: usize) -> Option<WindowView> {
        let first = at.saturating_sub(carried as u64).max(self.range.start);
        let end = at + len as u64;
        let holds = |(window, start): &&(Arc<FileWindow>, u64)| {
            *start <= first && end <= start + window.len() as u64
        };
        // Segments before this one had their bytes in the current window already.
        let (window, start, first) = match self.window.as_ref().filter(holds) {
            Some((window, start)) => (window.clone(), *start, at),
            None => {
                let (window, start) = self.open(first, at, end)?;
                (window, start, first)
            }
        };
        Some(WindowView {
            window,
            start: (at - start) as usize,
            room: (at - start.max(self.range.start)) as usize,
            missing: (at - first) as usize,
            file: self.file.clone(),
            at,
        })
    }

    /// Opens the next window, from the page of `first` on: it holds `at`, and reaches at least to `end`.
    fn open(&mut self, first: u64, at: u64, end: u64) -> Option<(Arc<FileWindow>, u64)> {
        if self.is_refused {
            return None;
        }
        let start = first / PAGES_BYTES as u64 * PAGES_BYTES as u64;
        let end = (at + WINDOW_BYTES as u64).min(self.range.end).max(end);
        let window = self.file.window(start, (end - start) as usize);
        self.is_refused = window.is_none();
        self.window = window.map(|window| (Arc::new(window), start));
        self.window.clone()
    }
}

impl WindowView {
    /// Brings the segment's `len` bytes, and the bytes before it that no segment before had in this window, into RAM;
    /// returns whether they all are there.
    pub fn populate(&self, len: usize) -> bool {
        let first = self.start - self.missing;
        self.window.populate(first..self.start + len)
    }
}
