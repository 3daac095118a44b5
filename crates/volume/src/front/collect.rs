//! Garbage collection: a little with each write where pages get few, and some while nothing else is to be done.

use super::settle::Served;
use super::state::{FrontShared, FrontState, give};
use crate::{Collected, Effort, Result};

impl FrontShared {
    /// Collects garbage now, and looks at the pages.
    ///
    /// # Errors
    /// A device failed.
    pub fn collect(&self, served: &mut Served, effort: Effort) -> Result<Collected> {
        let collected = match served.engine.collect(effort) {
            // There was no room to move anything.
            Err(error) if error.is_shortage() => Collected::default(),
            other => other?,
        };
        let mut state = self.lock();
        state.pages.collected(served.engine.free_space());
        if collected.pages_freed > 0 {
            state.held.news();
        }
        Ok(collected)
    }

    /// Collects what is owed for the pages that were written.
    ///
    /// # Errors
    /// A device failed.
    pub fn collect_at_pace(&self, served: &mut Served) -> Result<()> {
        loop {
            let state = self.lock();
            if state.failure.is_some() || !state.pages.owes_collection() {
                return Ok(());
            }
            drop(state);
            self.collect(served, Effort::Step)?;
        }
    }

    /// Whether a step of collection would hold up nobody.
    pub fn may_collect_idly(&self, state: &FrontState) -> bool {
        state.failure.is_none()
            && !state.is_engine_busy
            && !self.has_work(state)
            && state.pages.wants_idle_collection()
    }

    /// One step of collection, unless somebody else has come.
    pub fn collect_step(&self) {
        let mut state = self.lock();
        if !self.may_collect_idly(&state) {
            return;
        }
        state.is_engine_busy = true;
        drop(state);
        let mut guard = self.engine();
        let mut answers = Vec::new();
        if let Some(served) = guard.as_mut()
            && let Err(error) = self.collect(served, Effort::Step)
        {
            answers = self.lock().fail(&error);
        }
        self.lock().is_engine_busy = false;
        drop(guard);
        self.wake_waiting();
        self.wake_worker();
        give(answers);
    }
}
