//! Sends out the segments of a large file, to threads that take them ([`super::segment`]) and to the store.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crossbeam_channel::Sender;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::buffers::{Buffers, LONG_SEGMENT_BYTES, SEGMENT_BYTES};
use super::file_end::Abandoned;
use super::outlook::Outlook;
use super::parts::{LargePart, PartSender};
use super::read::{Cached, Source};
use super::segment::{Baton, Bytes, FileCutter, Queues, SegmentTask, UncutSegment, slot};
use super::windows::Windows;

/// Sends out the segments of a range.
pub struct SegmentSender<'a> {
    pub cutter: &'a Arc<Mutex<FileCutter>>,
    pub buffers: &'a Buffers,
    pub queues: &'a Queues,
    /// Whether the next data is likely to be stored already; `None` if nothing is to be mapped.
    pub outlook: Option<&'a Outlook>,
    pub parts: &'a PartSender,
    /// Whether the file's digest is wanted.
    pub is_digested: bool,
    /// Whether more was carried lately from segment to segment than in nearly all streams: chunks are long. The value
    /// is that of some segments ago, or of the file before.
    pub carries_much: &'a Arc<AtomicBool>,
}

impl<'a> SegmentSender<'a> {
    /// Chooses the bytes to read at `at`, their number, and the queue for them: up to `left` bytes, or `short` where
    /// that is as good; `carried` bytes are likely to be carried into the segment.
    fn next(
        &self,
        windows: &mut Windows<'_>,
        at: u64,
        (left, short): (usize, usize),
        carried: usize,
    ) -> (Bytes, usize, &'a Sender<SegmentTask>) {
        let file = windows.file;
        let (long, short) = (left.min(LONG_SEGMENT_BYTES), left.min(short));
        if self.outlook.is_some_and(Outlook::is_known)
            && file.cached(at, long) == Some(Cached::Whole)
            && let Some(view) = windows.view(at, long, carried)
        {
            self.parts.maps();
            return (Bytes::Mapped(view), long, &self.queues.cached);
        }
        let (want, from_disk, queue) = match file.cached(at, short) {
            Some(Cached::Whole | Cached::Mostly) => (short, false, &self.queues.cached),
            Some(Cached::Little) if file.cached(at, long) == Some(Cached::Little) => {
                (long, true, &self.queues.cold)
            }
            Some(Cached::Little) => (short, true, &self.queues.cold),
            None => (short, false, &self.queues.cold),
        };
        (Bytes::At(file.clone(), at, from_disk), want, queue)
    }

    /// Sends this range of the file; returns the offset where it really ended.
    pub fn send(
        &self,
        source: &Source<'_>,
        range: Range<u64>,
    ) -> Result<Result<u64, Errno>, Abandoned> {
        let over = Arc::new(AtomicBool::new(false));
        let (first, mut before) = slot();
        let _ = first.send(Baton::new(self.cutter));
        let mut windows = Windows::new(&source.handle, range.clone());
        let mut at = range.start;
        loop {
            let left = (range.end - at).try_into().unwrap_or(usize::MAX);
            // The more is carried, the longer are segments, since carried bytes are copied into each.
            let (carried, short) = if self.carries_much.load(Relaxed) {
                (self.buffers.carried_bytes_max(), LONG_SEGMENT_BYTES)
            } else {
                (self.buffers.carried_bytes(), SEGMENT_BYTES)
            };
            let (bytes, want, queue) = if source.is_stream() {
                let want = left.min(short);
                let (mut buffer, fresh) = self.buffers.for_segment(want);
                let filled = match source.read_fully(&mut buffer[fresh..fresh + want]) {
                    Ok(filled) => filled,
                    Err(e) => return Ok(Err(e)),
                };
                (
                    Bytes::Here(buffer, fresh, filled),
                    want,
                    &self.queues.cached,
                )
            } else {
                self.next(&mut windows, at, (left, short), carried)
            };
            let ends_early = matches!(bytes, Bytes::Here(_, _, filled) if filled < want);
            let end = at + want as u64;
            let is_last = ends_early || end == range.end;
            let ((done, segment), (after, next)) = (slot(), slot());
            let taken = match bytes {
                Bytes::Mapped(_) => self.buffers.segment_bytes(want),
                Bytes::At(..) | Bytes::Here(..) => self.buffers.likely_bytes(want, carried),
            };
            self.parts.send(LargePart::Segment(segment, taken))?;
            let task = SegmentTask::Cut(UncutSegment {
                bytes,
                range: at..end,
                is_last,
                is_digested: self.is_digested,
                over: over.clone(),
                carries_much: self.carries_much.clone(),
                before,
                after,
                done,
            });
            queue.send(task).map_err(|_| Abandoned)?;
            (before, at) = (next, end);
            if is_last && end >= source.stat.size {
                self.parts.sent();
            }
            if is_last || over.load(Relaxed) {
                let baton = before.recv().map_err(|_| Abandoned)?;
                return Ok(baton.end.unwrap_or(Ok(at)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
