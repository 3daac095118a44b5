//! Batches that the engine was given and that cannot be read there yet: until they can, their chunks stay in staging.

use std::collections::VecDeque;

use super::ack::Answer;
use super::batcher::{BatchChunk, EngineBatch};
use super::failure::fail_batch;
use super::held::no_page;
use super::state::FrontShared;
use crate::{Engine, Error};

/// The engine, with what it was given and has not settled.
pub(super) struct Served {
    pub engine: Box<dyn Engine>,
    /// One for each call of `write`, in order; chunks that were refused are left out.
    unsettled: VecDeque<Vec<BatchChunk>>,
}

impl Served {
    pub fn new(engine: Box<dyn Engine>) -> Self {
        Self {
            engine,
            unsettled: VecDeque::new(),
        }
    }

    /// Answers for everybody who waits for a batch that is not settled. Its chunks stay in staging.
    pub fn fail_unsettled(&mut self, error: &Error) -> Vec<Answer> {
        let batches = std::mem::take(&mut self.unsettled);
        let answers = batches
            .into_iter()
            .map(|chunks| fail_batch(&EngineBatch::Write(chunks), error));
        answers.flatten().collect()
    }
}

impl FrontShared {
    /// The engine took these chunks, save what it refused: of that nothing is left, and who wrote it is told.
    pub fn given(
        &self,
        served: &mut Served,
        chunks: Vec<BatchChunk>,
        refused: &[usize],
    ) -> Vec<Answer> {
        let mut answers = Vec::new();
        let mut kept = Vec::with_capacity(chunks.len());
        let mut refused = refused.iter().peekable();
        let mut broken = None;
        let mut state = self.lock();
        state.given = chunks.last().map_or(state.given, |chunk| chunk.sequence);
        for (at, chunk) in chunks.into_iter().enumerate() {
            state.pages.give_back(u64::from(chunk.has_page));
            if refused.next_if(|refused| **refused == at).is_none() {
                kept.push(chunk);
                continue;
            }
            match &chunk.run.ack {
                Some(ack) => {
                    state
                        .staging
                        .remove(&chunk.run, chunk.index, chunk.sequence);
                    if !self.hold(&mut state, &chunk) {
                        answers.extend(ack.done(1, Err(no_page())));
                    }
                }
                // The chunk was acknowledged, and a page was promised.
                None => broken = Some(no_page()),
            }
        }
        state.pages.update(served.engine.free_space());
        if let Some(error) = broken {
            answers.extend(state.fail(&error));
        }
        drop(state);
        served.unsettled.push_back(kept);
        answers.extend(self.settle(served));
        answers
    }

    /// Lets go of what can be read from the engine by now.
    pub fn settle(&self, served: &mut Served) -> Vec<Answer> {
        let mut answers = Vec::new();
        let mut state = self.lock();
        while served.unsettled.len() > served.engine.unsettled()
            && let Some(chunks) = served.unsettled.pop_front()
        {
            for chunk in &chunks {
                state
                    .staging
                    .remove(&chunk.run, chunk.index, chunk.sequence);
                state.written = chunk.sequence;
                answers.extend(chunk.run.ack.as_ref().and_then(|ack| ack.done(1, Ok(()))));
            }
        }
        if served.unsettled.is_empty() {
            // Chunks that were refused at the end count, too.
            state.written = state.given;
        }
        answers
    }

    /// Where nothing follows, waits until all is settled: nobody else would.
    pub fn settle_if_idle(&self, served: &mut Served) -> Vec<Answer> {
        let state = self.lock();
        let is_more = !state.queue.is_empty() || state.next_batch > state.next_for_engine;
        let is_failed = state.failure.is_some();
        drop(state);
        if is_more || is_failed || served.unsettled.is_empty() {
            return Vec::new();
        }
        match served.engine.write_out() {
            Ok(_) => self.settle(served),
            Err(error) => self.fail_with(served, &EngineBatch::Write(Vec::new()), &error),
        }
    }
}
