//! Fills the target: what is to go goes first, then one window after another is carried out.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use onefold_store::{ChunkReader, Session};

use super::leading::Leading;
use super::plan::RestorePlanner;
use super::target::TargetFolder;
use super::window::{FileState, Window};
use super::write::{Begun, Writer};
use super::{Options, RestoreSummary, count, delete, dry};
use crate::snapshot::Snapshot;
use crate::tree::Tree;
use crate::{Events, Progress, Result};

/// A restore whose target is open.
pub struct OpenRestore<'a> {
    pub session: &'a Session,
    pub snapshot: &'a Snapshot,
    pub tree: &'a Tree,
    /// The target; `None` where a dry run finds none.
    pub target: Option<&'a TargetFolder>,
    /// Writer into the target; `None` in a dry run.
    pub writer: Option<&'a Writer<'a>>,
    pub leading: &'a Leading<'a>,
    pub options: &'a Options,
    pub progress: &'a Progress,
    pub events: &'a dyn Events,
}

/// Raises a flag when it is dropped.
struct Raised<'a>(&'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl OpenRestore<'_> {
    /// Deletes what is to go, and restores everything that the planner plans.
    pub fn run(
        &self,
        planner: &mut RestorePlanner<'_>,
        reader: &mut ChunkReader,
        summary: &mut RestoreSummary,
    ) -> Result<()> {
        if let Some(target) = self.target.filter(|_| self.options.delete) {
            // Delete first, so that folders get their times when nothing changes in them any more.
            (summary.deleted, summary.errors) = delete::delete_others(
                self.snapshot,
                self.tree,
                self.options,
                target,
                reader,
                self.progress,
                self.events,
            )?;
        }
        let is_over = AtomicBool::new(false);
        let top = planner.top();
        std::thread::scope(|scope| {
            let _over = Raised(&is_over);
            let count = || {
                if self.options.count {
                    scope.spawn(|| {
                        let mut reader = self.session.reader()?;
                        let (options, progress) = (self.options, self.progress);
                        count::count(self.tree, top, options, &mut reader, progress, &is_over)
                    });
                }
            };
            self.each_window(planner, reader, summary, count)
        })
    }

    fn carry_out(
        &self,
        window: &mut Window,
        continues: bool,
        summary: &mut RestoreSummary,
    ) -> Result<()> {
        let Some(writer) = self.writer else {
            dry::look(
                window,
                self.target,
                self.options,
                self.leading,
                self.events,
                summary,
            );
            return Ok(());
        };
        writer.carry_out(window)?;
        if self.options.verify {
            summary.verified += writer.verify(window, continues)?;
        }
        Ok(())
    }

    /// Carries out one window after another. A file that goes on in the next window is given up where no window
    /// follows, or the file has failed. The rest is counted where the first window does not tell it all.
    fn each_window(
        &self,
        planner: &mut RestorePlanner<'_>,
        reader: &mut ChunkReader,
        summary: &mut RestoreSummary,
        count: impl FnOnce(),
    ) -> Result<()> {
        let mut count = Some(count);
        let mut last: Option<Begun> = None;
        let give_up = |last: Option<Begun>| {
            if let Some((last, writer)) = last.zip(self.writer) {
                last.give_up(writer.target);
            }
        };
        loop {
            let state = last.as_ref().map(|last| last.state);
            let mut window = match planner.next(state, reader, summary) {
                Ok(Some(window)) => window,
                Ok(None) => return Ok(()),
                Err(e) => {
                    give_up(last);
                    return Err(e);
                }
            };
            if let Some(count) = count.take().filter(|_| !planner.knows_all()) {
                count();
            }
            let continues = planner.continues();
            let done = self.carry_out(&mut window, continues, summary);
            planner.carried_out(&window);
            last = continues.then(|| Begun::last_of(&window)).flatten();
            let has_failed = |last: &Begun| matches!(last.state, FileState::Failed(_));
            if done.is_err() || last.as_ref().is_some_and(has_failed) {
                give_up(last.take());
                done?;
                // The next window learns that the file has failed, and does nothing more for it.
                last = continues.then(|| Begun::last_of(&window)).flatten();
            }
        }
    }
}
