//! Retracing: a large file that looks like one in a snapshot is digested, instead of being cut, fingerprinted and
//! looked up. Where the snapshot has no digest of the file, and the file lies in the page cache, it is fingerprinted
//! along the snapshot's cuts.
//!
//! Invariant: all of the file's data is read, and has the trace's digest or, where the trace has none, each
//! chunk has the trace's fingerprint; and its holes are where the trace has them. So the content that is kept is the
//! file's. The file begins anew ([`PartSender::settle`]) and is cut as any other at the first chunk or hole that
//! differs, at the first chunk in a container that the session does not vouch for, or at the end if the digest differs.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crossbeam_channel::Sender;
use onefold_store::{ChunkRef, digest};

use super::buffers::{LONG_SEGMENT_BYTES, SegmentBytes};
use super::parts::{LargePart, PartSender};
use super::read::{Cached, Source};
use super::segment::{Bytes, Got, SegmentResult, Task, Worker, slot};
use super::source::{Abandoned, Reader, pieces};
use super::traces::{Hint, TRACED_BYTES_MIN};
use super::windows::Windows;
use crate::content::ContentCursor;
use crate::{Content, Item};

/// A stretch of a file that a worker verifies.
pub struct Stretch {
    bytes: Bytes,
    len: usize,
    proof: Proof,
    /// Set once some stretch of the file differs from the trace.
    differs: Arc<AtomicBool>,
    done: Sender<SegmentResult>,
}

/// The means to verify a stretch against the trace.
enum Proof {
    /// Chunks, one after another, whose fingerprints the stretch must have.
    Chunks(Vec<ChunkRef>),
    /// The digest of the whole file.
    Digest,
}

/// A stretch after it was verified.
pub struct Retraced {
    /// Window that the bytes were seen in, if it may turn out to be torn.
    pub window: Option<Arc<SegmentBytes>>,
    pub len: usize,
    pub found: StretchResult,
}

/// Result of verifying a stretch.
pub enum StretchResult {
    /// The stretch is what the trace says, or adds this part to the file's digest.
    Same(Option<digest::Part>),
    /// The stretch differs from the trace, or is gone.
    Other,
}

/// A trace that is followed through a file, and how far.
struct Followed<'a> {
    source: &'a Source<'a>,
    parts: &'a PartSender,
    trace: ContentCursor,
    has_digest: bool,
    differs: Arc<AtomicBool>,
    /// Bytes of the file that are sent.
    at: u64,
    /// Bytes of data that were passed in the trace.
    passed: u64,
}

impl Reader<'_> {
    /// Finds a trace to follow through this file.
    pub(super) fn trace(&self, name: &[u8], source: &Source<'_>, hint: Hint) -> Option<Content> {
        if source.stat.size < TRACED_BYTES_MIN || !self.traces.is_followed() {
            return None;
        }
        // For a file on the disk only a digest takes less time than cutting it.
        let is_cached = source.is_nearly_cached();
        if !is_cached && !self.traces.may_have_digests() {
            return None;
        }
        let trace = match hint {
            Hint::Same(content) => content,
            // To read a file on the disk twice takes longer than to cut it.
            Hint::Touched(content) => Some(content).filter(|_| is_cached)?,
            Hint::Nothing => {
                let data_bytes = source.data_bytes_max();
                let looks = (&source.stat).into();
                (self.traces).find(looks, data_bytes, name, self.progress)?
            }
            Hint::Lost => return None,
        };
        let is_of_use = is_cached || trace.digest.is_some();
        let mut spans = trace.items.iter().map(Item::span);
        let spans = spans.try_fold(0u64, u64::checked_add);
        (is_of_use && spans == Some(source.stat.size)).then_some(trace)
    }

    /// Sends the file's stretches along `trace`; returns whether the trace led to the file's end. The store receives
    /// the result of each: if all are the same, the file has the trace's content.
    pub(super) fn retrace(
        &self,
        source: &Source<'_>,
        trace: &Content,
        parts: &PartSender,
    ) -> Result<bool, Abandoned> {
        let mut followed = Followed {
            source,
            parts,
            trace: ContentCursor::new(trace),
            has_digest: trace.digest.is_some(),
            differs: Arc::default(),
            at: 0,
            passed: 0,
        };
        while followed.at < source.stat.size {
            let Ok(data) = source.run_from(followed.at) else {
                return Ok(false);
            };
            // Two runs of data without a hole between them mean that there was a hole when the first one's end was
            // asked for.
            let is_there = match data.start > followed.at {
                true => self.pass_hole(&mut followed, data.start)?,
                false => followed.at == 0,
            };
            if !is_there || !self.retrace_run(&mut followed, data)? {
                return Ok(false);
            }
        }
        // The place in the queue is not marked as sent yet: files behind this one leave it the room to begin anew.
        Ok(self.vouch(&mut followed) && followed.trace.peek().is_none())
    }

    /// Sends a hole that reaches up to `end`; returns whether the trace has the same hole.
    fn pass_hole(&self, followed: &mut Followed<'_>, end: u64) -> Result<bool, Abandoned> {
        let len = end - followed.at;
        let is_there = self.vouch(followed)
            && followed.passed == followed.at
            && (self.traces.pass_hole(&mut followed.trace, len)).unwrap_or(false);
        if is_there {
            followed.parts.send(LargePart::TracedHole(len))?;
            (followed.at, followed.passed) = (end, end);
        }
        Ok(is_there)
    }

    /// Sends the stretches of a run of data without holes; returns whether the trace led to its end.
    fn retrace_run(
        &self,
        followed: &mut Followed<'_>,
        data: Range<u64>,
    ) -> Result<bool, Abandoned> {
        let mut windows = Windows::new(&followed.source.handle, data.clone());
        while followed.at < data.end {
            let left = data.end - followed.at;
            let next = match followed.has_digest {
                true => self.digested(followed, left),
                false => self.fingerprinted(followed),
            };
            let next = next.filter(|(_, len)| *len as u64 <= left);
            let Some((proof, len)) = next.filter(|_| !followed.differs.load(Relaxed)) else {
                return Ok(false);
            };
            let Some((bytes, queue)) = self.place(&mut windows, followed.at, len, &proof) else {
                return Ok(false);
            };
            let (done, stretch) = slot();
            let taken = match bytes {
                Bytes::Mapped(_) => {
                    followed.parts.maps();
                    len
                }
                _ => self.buffers.segment_bytes(len),
            };
            followed.parts.send(LargePart::Segment(stretch, taken))?;
            let task = Task::Retrace(Stretch {
                bytes,
                len,
                proof,
                differs: followed.differs.clone(),
                done,
            });
            queue.send(task).map_err(|_| Abandoned)?;
            followed.at += len as u64;
        }
        Ok(true)
    }

    /// Returns the next stretch of a file whose digest is known, with `left` bytes of data left.
    fn digested(&self, followed: &mut Followed<'_>, left: u64) -> Option<(Proof, usize)> {
        // The trace is read on while workers digest the stretches that were sent.
        let len = left.min(LONG_SEGMENT_BYTES as u64) as usize;
        self.vouch(followed).then_some((Proof::Digest, len))
    }

    /// Whether all chunks that the trace has of the sent bytes can be counted on. A trace that cannot be read cannot
    /// be.
    fn vouch(&self, followed: &mut Followed<'_>) -> bool {
        let Followed {
            trace, at, passed, ..
        } = followed;
        self.traces.vouch(trace, passed, *at).unwrap_or(false)
    }

    /// Returns the next stretch of a file where only the fingerprints of chunks are known.
    fn fingerprinted(&self, followed: &mut Followed<'_>) -> Option<(Proof, usize)> {
        let chunks = self.traces.follow(&mut followed.trace).ok()??;
        let len = chunks.iter().map(|chunk| chunk.len as usize).sum();
        followed.passed += len as u64;
        Some((Proof::Chunks(chunks), len))
    }

    /// Returns where the stretch's bytes are, and the queue for it; `None` where it would have to be mapped and cannot
    /// be.
    fn place<'q>(
        &'q self,
        windows: &mut Windows<'_>,
        at: u64,
        len: usize,
        proof: &Proof,
    ) -> Option<(Bytes, &'q Sender<Task>)> {
        let file = windows.file.clone();
        let cached = match proof {
            // Nearly all of a file that is fingerprinted along its cuts is cached.
            Proof::Chunks(_) => Some(Cached::Whole),
            Proof::Digest => file.cached(at, len),
        };
        let mapped = (cached == Some(Cached::Whole)).then(|| windows.view(at, len, 0));
        match (mapped.flatten(), cached, proof) {
            (Some(view), ..) => Some((Bytes::Mapped(view), &self.queues.cached)),
            (None, _, Proof::Chunks(_)) => None,
            (None, Some(Cached::Whole | Cached::Mostly), _) => {
                Some((Bytes::At(file, at, false), &self.queues.cached))
            }
            (None, cached, _) => Some((Bytes::At(file, at, cached.is_some()), &self.queues.cold)),
        }
    }
}

impl Worker<'_> {
    /// Verifies a stretch.
    pub(super) fn retrace(&self, stretch: Stretch) {
        let Stretch {
            bytes,
            len,
            proof,
            differs,
            done,
        } = stretch;
        let got = match bytes {
            // A stretch of long chunks may be longer than any buffer, so it is not read. Bytes that vanished count as
            // changed.
            Bytes::Mapped(view) => Got::mapped(view, len).ok(),
            bytes => {
                let (got, filled) = self.get(bytes, len);
                (filled == Ok(len)).then_some(got)
            }
        };
        let found = got.as_ref().map_or(StretchResult::Other, |got| {
            let seen = &got.held[got.fresh..][..len];
            self.turns.with(|| self.prove(seen, &proof))
        });
        if matches!(found, StretchResult::Other) {
            differs.store(true, Relaxed);
        }
        let mut window = got.map(|got| Arc::new(got.held));
        if let Some(buffer) = window.take_if(|held| held.is_steady()) {
            self.buffers.put(buffer);
        }
        // The receiver may have given up.
        let _ = done.send(SegmentResult::Retraced(Retraced { window, len, found }));
    }

    fn prove(&self, seen: &[u8], proof: &Proof) -> StretchResult {
        match proof {
            Proof::Chunks(chunks) => {
                let lengths = chunks.iter().map(|chunk| chunk.len);
                let found = self.fingerprinter.fingerprints(pieces(seen, lengths));
                match chunks.iter().map(|chunk| chunk.fingerprint).eq(found) {
                    true => StretchResult::Same(None),
                    false => StretchResult::Other,
                }
            }
            Proof::Digest => match &self.digester {
                Some(digester) => StretchResult::Same(Some(digester.part(seen))),
                None => StretchResult::Other,
            },
        }
    }
}

#[cfg(test)]
mod tests;
