//! The front: what every block device must do, above any [`Engine`].
//!
//! ```text
//! request ─▶ split ─▶ partial (read, merge) ─▶ staging: acknowledged ─▶ batcher: hash ─▶ engine, in sequence ─▶ flush
//! ```
//!
//! Invariants:
//! 1. A write gets its sequence number when it is staged, and reaches the engine in that order. Of two writes to one LBN
//!    the later staged one wins, for ever.
//! 2. A read looks into staging first. What has left staging can be read from the engine.
//! 3. A write is acknowledged from RAM only after a page was set aside for each of its chunks (`pages`).
//! 4. A flush is answered by a commit that began after everything that was staged before it was written.
//! 5. A full device is told before the acknowledgement: a write without a page is answered only when the engine has it.
//! 6. The state's lock is never held over I/O, over hashing, or while an answer is given. Order: engine, then state.
//!
//! Each stage is a step of `FrontShared::step`. Threads call it until there is nothing to do; with [`Options::inline`]
//! there are none, and who waits calls it. So the same code repeats exactly in a simulation.

mod ack;
mod batcher;
mod collect;
mod device;
mod failure;
mod flush;
mod heads;
mod held;
mod hinting;
mod metadata;
mod options;
mod pages;
mod partial;
mod reads;
mod settle;
mod split;
mod staging;
mod state;
mod stats;
mod steps;
mod writes;

use std::sync::Arc;
use std::thread::JoinHandle;

pub use self::options::{Ack, Options, WhenFull};
use self::state::FrontShared;
pub use self::stats::{FrontStats, Histogram, Latencies, NodedupCounts};
use crate::{
    BlockDevice, ChunkReader, Collected, Effort, Engine, EngineStats, Error, FreeSpace, Geometry,
    HeadId, Result,
};

/// Serves the heads of one engine. Dropped without [`close`](Front::close), it is as if the program had died: what was
/// staged and not flushed may be lost.
pub struct Front {
    shared: Arc<FrontShared>,
    threads: Vec<JoinHandle<()>>,
}

impl Front {
    /// A front above `engine`. Fingerprints are keyed with `hash_key`.
    pub fn new(
        engine: Box<dyn Engine>,
        chunk_bytes: u32,
        hash_key: [u8; 32],
        options: Options,
    ) -> Self {
        let workers = if options.inline { 0 } else { options.workers() };
        let shared = Arc::new(FrontShared::new(engine, chunk_bytes, hash_key, options));
        let threads = (0..workers)
            .map(|_| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.work())
            })
            .collect();
        Self { shared, threads }
    }

    /// The device of one head. `bytes` is a multiple of the engine's chunk.
    pub fn device(
        &self,
        head: HeadId,
        name: &str,
        bytes: u64,
        is_writable: bool,
    ) -> Arc<dyn BlockDevice> {
        let size = self.shared.sizes.of(head, bytes);
        let geometry = Geometry {
            bytes,
            chunk_bytes: self.shared.chunk_bytes,
            io_bytes_max: 32 << 20,
            is_writable,
            name: name.into(),
        };
        Arc::new(device::Device::new(
            Arc::clone(&self.shared),
            head,
            geometry,
            size,
        ))
    }

    /// One piece of work, where there is any: what threads do by themselves. For simulations ([`Options::inline`]).
    pub fn step(&self) -> bool {
        self.shared.step()
    }

    /// Everything that was answered before survives a crash, as far as the engine goes.
    ///
    /// # Errors
    /// The devices have failed.
    pub fn commit(&self) -> Result<()> {
        self.shared.drain()?;
        self.shared.with_engine(|engine| engine.commit())
    }

    /// As [`commit`](Front::commit), and the engine makes a checkpoint ([`Engine::checkpoint`]).
    ///
    /// # Errors
    /// The devices have failed.
    pub fn checkpoint(&self) -> Result<()> {
        self.shared.drain()?;
        self.shared.with_engine(|engine| engine.checkpoint())
    }

    /// Collects garbage now: all of it step by step, and writes go on between steps. All of it is what became garbage by
    /// anything that was answered before.
    ///
    /// # Errors
    /// A device failed.
    pub fn collect(&self, effort: Effort) -> Result<Collected> {
        let mut all = Collected::default();
        if effort == Effort::Whole {
            self.shared.drain()?;
            let most = self.space().total;
            loop {
                let step = self.collect_once(Effort::Step)?;
                all.pages_freed += step.pages_freed;
                all.pages_copied += step.pages_copied;
                if !step.is_more || all.pages_freed > most {
                    break;
                }
            }
        }
        let last = self.collect_once(effort)?;
        Ok(Collected {
            pages_freed: all.pages_freed + last.pages_freed,
            pages_copied: all.pages_copied + last.pages_copied,
            is_more: last.is_more,
        })
    }

    fn collect_once(&self, effort: Effort) -> Result<Collected> {
        let mut engine = self.shared.engine();
        let served = engine.as_mut().ok_or(Error::Closing)?;
        self.shared.collect(served, effort)
    }

    /// Pages of the data device, as the engine told last. Waits for nobody.
    pub fn space(&self) -> FreeSpace {
        self.shared.lock().pages.space()
    }

    /// Reads chunks beside the writer; what is staged is not there yet.
    pub fn reader(&self) -> Arc<dyn ChunkReader> {
        Arc::clone(&self.shared.reader)
    }

    /// Returns the front's counters, and sizes of what it holds.
    pub fn stats(&self) -> FrontStats {
        self.shared.stats()
    }

    /// Returns the engine's counters, sizes of what it holds, and its pages.
    ///
    /// # Errors
    /// The front is closed.
    pub fn engine_stats(&self) -> Result<(EngineStats, FreeSpace)> {
        self.shared
            .with_engine(|engine| Ok((engine.stats(), engine.free_space())))
    }

    /// Writes everything that is staged, ends the threads and closes the engine. Devices that others still hold answer
    /// with [`Closing`](crate::Error::Closing) from then on.
    ///
    /// # Errors
    /// The devices have failed: what was acknowledged and not flushed may be lost.
    pub fn close(mut self) -> Result<()> {
        let drained = self.shared.drain();
        self.shared.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let engine = self.shared.take_engine();
        drained?;
        match engine {
            Some(engine) => engine.close(),
            None => Ok(()),
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.shared.stop();
    }
}
