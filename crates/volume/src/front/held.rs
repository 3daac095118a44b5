//! Writes that found no page and wait for one ([`WhenFull::Wait`]). They are not acknowledged and have left staging and
//! the order: somebody deletes something, and they are staged anew; or their time is up, and they fail.

use std::sync::Arc;

use super::WhenFull;
use super::ack::Answer;
use super::batcher::{BatchChunk, FrontTask};
use super::staging::StagedRun;
use super::state::{FrontShared, FrontState, give};
use crate::Error;

/// Without news of space, another attempt is made after this long.
const RETRY_NANOSECONDS: u64 = 250_000_000;

/// A chunk that waits for a page.
struct HeldChunk {
    run: Arc<StagedRun>,
    index: usize,
    /// Nanoseconds at which it fails.
    until: u64,
}

/// All chunks that wait for a page.
#[derive(Default)]
pub(super) struct HeldChunks {
    chunks: Vec<HeldChunk>,
    /// There is news of space.
    has_news: bool,
    last_attempt: u64,
}

impl HeldChunks {
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Space may have become free.
    pub fn news(&mut self) {
        self.has_news = true;
    }

    /// A later write to the same place is on its way: those that wait fail, so that the later one is not overwritten.
    #[must_use]
    pub fn overtaken_by(&mut self, run: &StagedRun) -> Vec<Answer> {
        let lbns = run.lbns();
        let is_overtaken = |held: &HeldChunk| {
            held.run.head == run.head && lbns.contains(&(held.run.first_lbn + held.index as u64))
        };
        let (overtaken, rest) = std::mem::take(&mut self.chunks)
            .into_iter()
            .partition(is_overtaken);
        self.chunks = rest;
        fail(overtaken, &no_page())
    }

    /// All of them fail.
    #[must_use]
    pub fn fail(&mut self, error: &Error) -> Vec<Answer> {
        fail(std::mem::take(&mut self.chunks), error)
    }
}

fn fail(chunks: Vec<HeldChunk>, error: &Error) -> Vec<Answer> {
    chunks
        .into_iter()
        .filter_map(|held| held.run.ack.as_ref()?.done(1, Err(error.clone())))
        .collect()
}

/// A chunk needs a page, and none is left.
pub(super) fn no_page() -> Error {
    Error::NoSpace {
        what: "no page is free, and no garbage is left that could be collected".into(),
    }
}

impl FrontShared {
    /// Nanoseconds from any start; `None` without a clock.
    pub fn now(&self) -> Option<u64> {
        self.options.clock.as_ref().map(|clock| clock())
    }

    /// Has a refused chunk wait, where that is wanted. `false`: it fails now.
    pub fn hold(&self, state: &mut FrontState, chunk: &BatchChunk) -> bool {
        let (WhenFull::Wait(longest), Some(now)) = (self.options.when_full, self.now()) else {
            return false;
        };
        let newer = state.staging.get(chunk.run.head, chunk.lbn());
        if newer.is_some_and(|newer| newer.sequence > chunk.sequence) {
            // A later write to the same place was staged while this one was on its way.
            return false;
        }
        let held_max = self.options.staging_bytes / self.chunk_bytes as usize;
        let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        let until = chunk.held_until.unwrap_or(now.saturating_add(longest));
        if until <= now || state.held.chunks.len() >= held_max {
            return false;
        }
        if state.held.is_empty() {
            state.held.last_attempt = now;
            state.held.has_news = false;
        }
        state.held.chunks.push(HeldChunk {
            run: Arc::clone(&chunk.run),
            index: chunk.index,
            until,
        });
        true
    }

    /// Whether those that wait are to be tried again, or to fail.
    pub fn has_held_work(&self, state: &FrontState) -> bool {
        !state.held.is_empty()
            && (state.held.has_news
                || self
                    .now()
                    .is_some_and(|now| now >= state.held.last_attempt + RETRY_NANOSECONDS))
    }

    /// Stages what waits for a page anew, and fails what has waited for too long.
    pub fn retry_held(&self, mut state: parking_lot::MutexGuard<'_, FrontState>) {
        let now = self.now().unwrap_or(u64::MAX);
        let all = std::mem::take(&mut state.held.chunks);
        let (late, again): (Vec<_>, Vec<_>) = all.into_iter().partition(|held| held.until <= now);
        state.held.has_news = false;
        state.held.last_attempt = now;
        for held in again {
            state.staged += 1;
            let sequence = state.staged;
            state.staging.put_chunk(&held.run, held.index, sequence);
            state.queued_chunks += 1;
            state.queue.push_back(FrontTask::Write {
                chunks: held.index..held.index + 1,
                first_sequence: sequence - held.index as u64,
                held_until: Some(held.until),
                run: held.run,
            });
        }
        drop(state);
        self.wake_worker();
        give(fail(late, &no_page()));
    }
}
