//! Callers take turns: a lookup changes the published indexes, so each stands behind a lock.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use onefold_chunk::Fingerprint;
use onefold_index::{ChunkIndex, ContainerId, IndexStats, Location, Result};
use onefold_io::ErrorKind;
use parking_lot::{Mutex, MutexGuard};

/// An index for one caller at a time; its methods are those of [`ChunkIndex`].
pub trait OneCaller: Send {
    /// See [`ChunkIndex::lookup`].
    fn lookup(&mut self, keys: &[Fingerprint], found: &mut [Option<Location>]) -> Result<()>;

    /// See [`ChunkIndex::say`].
    fn say(&mut self, key: &Fingerprint, container: Option<ContainerId>) -> Result<()>;

    /// See [`ChunkIndex::insert`].
    fn insert(&mut self, entries: &[(Fingerprint, Location)]) -> Result<()> {
        entries
            .iter()
            .try_for_each(|(key, location)| self.say(key, Some(location.container)))
    }

    /// See [`ChunkIndex::remove`].
    fn remove(&mut self, keys: &[Fingerprint]) -> Result<()> {
        keys.iter().try_for_each(|key| self.say(key, None))
    }

    /// See [`ChunkIndex::retire`].
    fn retire(&mut self, containers: &[ContainerId]) -> Result<()>;

    /// See [`ChunkIndex::checkpoint`].
    fn checkpoint(&mut self) -> Result<()>;

    /// See [`ChunkIndex::iterate`].
    fn iterate(&mut self, visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>)
    -> Result<()>;

    /// See [`ChunkIndex::ram_bytes`].
    fn ram_bytes(&self) -> usize;

    /// See [`ChunkIndex::stats`].
    fn stats(&self) -> IndexStats;
}

/// An index whose callers take turns.
pub struct InTurns<I> {
    /// The timer, declared first so that it ends before the index does.
    timer: Option<Timer>,
    index: Arc<Mutex<I>>,
}

impl<I> InTurns<I> {
    /// Puts `index` behind a lock.
    pub(crate) fn new(index: I) -> InTurns<I> {
        InTurns {
            timer: None,
            index: Arc::new(Mutex::new(index)),
        }
    }

    /// Locks the index for one caller.
    pub(crate) fn lock(&self) -> MutexGuard<'_, I> {
        self.index.lock()
    }
}

impl<I: Send + 'static> InTurns<I> {
    /// The same index with a thread that calls `act` every `interval_ms` milliseconds, like any other caller, until the
    /// index is dropped. An error of `act` is logged, and the next call tries again.
    pub(crate) fn with_timer(
        mut self,
        interval_ms: u64,
        act: impl Fn(&mut I) -> Result<()> + Send + 'static,
    ) -> Result<InTurns<I>> {
        let index = Arc::clone(&self.index);
        self.timer = Some(Timer::start(interval_ms, move || act(&mut index.lock()))?);
        Ok(self)
    }
}

/// A thread that repeats one action until it is dropped.
struct Timer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Timer {
    fn start(interval_ms: u64, act: impl Fn() -> Result<()> + Send + 'static) -> Result<Timer> {
        let (stop, stopped) = channel();
        let pause = Duration::from_millis(interval_ms.max(1));
        let run = move || {
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = act() {
                    tracing::warn!("{error}: it is tried again in {interval_ms} ms");
                }
            }
        };
        let thread = std::thread::Builder::new().name("index timer".into());
        let thread = thread.spawn(run).map_err(|error| {
            onefold_io::Error::new("start", "index timer", ErrorKind::Device, error.to_string())
        })?;
        Ok(Timer {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // a panic of the thread was reported by the thread
            let _ = thread.join();
        }
    }
}

impl<I: OneCaller> ChunkIndex for InTurns<I> {
    fn lookup(&self, keys: &[Fingerprint], found: &mut [Option<Location>]) -> Result<()> {
        self.lock().lookup(keys, found)
    }

    fn say(&mut self, key: &Fingerprint, container: Option<ContainerId>) -> Result<()> {
        self.lock().say(key, container)
    }

    fn insert(&mut self, entries: &[(Fingerprint, Location)]) -> Result<()> {
        self.lock().insert(entries)
    }

    fn remove(&mut self, keys: &[Fingerprint]) -> Result<()> {
        self.lock().remove(keys)
    }

    fn retire(&mut self, containers: &[ContainerId]) -> Result<()> {
        self.lock().retire(containers)
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.lock().checkpoint()
    }

    fn iterate(
        &mut self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        self.lock().iterate(visit)
    }

    fn ram_bytes(&self) -> usize {
        self.lock().ram_bytes()
    }

    fn stats(&self) -> IndexStats {
        self.lock().stats()
    }
}
