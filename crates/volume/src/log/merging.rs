//! Merges of the map beside the writer, which goes on meanwhile: levels are never changed, so a merge reads what it was
//! started with, and its result takes the place of that, below what came since.
//!
//! Invariant: no zone that a merge may have named is forgotten before its result is installed. Relocations are dropped
//! by a mark alone, and a mark waits for the merge that was started before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::map::folder::MapFolder;
use super::map::levels::Levels;
use super::map::settle::{MergeSizes, Merger};
use super::shared::Shared;
use super::writer::LogEngine;
use crate::{HeadId, Result};

/// Recent levels that are left to gather while a merge goes on, as a multiple of those that make one due: then the writer
/// waits for it.
const GATHERED_MAX: usize = 2;
/// A map is written anew when this share of all relocations is used, in percent.
const REWRITE_PERCENT: usize = 75;

/// A merge that was done at once is installed after fewer questions than this.
const QUESTIONS: u64 = 6;

/// The merge that goes on, if one does.
pub(super) struct Merging {
    job: Option<MergeJob>,
    /// Merges are done at once, and installed later all the same: the same work gives the same I/O.
    is_inline: bool,
}

struct MergeJob {
    head: HeadId,
    /// Recent levels that it merges.
    taken: usize,
    stop: Arc<AtomicBool>,
    work: MergeWork,
}

enum MergeWork {
    Thread(JoinHandle<Result<Merged>>),
    /// The merge is done, and counts as going on for some more questions, as a thread would.
    Done(Box<Result<Merged>>, u64),
}

/// The result of a merge.
struct Merged {
    levels: Levels,
    overwritten: u64,
    discarded: u64,
}

/// The aim of a merge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// Merge the levels that are due.
    Settle,
    /// Merge everything: then no zone that was freed is named.
    Rewrite,
}

/// Everything that a merge works with.
struct MergeTask {
    folder: MapFolder,
    shared: Arc<Shared>,
    sizes: MergeSizes,
    levels: Arc<Levels>,
    goal: Goal,
    stop: Arc<AtomicBool>,
}

impl MergeTask {
    fn run(&self) -> Result<Merged> {
        let mut merger = Merger {
            folder: &self.folder,
            sizes: self.sizes,
            relocate: &|extent, visit| self.shared.zones.read().relocate(extent, visit),
            stop: &self.stop,
            overwritten: 0,
            discarded: 0,
        };
        let levels = match self.goal {
            Goal::Settle => merger.settle(&self.levels)?,
            Goal::Rewrite => merger.merge_all(&self.levels)?,
        };
        Ok(Merged {
            levels,
            overwritten: merger.overwritten,
            discarded: merger.discarded,
        })
    }
}

impl Merging {
    pub fn new(is_inline: bool) -> Self {
        Self {
            job: None,
            is_inline,
        }
    }

    /// Ends the merge without a result. Its files are removed later.
    pub fn cancel(&mut self) {
        if let Some(job) = self.job.take() {
            job.stop.store(true, Ordering::Relaxed);
            if let MergeWork::Thread(thread) = job.work {
                let _ = thread.join();
            }
        }
    }

    fn start(&mut self, head: HeadId, task: MergeTask) {
        let (taken, stop) = (task.levels.recent.len(), Arc::clone(&task.stop));
        let task = Arc::new(task);
        let thread = (!self.is_inline).then(|| {
            let task = Arc::clone(&task);
            let named = std::thread::Builder::new().name("map-merge".into());
            named.spawn(move || task.run())
        });
        let work = match thread {
            Some(Ok(thread)) => MergeWork::Thread(thread),
            _ => MergeWork::Done(Box::new(task.run()), task.folder.next() % QUESTIONS),
        };
        self.job = Some(MergeJob {
            head,
            taken,
            stop,
            work,
        });
    }

    /// Takes the merge that has ended, or with `waits` the one that goes on.
    fn take(&mut self, waits: bool) -> Option<MergeJob> {
        self.job.take_if(|job| match &mut job.work {
            MergeWork::Thread(thread) => waits || thread.is_finished(),
            MergeWork::Done(_, questions) => {
                *questions = questions.saturating_sub(1);
                waits || *questions == 0
            }
        })
    }
}

impl Drop for Merging {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl MergeWork {
    fn result(self) -> Result<Merged> {
        match self {
            Self::Done(done, _) => *done,
            Self::Thread(thread) => thread
                .join()
                .unwrap_or_else(|panicked| std::panic::resume_unwind(panicked)),
        }
    }
}

impl LogEngine {
    /// Takes over the result of a merge that has ended; with `waits` of the one that goes on. One that found no room is
    /// made anew later.
    ///
    /// # Errors
    /// The folder failed, or a run is damaged.
    pub(super) fn install_merged(&mut self, waits: bool) -> Result<()> {
        let Some(job) = self.merging.take(waits) else {
            return Ok(());
        };
        self.totals.merges += 1;
        let merged = match job.work.result() {
            Err(error) if error.is_shortage() => return Ok(()),
            done => done?,
        };
        self.note_merged(merged.overwritten, merged.discarded);
        // The head may have been deleted meanwhile.
        if let Some(map) = self.shared.maps.write().get_mut(&job.head) {
            map.levels = Arc::new(map.levels.with_merged(job.taken, &merged.levels));
        }
        Ok(())
    }

    /// Starts a merge where one is due and none goes on.
    pub(super) fn start_merging(&mut self) {
        if self.merging.job.is_some() {
            return;
        }
        let relocations = self.shared.zones.read().relocations.len();
        let is_much = relocations * 100 >= self.sizes.relocations_max * REWRITE_PERCENT;
        let due = (self.shared.maps.read().iter())
            .filter(|(_, map)| map.levels.is_merge_due(self.sizes.merges.recent_max))
            .max_by_key(|(_, map)| map.levels.recent.len())
            .map(|(head, map)| (*head, Arc::clone(&map.levels)));
        let Some((head, levels)) = due else {
            return;
        };
        // Written anew, a map shares nothing with those that were copied from it.
        let is_alone = self.shared.maps.read().len() == 1;
        let task = MergeTask {
            folder: self.map_folder.clone(),
            shared: Arc::clone(&self.shared),
            sizes: self.sizes.merges,
            levels,
            goal: if is_much && is_alone {
                Goal::Rewrite
            } else {
                Goal::Settle
            },
            stop: Arc::default(),
        };
        self.merging.start(head, task);
    }

    /// Sees to it that recent levels of a head do not pile up: they are in RAM, and each read asks them.
    ///
    /// # Errors
    /// The folder failed or is full, or a run is damaged.
    pub(super) fn limit_recent(&mut self, head: HeadId) -> Result<()> {
        let is_too_much = |engine: &Self| {
            let recent_max = engine.sizes.merges.recent_max * GATHERED_MAX;
            engine.shared.maps.read()[&head]
                .levels
                .is_merge_due(recent_max)
        };
        if !is_too_much(self) {
            return Ok(());
        }
        self.totals.merges_waited_for += 1;
        self.install_merged(true)?;
        if is_too_much(self) {
            let levels = Arc::clone(&self.shared.maps.read()[&head].levels);
            let merged = self.merging_now(|merger| merger.settle(&levels))?;
            let mut maps = self.shared.maps.write();
            let map = maps.get_mut(&head).expect("the writer alone removes heads");
            map.levels = Arc::new(merged);
        }
        Ok(())
    }
}
