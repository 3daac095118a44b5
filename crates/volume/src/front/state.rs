//! State that all threads of a front share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::ack::Answer;
use super::batcher::{EngineBatch, FrontTask};
use super::flush::Flushes;
use super::heads::HeadSizes;
use super::held::HeldChunks;
use super::hinting::Hinting;
use super::metadata::HeadsMetadata;
use super::pages::PagePromises;
use super::partial::Partials;
use super::settle::Served;
use super::staging::Staging;
use super::stats::{FrontCounters, FrontStats};
use super::{FrontStats as Stats, Options};
use crate::{ChunkReader, Engine, Error, Result};

/// Everything that devices and threads of a front share.
pub(super) struct FrontShared {
    pub chunk_bytes: u32,
    pub hash_key: [u8; 32],
    pub options: Options,
    pub reader: Arc<dyn ChunkReader>,
    pub counters: FrontCounters,
    pub metadata: HeadsMetadata,
    pub hinting: Hinting,
    /// Sizes of the heads that have devices.
    pub sizes: HeadSizes,
    /// `None` once the front is closed. Taken before the state's lock, never while it is held.
    engine: Mutex<Option<Served>>,
    state: Mutex<FrontState>,
    /// There is something to do.
    work: Condvar,
    /// Something was done: room in staging, an LBN that is free again, an empty queue.
    progress: Condvar,
    is_stopped: AtomicBool,
}

/// Without work for so long, a front is idle.
const IDLE: Duration = Duration::from_millis(50);

/// Part of the front that a lock guards.
pub(super) struct FrontState {
    pub staging: Staging,
    /// In sequence, not yet taken by the batcher.
    pub queue: VecDeque<FrontTask>,
    /// Chunks in it.
    pub queued_chunks: usize,
    /// Batches that were taken, by their number, once they are hashed.
    pub hashed: BTreeMap<u64, EngineBatch>,
    /// Number of the next batch that is taken, and of the next one for the engine.
    pub next_batch: u64,
    pub next_for_engine: u64,
    /// Somebody is at the engine with a batch or a commit.
    pub is_engine_busy: bool,
    pub pages: PagePromises,
    pub partials: Partials,
    pub flushes: Flushes,
    pub held: HeldChunks,
    /// Pieces of work that were done.
    pub steps: u64,
    /// Number of the last staged chunk or discard, of the last one that the engine was given, and of the last one that
    /// can be read there.
    pub staged: u64,
    pub given: u64,
    pub written: u64,
    /// A write or a commit failed: nothing is taken any more.
    pub failure: Option<Error>,
}

impl FrontShared {
    pub fn new(
        engine: Box<dyn Engine>,
        chunk_bytes: u32,
        hash_key: [u8; 32],
        options: Options,
    ) -> Self {
        let mut pages = PagePromises::default();
        pages.update(engine.free_space());
        let state = FrontState {
            staging: Staging::default(),
            queue: VecDeque::new(),
            queued_chunks: 0,
            hashed: BTreeMap::new(),
            next_batch: 0,
            next_for_engine: 0,
            is_engine_busy: false,
            pages,
            partials: Partials::default(),
            flushes: Flushes::default(),
            held: HeldChunks::default(),
            steps: 0,
            staged: 0,
            given: 0,
            written: 0,
            failure: None,
        };
        Self {
            chunk_bytes,
            hash_key,
            options,
            reader: engine.reader(),
            counters: FrontCounters::default(),
            metadata: HeadsMetadata::default(),
            hinting: Hinting::default(),
            sizes: HeadSizes::default(),
            engine: Mutex::new(Some(Served::new(engine))),
            state: Mutex::new(state),
            work: Condvar::new(),
            progress: Condvar::new(),
            is_stopped: AtomicBool::new(false),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, FrontState> {
        self.state.lock()
    }

    /// Waits until something was done; inline, does it. The state may be another when it returns.
    ///
    /// # Errors
    /// The front has failed or is closed, or nothing is left that could be waited for.
    pub fn wait(&self, state: &mut MutexGuard<'_, FrontState>) -> Result<()> {
        state.check()?;
        if self.is_stopped() {
            return Err(Error::Closing);
        }
        if !self.options.inline {
            self.progress.wait(state)
        } else {
            let did_something = MutexGuard::unlocked(state, || self.step());
            if !did_something {
                return Err(Error::Closing);
            }
        }
        Ok(())
    }

    /// Tells the threads that there is work.
    pub fn wake_worker(&self) {
        self.work.notify_one();
    }

    /// Tells those who wait that something was done.
    pub fn wake_waiting(&self) {
        self.progress.notify_all();
    }

    /// A thread's life.
    pub fn work(&self) {
        while !self.is_stopped() {
            if self.step() {
                continue;
            }
            let mut state = self.lock();
            if !self.is_stopped() && !self.has_work(&state) {
                self.wait_for_work(&mut state);
            }
        }
    }

    /// Waits until there is work. Where something is to be done after a while without any, that is done.
    fn wait_for_work(&self, state: &mut MutexGuard<'_, FrontState>) {
        if state.held.is_empty() && !state.pages.wants_idle_collection() {
            return self.work.wait(state);
        }
        let busy = |state: &FrontState| state.steps + self.counters.reads();
        let before = busy(state);
        let is_idle = self.work.wait_for(state, IDLE).timed_out() && busy(state) == before;
        if is_idle && self.may_collect_idly(state) {
            MutexGuard::unlocked(state, || self.collect_step());
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Ends the threads, and everybody's waiting.
    pub fn stop(&self) {
        let state = self.lock();
        self.is_stopped.store(true, Ordering::Release);
        drop(state);
        self.work.notify_all();
        self.progress.notify_all();
    }

    /// Waits until everything that is staged now is with the engine.
    ///
    /// # Errors
    /// The front has failed or is closed.
    pub fn drain(&self) -> Result<()> {
        let mut state = self.lock();
        let last = state.staged;
        while state.written < last {
            self.wait(&mut state)?;
        }
        state.check()
    }

    /// Calls `act` with the engine, then looks at its pages.
    ///
    /// # Errors
    /// Those of `act`; [`Error::Closing`].
    pub fn with_engine<T>(&self, act: impl FnOnce(&mut dyn Engine) -> Result<T>) -> Result<T> {
        let mut engine = self.engine.lock();
        let served = engine.as_mut().ok_or(Error::Closing)?;
        let result = act(&mut *served.engine);
        self.lock().pages.update(served.engine.free_space());
        result
    }

    /// The engine itself, for who writes in sequence.
    pub fn engine(&self) -> MutexGuard<'_, Option<Served>> {
        self.engine.lock()
    }

    pub fn take_engine(&self) -> Option<Box<dyn Engine>> {
        self.engine.lock().take().map(|served| served.engine)
    }

    pub fn stats(&self) -> FrontStats {
        let state = self.lock();
        let mut stats: Stats = self.counters.read();
        stats.staged_bytes = state.staging.bytes() as u64;
        stats.queued = state.staged - state.written;
        stats.hinted_ranges = self.hinted_ranges();
        stats.failure = state.failure.as_ref().map(ToString::to_string);
        stats
    }
}

impl FrontState {
    /// # Errors
    /// The error that the front failed with.
    pub fn check(&self) -> Result<()> {
        match &self.failure {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

/// Gives answers, now that no lock is held.
pub(super) fn give(answers: Vec<Answer>) {
    answers.into_iter().for_each(Answer::give);
}
