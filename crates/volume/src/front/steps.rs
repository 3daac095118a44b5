//! The stages behind staging, one step at a time: commit for flushes, bring the next batch to the engine, hash a batch.

use parking_lot::MutexGuard;

use super::ack::Answer;
use super::batcher::{Batch, BatchChunk, Discard};
use super::failure::fail_batch;
use super::state::{Shared, State, give};
use crate::{Effort, Engine, Error, Result};

impl Shared {
    /// Does one piece of work. `false`: there is none now.
    pub fn step(&self) -> bool {
        let mut state = self.lock();
        if state.failure.is_some() {
            return false;
        }
        if !state.is_engine_busy {
            let written = state.written;
            if state.flushes.is_due(written) {
                state.is_engine_busy = true;
                self.commit_step(state);
                return true;
            }
            let number = state.next_for_engine;
            if let Some(batch) = state.hashed.remove(&number) {
                state.next_for_engine += 1;
                state.is_engine_busy = true;
                self.engine_step(state, batch);
                return true;
            }
        }
        let had_tasks = !state.queue.is_empty();
        let Some((number, mut batch)) = state.take_batch() else {
            // A discard may have taken its place in the order.
            return had_tasks;
        };
        let is_more = !state.queue.is_empty();
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
            give(fail_batch(&Batch::Write(batch), &error));
            return true;
        }
        state.hashed.insert(number, Batch::Write(batch));
        true
    }

    /// Whether [`step`](Self::step) would find something.
    pub fn has_work(&self, state: &State) -> bool {
        let for_engine = || {
            state.flushes.is_due(state.written) || state.hashed.contains_key(&state.next_for_engine)
        };
        state.failure.is_none()
            && (!state.queue.is_empty() || !state.is_engine_busy && for_engine())
    }

    pub fn work_until_idle(&self) {
        while self.step() {}
    }

    fn engine_step(&self, state: MutexGuard<'_, State>, batch: Batch) {
        drop(state);
        let mut guard = self.engine();
        let Some(engine) = guard.as_mut() else {
            drop(guard);
            return give(fail_batch(&batch, &Error::Closing));
        };
        let answers = match batch {
            Batch::Write(chunks) => self.write_batch(&mut **engine, chunks),
            Batch::Discard(discard) => self.discard_batch(&mut **engine, discard),
        };
        drop(guard);
        self.wake_waiting();
        self.wake_worker();
        give(answers);
    }

    /// Writes a batch. Where pages lack, it goes chunk by chunk: what the first ones overwrite may be collected for the
    /// next ones.
    fn write_batch(&self, engine: &mut dyn Engine, chunks: Vec<BatchChunk>) -> Vec<Answer> {
        let mut answers = Vec::new();
        let mut rest = chunks;
        let result = loop {
            let count = match self.find_pages(engine, &mut rest) {
                Ok(count) => count,
                Err(error) => break Err((rest, error)),
            };
            let later = rest.split_off(count);
            match write_chunks(engine, &rest) {
                Ok(refused) => answers.extend(self.end_write(engine, &rest, &refused)),
                Err(error) => {
                    rest.extend(later);
                    break Err((rest, error));
                }
            }
            rest = later;
            if rest.is_empty() {
                break Ok(());
            }
        };
        match result {
            Ok(()) => self.lock().is_engine_busy = false,
            Err((rest, error)) => answers.extend(self.fail_with(&Batch::Write(rest), &error)),
        }
        answers
    }

    /// Sets pages aside for chunks that came when there were none, and returns how many of the first ones can be written
    /// together. Where garbage is left, it is collected first: such a write is slow, but does not fail.
    fn find_pages(&self, engine: &mut dyn Engine, chunks: &mut [BatchChunk]) -> Result<usize> {
        let count = self.claim_pages(chunks);
        if count > 0 {
            return Ok(count);
        }
        if engine.free_space().reclaimable > 0 {
            engine.collect(Effort::Whole)?;
            self.lock().pages.update(engine.free_space());
        }
        // Without a page a chunk is stored if its content is known, or zeros.
        Ok(self.claim_pages(chunks).max(1))
    }

    /// How many of the first chunks have a page each.
    fn claim_pages(&self, chunks: &mut [BatchChunk]) -> usize {
        let Some(lacking) = chunks.iter().position(|chunk| !chunk.has_page) else {
            return chunks.len();
        };
        let mut state = self.lock();
        let mut count = lacking;
        for chunk in &mut chunks[lacking..] {
            chunk.has_page = chunk.has_page || state.pages.claim(1, chunk.run.hints.metadata);
            if !chunk.has_page {
                break;
            }
            count += 1;
        }
        count
    }

    /// The engine has the batch, save what it refused.
    fn end_write(
        &self,
        engine: &dyn Engine,
        chunks: &[BatchChunk],
        refused: &[usize],
    ) -> Vec<Answer> {
        let mut answers = Vec::new();
        let mut state = self.lock();
        let mut refused = refused.iter().peekable();
        let mut broken = None;
        for (at, chunk) in chunks.iter().enumerate() {
            state
                .staging
                .remove(&chunk.run, chunk.index, chunk.sequence);
            state.pages.give_back(u64::from(chunk.has_page));
            let result = match refused.next_if(|refused| **refused == at) {
                Some(_) => Err(Error::NoSpace {
                    what: "no page is free, and no garbage is left that could be collected".into(),
                }),
                None => Ok(()),
            };
            match (&chunk.run.ack, result) {
                (Some(ack), result) => answers.extend(ack.done(1, result)),
                (None, Ok(())) => {}
                // It was acknowledged, and a page was promised.
                (None, Err(error)) => broken = Some(error),
            }
        }
        if let Some(error) = broken {
            answers.extend(state.fail(&error));
        }
        state.pages.update(engine.free_space());
        state.written = chunks.last().map_or(state.written, |chunk| chunk.sequence);
        answers
    }

    fn discard_batch(&self, engine: &mut dyn Engine, discard: Discard) -> Vec<Answer> {
        if let Err(error) = engine.discard(discard.head, discard.lbns.clone()) {
            return self.fail_with(&Batch::Discard(discard), &error);
        }
        let mut state = self.lock();
        state.partials.end_discard(discard.sequence);
        state.pages.update(engine.free_space());
        state.written = discard.sequence;
        state.is_engine_busy = false;
        drop(state);
        discard.ack.done(1, Ok(())).into_iter().collect()
    }

    fn fail_with(&self, batch: &Batch, error: &Error) -> Vec<Answer> {
        let mut answers = fail_batch(batch, error);
        let mut state = self.lock();
        answers.extend(state.fail(error));
        state.is_engine_busy = false;
        answers
    }
}

/// Writes chunks, and sees to it that they are on the device where somebody waits for that.
fn write_chunks(engine: &mut dyn Engine, chunks: &[BatchChunk]) -> Result<Vec<usize>> {
    let hashed: Vec<_> = chunks.iter().map(BatchChunk::as_hashed).collect();
    let refused = engine.write(&hashed)?;
    if chunks.iter().any(|chunk| chunk.run.ack.is_some()) {
        engine.write_out()?;
    }
    Ok(refused)
}
