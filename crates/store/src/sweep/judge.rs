//! Which containers go, which are rewritten, and which stay: by what all roots refer to.

use std::collections::HashSet;

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;

use super::choose::{self, Candidate, Live};
use super::{Progress, Sweep, SweepObserver, SweepOptions, SweepReport};
use crate::Result;
use crate::mark::{ContainerMarks, Marker, Marks};
use crate::opened::{Opened, read_footer};
use crate::reader::ChunkReader;
use crate::repository::Repository;

/// What becomes of the containers.
#[derive(Default)]
pub(super) struct Verdict {
    pub(super) dead: Vec<ContainerId>,
    pub(super) compact: Vec<(ContainerId, Live)>,
    pub(super) candidates: Vec<Candidate>,
}

impl Sweep<'_> {
    /// Marks, into `marks`, from all roots and decides on every container.
    pub(super) fn judge(
        &mut self,
        mut marks: Marks,
        options: &SweepOptions,
        observer: &mut dyn SweepObserver,
    ) -> Result<Verdict> {
        let mut marker = Marker::new(self.repository, &self.listed, &self.inherited);
        let all = self.repository.roots()?;
        for (i, id) in all.iter().enumerate() {
            observer.progress(Progress {
                stage: "marking",
                done: i as u64,
                total: all.len() as u64,
            });
            marker.mark(id, self.roots, &mut self.reader, &mut marks.taker())?;
            if let Some((_, error)) = marker.damaged.pop() {
                return Err(error);
            }
            self.marked.insert(*id);
        }
        // A reference that leads nowhere is damage that `check` reports; nothing that is there can be what it meant, unless the index is wrong.
        self.search_unresolved(marker.unresolved.keys().copied().collect(), &mut marks)?;
        let lens = self.lengths()?;
        let mut verdict = Verdict::default();
        let mut alive = HashSet::new();
        let total = lens.len() as u64;
        let reader = &mut self.reader;
        let report = &mut self.report;
        let mut astray = Vec::new();
        marks.for_each(&mut |marks| {
            alive.insert(marks.id);
            observer.progress(Progress {
                stage: "judging",
                done: alive.len() as u64,
                total,
            });
            let stored = lens.get(&marks.id).copied().unwrap_or(0);
            judge_container(
                self.repository,
                reader,
                marks,
                stored,
                options,
                report,
                &mut verdict,
                &mut astray,
            )
        })?;
        for id in &self.listed {
            let bytes = lens.get(id).copied().unwrap_or(0);
            self.report.containers += 1;
            self.report.stored_bytes += bytes;
            if !alive.contains(id) {
                self.report.dead_containers += 1;
                self.report.dead_bytes += bytes;
                verdict.dead.push(*id);
            }
        }
        choose::choose(options, &mut self.report, &mut verdict);
        if !astray.is_empty() {
            // The index led to containers that do not hold the chunk: nothing may be deleted on such advice.
            tracing::warn!(
                "the index named {} containers wrongly; run `onefold repair`",
                astray.len()
            );
            verdict = Verdict::default();
        }
        Ok(verdict)
    }

    /// Looks for chunks that the index does not know in all descriptors.
    fn search_unresolved(
        &mut self,
        unresolved: HashSet<Fingerprint>,
        marks: &mut Marks,
    ) -> Result<()> {
        if unresolved.is_empty() {
            return Ok(());
        }
        for id in &self.listed {
            let Ok(opened) = self.reader.open(*id) else {
                continue;
            };
            for (fingerprint, _) in opened
                .table
                .chunks
                .iter()
                .filter(|(fingerprint, _)| unresolved.contains(fingerprint))
            {
                marks.add(*id, fingerprint, true)?;
            }
        }
        Ok(())
    }
}

/// Decides on a container that something refers to.
#[allow(clippy::too_many_arguments)]
fn judge_container(
    repository: &Repository,
    reader: &mut ChunkReader,
    marks: ContainerMarks,
    stored: u64,
    options: &SweepOptions,
    report: &mut SweepReport,
    verdict: &mut Verdict,
    astray: &mut Vec<ContainerId>,
) -> Result<()> {
    // Most containers are wholly alive: their footer tells that without the table.
    let chunks = match read_footer(&repository.shared, marks.id) {
        Ok(footer) => footer.chunks as usize,
        Err(error) if error.is_damage() => return Ok(()),
        Err(error) => return Err(error),
    };
    let is_small = stored < options.rewrite_smaller_than;
    if marks.prefixes.len() >= chunks && !marks.followed && !is_small {
        return Ok(());
    }
    let opened = match reader.open(marks.id) {
        Ok(opened) => opened,
        Err(error) if error.is_damage() => return Ok(()),
        Err(error) => return Err(error),
    };
    if marks.followed && !holds_all(&opened, &marks.prefixes) {
        astray.push(marks.id);
        return Ok(());
    }
    let chunks = &opened.table.chunks;
    let live = Live::of(chunks.len() as u32, |number| {
        let prefix = chunks[number as usize].0.prefix();
        marks.prefixes.binary_search(&prefix).is_ok()
    });
    let (mut live_bytes, mut all) = (0u64, 0u64);
    for (number, (_, len)) in (0..).zip(chunks) {
        all += u64::from(*len);
        live_bytes += u64::from(*len) * u64::from(live.contains(number));
    }
    let share = live_bytes as f64 / all.max(1) as f64;
    let dead_bytes = (stored as f64 * (1.0 - share)) as u64;
    let candidate = Candidate {
        id: marks.id,
        stream: opened.header.stream,
        live,
        stored,
        dead_bytes,
        share,
    };
    if candidate.is_one(options) {
        verdict.candidates.push(candidate);
    } else {
        report.unused_bytes_left += dead_bytes;
    }
    Ok(())
}

fn holds_all(opened: &Opened, prefixes: &[u64]) -> bool {
    prefixes.iter().all(|prefix| opened.holds_prefix(*prefix))
}
