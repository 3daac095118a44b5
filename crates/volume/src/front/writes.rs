//! Writes, discards and zeroing up to staging: pages are set aside, a sequence number is given, the answer is given or
//! put off.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::Ack;
use super::ack::WriteAck;
use super::batcher::{Discard, FrontTask};
use super::split::Span;
use super::staging::{Staged, StagedRun};
use super::state::{FrontShared, FrontState, give};
use crate::{Buffer, ChunkRead, Completion, Error, HeadId, Hints, Lbn, Result};

/// Discards that wait for the engine, at most: each has to be looked at by partial writes.
const DISCARDS_MAX: usize = 1024;

/// Whole chunks that are to be staged, and who is to be told.
struct NewRun {
    head: HeadId,
    first_lbn: u64,
    buffer: Buffer,
    hints: Hints,
    fua: bool,
    completion: Completion,
}

impl FrontShared {
    /// Whether a write of so many bytes can be staged without waiting. One that is longer than staging can when nothing
    /// else is there.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.lock().has_room(bytes, self.options.staging_bytes)
    }

    /// Takes a write of any alignment, of at least one byte.
    pub fn write(
        self: &Arc<Self>,
        head: HeadId,
        span: Span,
        buffer: Buffer,
        hints: Hints,
        fua: bool,
        completion: Completion,
    ) {
        self.counters.write(span.bytes);
        let run = NewRun {
            head,
            first_lbn: span.touched().start,
            buffer,
            hints,
            fua,
            completion,
        };
        if span.is_aligned() {
            self.stage_when_there_is_room(run)
        } else {
            self.write_partial(run, span)
        }
    }

    fn stage_when_there_is_room(self: &Arc<Self>, run: NewRun) {
        let mut state = self.lock();
        match self.wait_for_room(&mut state, run.buffer.len()) {
            Ok(()) => self.stage(state, run),
            Err(error) => {
                drop(state);
                run.completion.done(Err(error));
            }
        }
    }

    fn wait_for_room(&self, state: &mut MutexGuard<'_, FrontState>, bytes: usize) -> Result<()> {
        state.check()?;
        while !state.has_room(bytes, self.options.staging_bytes) {
            self.wait(state)?;
        }
        if self.is_stopped() {
            Err(Error::Closing)
        } else {
            Ok(())
        }
    }

    /// Stages whole chunks, and answers as soon as may be.
    fn stage(self: &Arc<Self>, mut state: MutexGuard<'_, FrontState>, new: NewRun) {
        let chunks = new.buffer.len() / self.chunk_bytes as usize;
        let has_pages = state.pages.claim(chunks as u64, new.hints.metadata);
        let is_put_off = !has_pages || self.options.ack == Ack::Written;
        let mut completion = Some(new.completion);
        let ack = completion.take_if(|_| is_put_off).map(|completion| {
            let completion = if new.fua {
                self.then_flush(completion)
            } else {
                completion
            };
            Arc::new(WriteAck::new(completion, Buffer::zeroed(0), chunks))
        });
        let run = Arc::new(StagedRun {
            head: new.head,
            first_lbn: new.first_lbn,
            chunk_bytes: self.chunk_bytes as usize,
            buffer: new.buffer,
            hints: new.hints,
            has_pages,
            ack,
        });
        let first_sequence = state.staged + 1;
        state.staged += chunks as u64;
        state.partials.touch(new.head, run.lbns());
        let overtaken = state.held.overtaken_by(&run);
        state.staging.put(&run, first_sequence);
        state.queued_chunks += chunks;
        state.queue.push_back(FrontTask::Write {
            run,
            chunks: 0..chunks,
            first_sequence,
            held_until: None,
        });
        if new.fua
            && let Some(completion) = completion.take()
        {
            let after = state.staged;
            state.flushes.add(after, completion, Buffer::zeroed(0));
        }
        drop(state);
        self.wake_worker();
        give(overtaken);
        match completion {
            Some(completion) => completion.done(Ok(Buffer::zeroed(0))),
            None if self.options.inline => self.work_until_idle(),
            None => {}
        }
    }

    /// An answer that waits for a commit besides.
    fn then_flush(self: &Arc<Self>, completion: Completion) -> Completion {
        let shared = Arc::clone(self);
        Completion::new(move |result| match result {
            Ok(buffer) => shared.flush(completion, buffer),
            Err(error) => completion.done(Err(error)),
        })
    }

    /// A write of which the first or last chunk is partial: reads the rest of these chunks, merges, and stages all.
    fn write_partial(self: &Arc<Self>, mut new: NewRun, span: Span) {
        let edges: Vec<u64> = span.edges().collect();
        let mut state = self.lock();
        if let Err(error) = self.lock_lbns(&mut state, new.head, &edges) {
            drop(state);
            return new.completion.done(Err(error));
        }
        let touched = span.touched();
        let bytes = (touched.end - touched.start) as usize * self.chunk_bytes as usize;
        let written = std::mem::replace(&mut new.buffer, Buffer::zeroed(bytes));
        let skip = (span.offset - touched.start * span.chunk_bytes) as usize;
        loop {
            let bases: Vec<Option<Staged>> = edges
                .iter()
                .map(|lbn| state.staging.get(new.head, *lbn).cloned())
                .collect();
            let merged = MutexGuard::unlocked(&mut state, || {
                self.read_edges(&mut new, touched.start, &edges, &bases)?;
                new.buffer[skip..skip + written.len()].copy_from_slice(&written);
                Ok(())
            });
            let is_ready = merged.and_then(|()| {
                self.wait_for_room(&mut state, bytes)?;
                while state.partials.are_discarded(new.head, &edges) {
                    self.wait(&mut state)?;
                }
                Ok(state.partials.are_unchanged(new.head, &edges)
                    && state.has_room(bytes, self.options.staging_bytes))
            });
            match is_ready {
                Ok(false) => {}
                Ok(true) => {
                    self.counters.read_on_write(edges.len() as u64);
                    state.partials.unlock(new.head, &edges);
                    self.stage(state, new);
                    break self.wake_waiting();
                }
                Err(error) => {
                    state.partials.unlock(new.head, &edges);
                    drop(state);
                    self.wake_waiting();
                    break new.completion.done(Err(error));
                }
            }
        }
    }

    /// Fills the partial chunks of a run with what they hold so far.
    fn read_edges(
        &self,
        new: &mut NewRun,
        first_lbn: u64,
        edges: &[u64],
        bases: &[Option<Staged>],
    ) -> Result<()> {
        let mut reads = Vec::new();
        let chunks = new.buffer.chunks_exact_mut(self.chunk_bytes as usize);
        for (buffer, lbn) in chunks.zip(first_lbn..) {
            let Some(at) = edges.iter().position(|edge| *edge == lbn) else {
                continue;
            };
            match &bases[at] {
                Some(staged) => buffer.copy_from_slice(staged.bytes()),
                None => reads.push(ChunkRead {
                    lbn: Lbn(lbn),
                    buffer,
                }),
            }
        }
        if reads.is_empty() {
            Ok(())
        } else {
            self.reader.read(new.head, &mut reads)
        }
    }

    /// Takes a discard of whole chunks. It is answered when the engine has it.
    pub fn discard(
        self: &Arc<Self>,
        head: HeadId,
        lbns: Range<u64>,
        buffer: Buffer,
        fua: bool,
        completion: Completion,
    ) {
        self.counters.discard();
        let completion = if fua {
            self.then_flush(completion)
        } else {
            completion
        };
        if lbns.is_empty() {
            return completion.done(Ok(buffer));
        }
        let ack = WriteAck::new(completion, buffer, 1);
        self.queue_discard(head, lbns, Arc::new(ack));
    }

    /// Takes a zeroing: whole chunks are unmapped, the edges are written.
    pub fn write_zeroes(
        self: &Arc<Self>,
        head: HeadId,
        span: Span,
        buffer: Buffer,
        hints: Hints,
        fua: bool,
        completion: Completion,
    ) {
        self.counters.zeroing();
        let completion = if fua {
            self.then_flush(completion)
        } else {
            completion
        };
        let edges: Vec<u64> = span.edges().collect();
        let whole = span.whole();
        let parts = edges.len() + usize::from(!whole.is_empty());
        let ack = Arc::new(WriteAck::new(completion, buffer, parts));
        for lbn in edges {
            let ack = Arc::clone(&ack);
            let told = Completion::new(move |result| {
                if let Some(answer) = ack.done(1, result.map(drop)) {
                    answer.give();
                }
            });
            let within = span.within(lbn);
            let offset = lbn * span.chunk_bytes + within.start as u64;
            let part = self.span(offset, within.len() as u64);
            self.write(head, part, Buffer::zeroed(within.len()), hints, false, told);
        }
        if !whole.is_empty() {
            self.queue_discard(head, whole, ack);
        }
    }

    fn queue_discard(&self, head: HeadId, lbns: Range<u64>, ack: Arc<WriteAck>) {
        let mut state = self.lock();
        let mut is_ready = state.check();
        while is_ready.is_ok() && state.partials.discards() >= DISCARDS_MAX {
            is_ready = self.wait(&mut state);
        }
        if is_ready.is_ok() && self.is_stopped() {
            is_ready = Err(Error::Closing);
        }
        if is_ready.is_err() {
            drop(state);
            let answer = ack.done(1, is_ready);
            return answer.into_iter().for_each(super::ack::Answer::give);
        }
        state.staged += 1;
        let sequence = state.staged;
        state.partials.add_discard(sequence, head, lbns.clone());
        state.queue.push_back(FrontTask::Discard(Discard {
            head,
            lbns,
            sequence,
            ack,
        }));
        drop(state);
        self.wake_worker();
        if self.options.inline {
            self.work_until_idle();
        }
    }
}

impl FrontState {
    fn has_room(&self, bytes: usize, max: usize) -> bool {
        let staged = self.staging.bytes();
        staged == 0 || staged + bytes <= max
    }
}
