//! Devices and pipes that were named as sources and are read as streams: each becomes a file of its name.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{ContentFrom, Entries, Job, PlanStep, Planned, Planner, StepBatch, StoreFailed};
use crate::backup::parts::{ahead_bytes, large_channel};
use crate::backup::work::Work;
use crate::meta::Stat;
use crate::{Change, Kind, Progress};

impl Planner<'_> {
    /// Plans such a file; `change` says whether the parent has a file there. Its length, and whether it is unchanged,
    /// cannot be known.
    pub(super) fn special(
        &self,
        dir: &Arc<OwnedFd>,
        folder: &Arc<[u8]>,
        (name, stat): (Vec<u8>, Stat),
        change: Change,
        batch: &mut StepBatch,
    ) -> Result<(), StoreFailed> {
        self.submit(batch)?;
        let budget_bytes = ahead_bytes(u64::MAX, self.buffers);
        if !self.large_budget.take(budget_bytes) {
            return Err(StoreFailed);
        }
        Progress::add(&self.progress.files_total, 1);
        let stat = Stat {
            kind: Kind::File,
            size: 0,
            blocks: 0,
            links: 1,
            rdev: 0,
            ..stat
        };
        let planned = Planned {
            entry: stat.entry(name.clone(), self.owners),
            change,
            content: ContentFrom::Job,
            before: None,
            link: None,
        };
        let (parts, receiver) = large_channel(self.ahead);
        let step = PlanStep::Entries {
            entries: Entries::one(folder, planned),
            job: Job::Large {
                parts: receiver,
                budget_bytes,
            },
            budget_bytes: 0,
        };
        let work = Work::Special {
            dir: dir.clone(),
            name,
            stat,
            parts,
        };
        self.work.send(work).map_err(|_| StoreFailed)?;
        self.steps.send(step).map_err(|_| StoreFailed)
    }
}
