//! Retracing: decides whether a large file is what an earlier snapshot says, before it is cut. Its bytes are digested,
//! instead of being cut, fingerprinted and looked up. Where the snapshot has no digest of the file, and the file is in
//! the page cache, it is fingerprinted along the snapshot's cuts.
//!
//! Invariant: all of the file's data is read, and has the trace's digest or, where the trace has none, each
//! chunk has the trace's fingerprint; and its holes are where the trace has them. So the content that is kept is the
//! file's. The answer is [`TraceVerdict::Other`] from the first chunk or hole on that differs, from the first chunk in
//! a container that the session does not vouch for, or at the end if the digest differs.
//!
//! Without this module (feature `retrace`) all large files are cut.

mod traces;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crossbeam_channel::{Receiver, Sender};
use onefold_store::{ChunkRef, digest};

use super::buffers::LONG_SEGMENT_BYTES;
use super::file_end::Abandoned;
use super::hint::{Hint, TraceVerdict};
use super::parts::PartSender;
use super::read::pieces;
use super::read::{Cached, Source};
use super::segment::{Bytes, Got, SegmentTask, Worker, slot};
use super::source::Reader;
use super::windows::{DIGESTED_BYTES_MIN, Windows};
use crate::content::ContentCursor;
use crate::{Content, Item, Progress};

pub use traces::Traces;

/// A stretch of a file that a worker verifies.
struct TraceStretch {
    bytes: Bytes,
    len: usize,
    proof: Proof,
    /// Set once some stretch of the file differs from the trace.
    differs: Arc<AtomicBool>,
    done: Sender<StretchResult>,
}

/// The means to verify a stretch against the trace.
enum Proof {
    /// Chunks, one after another, whose fingerprints the stretch must have.
    Chunks(Vec<ChunkRef>),
    /// The digest of the whole file.
    Digest,
}

/// Result of verifying a stretch.
enum StretchResult {
    /// The stretch is what the trace says, or adds this part to the file's digest.
    Same(Option<digest::Part>),
    /// The stretch differs from the trace, or is gone.
    Other,
}

/// A part of a file on its way through the workers.
enum Passed {
    /// The result of a stretch, the stretch's length, and the room that it takes, both in bytes.
    Stretch(Receiver<StretchResult>, usize, usize),
    /// A hole of this length, in bytes, where the trace has one, too.
    Hole(u64),
}

/// A trace that is followed through a file, and how far.
struct Followed<'a> {
    source: &'a Source<'a>,
    /// The file's room among the bytes of large files.
    parts: &'a PartSender,
    trace: ContentCursor,
    /// Digest of the bytes so far, if the trace has one.
    digest: Option<digest::InProgress>,
    differs: Arc<AtomicBool>,
    /// Parts that were passed and are not verified yet, in order.
    ahead: VecDeque<Passed>,
    /// Bytes of the file that were passed.
    at: u64,
    /// Bytes of data that were passed in the trace.
    passed: u64,
    /// Bytes of data that were verified.
    verified: u64,
}

impl Reader<'_> {
    /// Compares the file with what an earlier snapshot has of it.
    pub(super) fn compare(
        &self,
        name: &[u8],
        source: &Source<'_>,
        hint: Hint,
        parts: &PartSender,
    ) -> Result<TraceVerdict, Abandoned> {
        let Some(trace) = self.trace(name, source, hint) else {
            return Ok(TraceVerdict::Unknown);
        };
        let digester = self.traces.digester().filter(|_| trace.digest.is_some());
        let mut followed = Followed {
            source,
            parts,
            trace: ContentCursor::new(&trace),
            digest: digester.map(|digester| digester.begin()),
            differs: Arc::default(),
            ahead: VecDeque::new(),
            at: 0,
            passed: 0,
            verified: 0,
        };
        let leads_to_end = self.follow(&mut followed)?;
        while self.take_result(&mut followed) {}
        let digest = followed.digest.as_ref().map(digest::InProgress::finish);
        let is_same = leads_to_end
            && !followed.differs.load(Relaxed)
            && (digest.is_none() || digest == trace.digest)
            && source.changed() == Ok(false);
        if is_same {
            return Ok(TraceVerdict::Same(trace, followed.verified));
        }
        self.outlook.tell(0, true);
        self.traces.forget((&source.stat).into());
        let ahead = &self.progress.bytes_ahead;
        ahead.fetch_sub(followed.verified, Relaxed);
        Ok(TraceVerdict::Other(followed.verified))
    }

    /// Finds a trace to follow through this file.
    fn trace(&self, name: &[u8], source: &Source<'_>, hint: Hint) -> Option<Content> {
        if source.stat.size < DIGESTED_BYTES_MIN || !self.traces.is_followed() {
            return None;
        }
        // For a file on the disk only a digest takes less time than cutting it.
        let is_cached = source.is_nearly_cached();
        if !is_cached && self.traces.digester().is_none() {
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

    /// Gives the file's stretches to workers, along the trace; returns whether the trace led to the file's end.
    fn follow(&self, followed: &mut Followed<'_>) -> Result<bool, Abandoned> {
        while followed.at < followed.source.stat.size {
            let Ok(data) = followed.source.run_from(followed.at) else {
                return Ok(false);
            };
            // Two runs of data without a hole between them mean that there was a hole when the first one's end was
            // asked for.
            let is_there = if data.start > followed.at {
                self.pass_hole(followed, data.start)
            } else {
                followed.at == 0
            };
            if !is_there || !self.follow_run(followed, data)? {
                return Ok(false);
            }
        }
        Ok(self.vouch(followed) && followed.trace.peek().is_none())
    }

    /// Passes a hole that reaches up to `end`; returns whether the trace has the same hole.
    fn pass_hole(&self, followed: &mut Followed<'_>, end: u64) -> bool {
        let len = end - followed.at;
        let is_there = self.vouch(followed)
            && followed.passed == followed.at
            && (self.traces.pass_hole(&mut followed.trace, len)).unwrap_or(false);
        if is_there {
            followed.ahead.push_back(Passed::Hole(len));
            (followed.at, followed.passed) = (end, end);
        }
        is_there
    }

    /// Gives the stretches of a run of data without holes to workers; returns whether the trace led to its end.
    fn follow_run(&self, followed: &mut Followed<'_>, data: Range<u64>) -> Result<bool, Abandoned> {
        let mut windows = Windows::new(&followed.source.handle, data.clone());
        while followed.at < data.end {
            if self.progress.is_over() {
                return Err(Abandoned);
            }
            let left = data.end - followed.at;
            let next = if followed.digest.is_some() {
                self.digested(followed, left)
            } else {
                self.fingerprinted(followed)
            };
            let next = next.filter(|(_, len)| *len as u64 <= left);
            let Some((proof, len)) = next.filter(|_| !followed.differs.load(Relaxed)) else {
                return Ok(false);
            };
            let Some((bytes, queue)) = self.place(&mut windows, followed.at, len, &proof) else {
                return Ok(false);
            };
            let room = match bytes {
                Bytes::Mapped(_) => len,
                _ => self.buffers.segment_bytes(len),
            };
            self.make_room(followed, room)?;
            let (done, result) = slot();
            let stretch = TraceStretch {
                bytes,
                len,
                proof,
                differs: followed.differs.clone(),
                done,
            };
            let task = SegmentTask::Other(Box::new(move |worker| worker.retrace(stretch)));
            queue.send(task).map_err(|_| Abandoned)?;
            followed.ahead.push_back(Passed::Stretch(result, len, room));
            followed.at += len as u64;
        }
        Ok(true)
    }

    /// Takes `room` bytes of room among large files, and gives back what earlier stretches have where there is none.
    fn make_room(&self, followed: &mut Followed<'_>, room: usize) -> Result<(), Abandoned> {
        while !followed.parts.try_take(room) {
            if !self.take_result(followed) {
                return followed.parts.take(room);
            }
        }
        Ok(())
    }

    /// Waits for the first part that is not verified yet; returns `false` where there is none.
    fn take_result(&self, followed: &mut Followed<'_>) -> bool {
        let (result, len, room) = match followed.ahead.pop_front() {
            None => return false,
            Some(Passed::Hole(len)) => {
                followed.digest.iter_mut().for_each(|it| it.hole(len));
                return true;
            }
            Some(Passed::Stretch(result, len, room)) => (result.recv(), len as u64, room),
        };
        match result {
            Ok(StretchResult::Same(part)) => {
                if let (Some(digest), Some(part)) = (&mut followed.digest, part) {
                    digest.push(&part);
                }
                followed.verified += len;
                self.outlook.tell(len, false);
                Progress::add(&self.progress.bytes_moved, len);
                Progress::add(&self.progress.bytes_ahead, len);
            }
            // A worker that died gives no result: the scope that holds the threads reports it.
            Ok(StretchResult::Other) | Err(_) => followed.differs.store(true, Relaxed),
        }
        followed.parts.free(room);
        true
    }

    /// Returns the next stretch of a file whose digest is known, with `left` bytes of data left.
    fn digested(&self, followed: &mut Followed<'_>, left: u64) -> Option<(Proof, usize)> {
        // The trace is read on while workers digest the stretches that they have.
        let len = left.min(LONG_SEGMENT_BYTES as u64) as usize;
        self.vouch(followed).then_some((Proof::Digest, len))
    }

    /// Whether all chunks that the trace has of the bytes up to `at` can be counted on. A trace that cannot be read
    /// cannot be.
    fn vouch(&self, followed: &mut Followed<'_>) -> bool {
        let Followed {
            trace, at, passed, ..
        } = followed;
        self.traces.vouch(trace, passed, *at).unwrap_or(false)
    }

    /// Returns the next stretch of a file where only the fingerprints of chunks are known.
    fn fingerprinted(&self, followed: &mut Followed<'_>) -> Option<(Proof, usize)> {
        let chunks = (self.traces.follow(&mut followed.trace, LONG_SEGMENT_BYTES)).ok()??;
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
    ) -> Option<(Bytes, &'q Sender<SegmentTask>)> {
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
    fn retrace(&self, stretch: TraceStretch) {
        let TraceStretch {
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
        let mut found = got.as_ref().map_or(StretchResult::Other, |got| {
            let seen = &got.held[got.fresh..][..len];
            self.turns.with(|| self.prove(seen, &proof))
        });
        if let Some(got) = got {
            // The bytes of a torn window need not be the file's.
            if got.held.is_torn() {
                found = StretchResult::Other;
            }
            self.buffers.put(Arc::new(got.held));
        }
        if matches!(found, StretchResult::Other) {
            differs.store(true, Relaxed);
        }
        // The receiver may have given up.
        let _ = done.send(found);
    }

    fn prove(&self, seen: &[u8], proof: &Proof) -> StretchResult {
        match proof {
            Proof::Chunks(chunks) => {
                let lengths = chunks.iter().map(|chunk| chunk.len);
                let found = self.fingerprinter.fingerprints(pieces(seen, lengths));
                if chunks.iter().map(|chunk| chunk.fingerprint).eq(found) {
                    StretchResult::Same(None)
                } else {
                    StretchResult::Other
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
