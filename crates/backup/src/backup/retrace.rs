//! Retracing: a large file that looks like one in a snapshot is fingerprinted along that one's cuts, where it lies in
//! the page cache, instead of being cut and looked up.
//!
//! What always holds: all of the file is read, and each chunk has the fingerprint that the trace says, so that what is
//! kept is what is there. At the first chunk that differs, or whose container nobody vouches for, the file begins anew
//! ([`PartSender::settle`]) and is cut as any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crossbeam_channel::Sender;
use onefold_store::ChunkRef;

use super::buffers::Held;
use super::parts::{LargePart, PartSender};
use super::read::Source;
use super::segment::{Done, Task, Worker, slot};
use super::source::{Abandoned, Reader, pieces};
use super::traces::TRACED_BYTES_MIN;
use super::windows::{View, Windows};
use crate::content::Ahead;
use crate::{Content, Item};

/// A stretch of a file to verify.
pub struct Stretch {
    view: View,
    bytes: usize,
    /// What it holds, as far as the trace tells.
    chunks: Vec<ChunkRef>,
    /// Some stretch of the file was not what the trace says.
    differs: Arc<AtomicBool>,
    done: Sender<Done>,
}

/// A stretch that was verified.
pub struct Retraced {
    /// Where it was seen.
    pub held: Arc<Held>,
    pub bytes: usize,
    /// It is what the trace says.
    pub is_same: bool,
}

impl Reader<'_> {
    /// A trace to follow through this file, if it lies in the page cache. `before`: what the parent has of it, if it
    /// looks unchanged.
    pub(super) fn trace(&self, source: &Source<'_>, before: Option<Content>) -> Option<Content> {
        let (size, mtime) = (source.stat.size, source.stat.mtime);
        let is_likely = size >= TRACED_BYTES_MIN
            && !source.may_have_holes()
            && source.handle.is_nearly_cached(size);
        if !is_likely {
            return None;
        }
        let trace = self.traces.find((size, mtime), before, self.progress)?;
        let mut spans = trace.items.iter().map(Item::span);
        let spans = spans.try_fold(0u64, u64::checked_add);
        (spans == Some(size)).then_some(trace)
    }

    /// Sends the file's stretches along `trace`; whether that led to its end. What comes of each, the store is told: if
    /// all are the same, the file has the trace's content.
    pub(super) fn retrace(
        &self,
        source: &Source<'_>,
        trace: &Content,
        parts: &PartSender,
    ) -> Result<bool, Abandoned> {
        let size = source.stat.size;
        let mut windows = Windows::new(&source.handle, 0..size);
        let mut ahead = Ahead::new(trace);
        let differs = Arc::new(AtomicBool::new(false));
        let mut at = 0;
        while at < size && !differs.load(Relaxed) {
            // One that cannot be read leads nowhere.
            let Ok(Some(chunks)) = self.traces.follow(&mut ahead) else {
                return Ok(false);
            };
            let bytes: u64 = chunks.iter().map(|chunk| u64::from(chunk.len)).sum();
            if bytes > size - at {
                return Ok(false);
            }
            let Some(view) = windows.view(at, bytes as usize, 0) else {
                return Ok(false);
            };
            let (done, stretch) = slot();
            parts.maps();
            parts.send(LargePart::Segment(stretch, bytes as usize))?;
            let task = Task::Retrace(Stretch {
                view,
                bytes: bytes as usize,
                chunks,
                differs: differs.clone(),
                done,
            });
            self.queues.cached.send(task).map_err(|_| Abandoned)?;
            at += bytes;
        }
        let is_whole = at == size && ahead.peek().is_none();
        if is_whole {
            parts.sent();
        }
        Ok(is_whole)
    }
}

impl Worker<'_> {
    /// Verifies a stretch.
    pub(super) fn retrace(&self, stretch: Stretch) {
        let Stretch {
            view,
            bytes,
            chunks,
            differs,
            done,
        } = stretch;
        let is_there = view.populate(bytes);
        let seen = &view.window[view.start..][..bytes];
        let is_same = is_there
            && self.turns.with(|| {
                let lengths = chunks.iter().map(|chunk| chunk.len);
                let found = self.fingerprinter.fingerprints(pieces(seen, lengths));
                chunks.iter().map(|chunk| chunk.fingerprint).eq(found)
            });
        if !is_same {
            differs.store(true, Relaxed);
        }
        // Whoever waited for it gave up.
        let _ = done.send(Done::Retraced(Retraced {
            held: Arc::new(Held::Window(view.window)),
            bytes,
            is_same,
        }));
    }
}
