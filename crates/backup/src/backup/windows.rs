//! Windows of a large file: its segments that are in the page cache, looked at where they are.
//!
//! A re-read of what is stored already only needs fingerprints, and copying costs as much time as they do. Always
//! holds: what is in a window counts for nothing that is kept. A chunk that turns out to be new is copied, and its copy
//! must have the fingerprint that was looked up; if it has not, or the window was torn, the file is read again, by
//! copying.

use std::ops::Range;
use std::sync::Arc;

use onefold_io::os::{FileWindow, PAGES_BYTES};

use super::read::Handle;

/// Bytes of a window, about, and the size from which on files are mapped: large enough that mapping costs little, small
/// enough that what is mapped of a file (it counts as the process's memory) is little more than what is on its way to
/// the store.
pub const WINDOW_BYTES: usize = 8 << 20;

/// The windows of a range, one after the other.
pub struct Windows<'a> {
    pub file: &'a Arc<Handle>,
    range: Range<u64>,
    /// The current one, and where in the file it begins.
    window: Option<(Arc<FileWindow>, u64)>,
    /// The file allows none.
    is_refused: bool,
}

/// A segment in a window.
pub struct View {
    pub window: Arc<FileWindow>,
    /// Where it begins in the window.
    pub start: usize,
    /// Bytes of the range before it in the window.
    pub room: usize,
    /// Of those, the ones next to it that no segment before has had there.
    missing: usize,
    /// The file, and where it begins there.
    pub file: Arc<Handle>,
    pub at: u64,
}

impl<'a> Windows<'a> {
    /// None yet.
    pub fn new(file: &'a Arc<Handle>, range: Range<u64>) -> Self {
        Self {
            file,
            range,
            window: None,
            is_refused: false,
        }
    }

    /// The segment of `len` bytes at `at`, and `carried` bytes before it, but none before the range: a hole may be
    /// there, which some file systems fill when it is looked at in a mapping. `None` where the file cannot be mapped.
    pub fn view(&mut self, at: u64, len: usize, carried: usize) -> Option<View> {
        let first = at.saturating_sub(carried as u64).max(self.range.start);
        let end = at + len as u64;
        let holds = |(window, start): &&(Arc<FileWindow>, u64)| {
            *start <= first && end <= start + window.len() as u64
        };
        // Of what a window holds, each segment is had there once.
        let (window, start, first) = match self.window.as_ref().filter(holds) {
            Some((window, start)) => (window.clone(), *start, at),
            None => {
                let (window, start) = self.open(first, at, end)?;
                (window, start, first)
            }
        };
        Some(View {
            window,
            start: (at - start) as usize,
            room: (at - start.max(self.range.start)) as usize,
            missing: (at - first) as usize,
            file: self.file.clone(),
            at,
        })
    }

    /// The next window, from the page of `first` on: what begins at `at`, at least to `end`.
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

impl View {
    /// Has its `len` bytes there, and those before it that it may need and no segment before has had there; whether
    /// they all are.
    pub fn populate(&self, len: usize) -> bool {
        let first = self.start - self.missing;
        self.window.populate(first..self.start + len)
    }
}
