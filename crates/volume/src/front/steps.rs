//! The stages behind staging, one step at a time: commit for flushes, bring the next batch to the engine, hash a batch.

use parking_lot::MutexGuard;

use super::ack::Answer;
use super::batcher::{BatchChunk, Discard, EngineBatch};
use super::failure::fail_batch;
use super::settle::Served;
use super::state::{FrontShared, FrontState, give};
use crate::{Effort, Error, Result};

impl FrontShared {
    /// Does one piece of work. `false`: there is none now.
    pub fn step(&self) -> bool {
        let did_something = self.try_step();
        if did_something {
            self.lock().steps += 1;
        }
        did_something
    }

    fn try_step(&self) -> bool {
        let mut state = self.lock();
        if state.failure.is_some() {
            return false;
        }
        if self.has_held_work(&state) {
            self.retry_held(state);
            return true;
        }
        if !state.is_engine_busy {
            if state.flushes.is_due(state.given) {
                state.is_engine_busy = true;
                self.commit_step(state);
                return true;
            }
            if let Some(batch) = state.take_hashed() {
                state.is_engine_busy = true;
                if state.has_batch() {
                    // Somebody else hashes meanwhile.
                    self.wake_worker();
                }
                self.engine_step(state, batch);
                return true;
            }
        }
        if !state.has_batch() {
            return false;
        }
        let Some((number, mut batch)) = state.take_batch() else {
            // Discards alone, which have taken their place in the order.
            return true;
        };
        let is_more = state.has_batch();
        drop(state);
        if is_more {
            self.wake_worker();
        }
        self.counters.batch(batch.len() as u64);
        self.hash(&mut batch);
        let mut state = self.lock();
        if state.failure.is_some() {
            let error = state.failure.clone().unwrap_or(Error::Closing);
            drop(state);
            give(fail_batch(&EngineBatch::Write(batch), &error));
            return true;
        }
        state.hashed.insert(number, EngineBatch::Write(batch));
        true
    }

    /// Whether [`step`](Self::step) would find something.
    pub fn has_work(&self, state: &FrontState) -> bool {
        let for_engine = || {
            state.flushes.is_due(state.given) || state.hashed.contains_key(&state.next_for_engine)
        };
        state.failure.is_none()
            && (state.has_batch()
                || !state.is_engine_busy && for_engine()
                || self.has_held_work(state))
    }

    pub fn work_until_idle(&self) {
        while self.step() {}
    }

    fn engine_step(&self, state: MutexGuard<'_, FrontState>, batch: EngineBatch) {
        drop(state);
        let mut guard = self.engine();
        let Some(served) = guard.as_mut() else {
            drop(guard);
            return give(fail_batch(&batch, &Error::Closing));
        };
        let mut answers = match batch {
            EngineBatch::Write(chunks) => self.write_batch(served, chunks),
            EngineBatch::Discard(discard) => self.discard_batch(served, discard),
        };
        answers.extend(self.settle_if_idle(served));
        if let Err(error) = self.collect_at_pace(served) {
            answers.extend(self.fail_with(served, &EngineBatch::Write(Vec::new()), &error));
        }
        self.lock().is_engine_busy = false;
        drop(guard);
        self.wake_waiting();
        self.wake_worker();
        give(answers);
    }

    /// Writes a batch. Where pages lack, it goes chunk by chunk: what the first ones overwrite may be collected for the
    /// next ones.
    fn write_batch(&self, served: &mut Served, chunks: Vec<BatchChunk>) -> Vec<Answer> {
        let mut answers = Vec::new();
        let mut rest = chunks;
        while !rest.is_empty() {
            let given = self.find_pages(served, &mut rest).and_then(|count| {
                let later = rest.split_off(count);
                let now = std::mem::replace(&mut rest, later);
                let hashed: Vec<_> = now.iter().map(BatchChunk::as_hashed).collect();
                let is_waited_for = now.iter().any(|chunk| chunk.run.ack.is_some());
                let written = served.engine.write(&hashed).and_then(|refused| {
                    if is_waited_for {
                        served.engine.write_out()?;
                    }
                    Ok(refused)
                });
                drop(hashed);
                match written {
                    Ok(refused) => Ok(self.given(served, now, &refused)),
                    Err(error) => {
                        rest.splice(0..0, now);
                        Err(error)
                    }
                }
            });
            match given {
                Ok(given) => answers.extend(given),
                Err(error) => {
                    answers.extend(self.fail_with(served, &EngineBatch::Write(rest), &error));
                    break;
                }
            }
        }
        answers
    }

    /// Sets pages aside for chunks that came when there were none, and returns how many of the first ones can be
    /// written together. Where garbage is left, it is collected first: such a write is slow, but does not fail.
    fn find_pages(&self, served: &mut Served, chunks: &mut [BatchChunk]) -> Result<usize> {
        let count = self.claim_pages(chunks);
        if count > 0 {
            return Ok(count);
        }
        // Pages that earlier chunks overwrote are known to be garbage once these chunks are written.
        served.engine.write_out()?;
        self.lock().pages.update(served.engine.free_space());
        let is_metadata = chunks.first().is_some_and(|chunk| self.is_metadata(chunk));
        let mut count = self.claim_pages(chunks);
        while count == 0 && self.lock().pages.has_garbage(is_metadata) {
            let collected = self.collect(served, Effort::Step)?;
            count = self.claim_pages(chunks);
            if collected.pages_freed == 0 {
                break;
            }
        }
        // Without a page a chunk is stored if its content is known, or zeros.
        Ok(count.max(1))
    }

    /// How many of the first chunks have a page each. Metadata of file systems may use the reserve, also where only its
    /// place or its bytes tell that it is some.
    fn claim_pages(&self, chunks: &mut [BatchChunk]) -> usize {
        let lacks_page = |chunk: &mut BatchChunk| {
            !chunk.has_page && {
                chunk.has_page = self.lock().pages.claim(1, chunk.run.hints.metadata)
                    || self.is_metadata(chunk) && self.lock().pages.claim(1, true);
                !chunk.has_page
            }
        };
        chunks
            .iter_mut()
            .position(lacks_page)
            .unwrap_or(chunks.len())
    }

    fn discard_batch(&self, served: &mut Served, discard: Discard) -> Vec<Answer> {
        let discarded = match served.engine.discard(discard.head, discard.lbns.clone()) {
            // Nothing was unmapped, and nothing is broken.
            Err(error @ Error::NoSpace { .. }) => Err(error),
            Err(error) => return self.fail_with(served, &EngineBatch::Discard(discard), &error),
            Ok(()) => Ok(()),
        };
        let mut answers = self.settle(served);
        let mut state = self.lock();
        state.held.news();
        state.pages.news();
        state.partials.end_discard(discard.sequence);
        state.pages.update(served.engine.free_space());
        state.given = discard.sequence;
        state.written = discard.sequence;
        drop(state);
        answers.extend(discard.ack.done(1, discarded));
        answers
    }

    /// Everybody who waits for the batch, for what is not settled, or for anything behind them, gets the error.
    pub fn fail_with(
        &self,
        served: &mut Served,
        batch: &EngineBatch,
        error: &Error,
    ) -> Vec<Answer> {
        let mut answers = self.lock().fail(error);
        answers.extend(served.fail_unsettled(error));
        answers.extend(fail_batch(batch, error));
        answers
    }
}
