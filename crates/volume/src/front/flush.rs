//! Flushes: each waits until everything that was staged before it is with the engine, and then for a commit. All that
//! wait share one.

use super::ack::Answer;
use super::batcher::EngineBatch;
use super::settle::Served;
use super::state::{FrontShared, FrontState, give};
use crate::{Buffer, Completion, Error, Result};

/// Flushes that wait for a commit.
#[derive(Default)]
pub(super) struct Flushes {
    waiting: Vec<Waiter>,
    /// The last sequence number that is durable.
    pub committed: u64,
}

struct Waiter {
    /// Sequence number of the last chunk that must be with the engine before the commit begins.
    after: u64,
    completion: Completion,
    buffer: Buffer,
}

impl Flushes {
    pub fn add(&mut self, after: u64, completion: Completion, buffer: Buffer) {
        self.waiting.push(Waiter {
            after,
            completion,
            buffer,
        });
    }

    /// Whether a commit now would answer somebody.
    pub fn is_due(&self, given: u64) -> bool {
        self.waiting.iter().any(|waiter| waiter.after <= given)
    }

    fn take_due(&mut self, given: u64) -> Vec<Waiter> {
        let (due, later) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiter| waiter.after <= given);
        self.waiting = later;
        due
    }

    /// Everybody, with an error.
    pub fn fail(&mut self, error: &Error) -> Vec<Answer> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting
            .into_iter()
            .map(|waiter| waiter.answer(Err(error.clone())))
            .collect()
    }
}

impl Waiter {
    fn answer(self, result: Result<()>) -> Answer {
        Answer {
            completion: self.completion,
            result: result.map(|()| self.buffer),
        }
    }
}

impl FrontShared {
    /// Takes a flush. It covers everything that was answered before, on any connection and of any head.
    pub fn flush(&self, completion: Completion, buffer: Buffer) {
        let mut state = self.lock();
        if let Err(error) = state.check() {
            drop(state);
            return completion.done(Err(error));
        }
        if self.is_stopped() {
            drop(state);
            return completion.done(Err(Error::Closing));
        }
        self.counters.flushes(1);
        if state.flushes.committed >= state.staged {
            // Nothing came since the last commit.
            drop(state);
            return completion.done(Ok(buffer));
        }
        let after = state.staged;
        state.flushes.add(after, completion, buffer);
        drop(state);
        self.wake_worker();
        if self.options.inline {
            self.work_until_idle();
        }
    }

    fn commit_now(&self, served: &mut Served) -> (Result<()>, Vec<Answer>) {
        let result = served.engine.commit();
        let answers = match &result {
            Ok(()) => self.settle(served),
            Err(error) => self.fail_with(served, &EngineBatch::Write(Vec::new()), error),
        };
        self.lock().pages.update(served.engine.free_space());
        (result, answers)
    }

    /// Commits for all flushes that wait for nothing else. Somebody called `begin_engine` before.
    pub fn commit_step(&self, mut state: parking_lot::MutexGuard<'_, FrontState>) {
        let covered = state.given;
        let due = state.flushes.take_due(covered);
        drop(state);
        let mut engine = self.engine();
        let (result, answers) = match engine.as_mut() {
            Some(served) => self.commit_now(served),
            None => (Err(Error::Closing), Vec::new()),
        };
        self.counters.commits(1);
        let mut state = self.lock();
        if result.is_ok() {
            state.flushes.committed = state.flushes.committed.max(covered);
        }
        state.is_engine_busy = false;
        drop(state);
        drop(engine);
        self.wake_waiting();
        self.wake_worker();
        give(answers);
        due.into_iter()
            .for_each(|waiter| waiter.answer(result.clone()).give());
    }
}
