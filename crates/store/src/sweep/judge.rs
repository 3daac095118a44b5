//! Which containers go, which are rewritten, and which stay: by what all roots refer to.

use std::collections::{HashMap, HashSet};

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;

use super::choose;
use super::last_copies::last_copies;
use super::plan::{Candidate, Live, SweepPlan};
use super::{StageProgress, Sweep, SweepObserver, SweepOptions, SweepReport};
use crate::container::opened::{self, Opened, read_footer};
use crate::error::tolerate;
use crate::protocol::Sorted;
use crate::reader::ChunkReader;
use crate::repository::Repository;
use crate::sweep::marker::Marker;
use crate::sweep::marks::{ContainerMarks, MarkOrigin, Marks};
use crate::{Result, container};

/// Marks of all chunks that the roots refer to.
struct Marked {
    marks: Marks,
    /// Referred to, and nowhere as far as the index knows.
    unresolved: HashSet<Fingerprint>,
    /// Containers much of which others hold, too. Sorted; none where it was not asked for.
    twins: Vec<ContainerId>,
}

/// Treatment of references into containers that may go: their chunks may be elsewhere, too.
#[derive(Clone, Copy)]
enum Leaving<'a> {
    /// References into condemned containers are followed; and containers are looked for of which this share is stored
    /// elsewhere.
    Condemned(f64),
    /// References into these are followed elsewhere where that can be.
    These(&'a [ContainerId]),
    /// None of these goes, nor what the index names in their stead.
    None(&'a [ContainerId]),
}

impl Sweep<'_> {
    /// Decides on every container by what all roots refer to; marks are gathered in what `marks` makes. What two
    /// containers hold is marked in the one that the index names, where that holds it; else in both.
    pub(super) fn judge(
        &mut self,
        marks: &dyn Fn() -> Result<Marks>,
        options: &SweepOptions,
        observer: &mut dyn SweepObserver,
    ) -> Result<SweepPlan> {
        self.protocol.roots_locked();
        let plan = self.judge_all(marks, options, observer)?;
        self.roots_listed();
        Ok(plan)
    }

    fn judge_all(
        &mut self,
        marks: &dyn Fn() -> Result<Marks>,
        options: &SweepOptions,
        observer: &mut dyn SweepObserver,
    ) -> Result<SweepPlan> {
        let worth_it = match options.unused_max {
            Some(_) => 0.0,
            None => 1.0 - options.compact_below,
        };
        let mut marked = self.mark_all(marks()?, Leaving::Condemned(worth_it), observer)?;
        let mut leaving = std::mem::take(&mut marked.twins);
        if !leaving.is_empty() {
            drop(marked);
            leaving.extend(self.inherited());
            leaving.sort_unstable();
            marked = self.mark_all(marks()?, Leaving::These(&leaving), observer)?;
        } else {
            leaving = self.inherited().to_vec();
        }
        let before = self.report;
        if let Some(plan) = self.judge_by(marked, options, observer)? {
            return Ok(plan);
        }
        // The index led astray.
        if !leaving.is_empty() {
            self.report = before;
            tracing::warn!("what is stored twice stays: the index does not tell where");
            let marked = self.mark_all(marks()?, Leaving::None(&leaving), observer)?;
            if let Some(plan) = self.judge_by(marked, options, observer)? {
                return Ok(plan);
            }
        }
        tracing::warn!("nothing is deleted: run `onefold repair`");
        self.report.leave_all();
        Ok(SweepPlan::default())
    }

    /// Marks from all roots.
    fn mark_all(
        &mut self,
        mut marks: Marks,
        leaving: Leaving<'_>,
        observer: &mut dyn SweepObserver,
    ) -> Result<Marked> {
        let all = self.list_roots(observer)?;
        let total = (all.listed.len() + all.held.len()) as u64;
        let repository = self.repository;
        let (listed, condemned) = (self.protocol.listed(), self.protocol.inherited());
        let (listed, condemned) = (listed.as_slice(), condemned.as_slice());
        let mut marker = match leaving {
            Leaving::Condemned(_) => Marker::new(repository, listed, condemned).looking_for_twins(),
            Leaving::These(leaving) => Marker::new(repository, listed, leaving),
            Leaving::None(staying) => Marker::new(repository, listed, staying).keeping_both(),
        }
        .preferring_others_than(condemned);
        self.marked.clear();
        for (id, done) in all.listed.iter().chain(&all.held).zip(0..) {
            observer.progress(StageProgress {
                stage: "marking",
                done,
                total,
            });
            let mark = if done < all.listed.len() as u64 {
                Marker::mark
            } else {
                Marker::mark_held
            };
            if mark(
                &mut marker,
                id,
                self.roots,
                &mut self.reader,
                &mut marks.taker(),
            )? {
                self.marked.insert(*id);
            }
            if let Some((_, error)) = marker.damaged.pop() {
                return Err(error);
            }
        }
        let twins = match leaving {
            Leaving::Condemned(share) => marker.twins(share)?,
            Leaving::These(_) | Leaving::None(_) => Vec::new(),
        };
        Ok(Marked {
            marks,
            twins,
            unresolved: marker.unresolved.into_keys().collect(),
        })
    }

    /// Decides on every container; `None` where the index has led astray.
    fn judge_by(
        &mut self,
        marked: Marked,
        options: &SweepOptions,
        observer: &mut dyn SweepObserver,
    ) -> Result<Option<SweepPlan>> {
        let Marked {
            mut marks,
            unresolved,
            ..
        } = marked;
        // A reference that leads nowhere is damage that `check` reports; nothing that is there can be what it meant,
        // unless the index is wrong.
        let mut alive = search_unresolved(
            self.protocol.listed().as_slice(),
            &mut self.reader,
            &unresolved,
            &mut marks,
        )?;
        let lens = self.lengths()?;
        let total = lens.len() as u64;
        let mut judge = Judge {
            repository: self.repository,
            reader: &mut self.reader,
            options,
            condemned: self.protocol.inherited(),
            report: &mut self.report,
            plan: SweepPlan::default(),
            is_astray: false,
        };
        let mut judged = 0;
        marks.for_each(&mut |marks| {
            alive.insert(marks.id);
            judged += 1;
            observer.progress(StageProgress {
                stage: "judging",
                done: judged,
                total,
            });
            let stored = lens.get(&marks.id).copied().unwrap_or(0);
            judge.container(marks, stored)
        })?;
        let Judge {
            mut plan,
            is_astray,
            ..
        } = judge;
        for id in self.protocol.listed().as_slice() {
            let bytes = lens.get(id).copied().unwrap_or(0);
            self.report.containers += 1;
            self.report.stored_bytes += bytes;
            if !alive.contains(id) {
                if let Some(error) = opened::other_version(&self.repository.shared, *id) {
                    tracing::warn!("{error}: the container stays as it is");
                    continue;
                }
                self.report.dead_containers += 1;
                self.report.dead_bytes += bytes;
                plan.dead.push(*id);
            }
        }
        choose::choose(options, &mut self.report, &mut plan);
        if is_astray {
            return Ok(None);
        }
        let staying = last_copies(&mut self.reader, &plan, &mut marks, observer)?;
        if !staying.is_empty() {
            self.keep(&staying, &mut plan, &lens);
        }
        Ok(Some(plan))
    }

    /// Takes containers out of the plan.
    fn keep(
        &mut self,
        staying: &HashSet<ContainerId>,
        plan: &mut SweepPlan,
        lens: &HashMap<ContainerId, u64>,
    ) {
        tracing::warn!(
            "what may be the last good copy of something stays (containers: {}): run `onefold repair`",
            staying.len()
        );
        plan.dead.retain(|id| {
            let stays = staying.contains(id);
            if stays {
                let bytes = lens.get(id).copied().unwrap_or(0);
                self.report.dead_containers -= 1;
                self.report.dead_bytes -= bytes;
                self.report.unused_bytes_left += bytes;
            }
            !stays
        });
        plan.compact.retain(|candidate| {
            let stays = staying.contains(&candidate.id);
            if stays {
                self.report.leave(candidate);
            }
            !stays
        });
    }
}

/// Looks for chunks that the index does not know in all tables of `listed`. Gives the containers whose tables cannot be
/// had: such a chunk may be in any of them, and a repair may bring it back.
pub(super) fn search_unresolved(
    listed: &[ContainerId],
    reader: &mut ChunkReader,
    unresolved: &HashSet<Fingerprint>,
    marks: &mut Marks,
) -> Result<HashSet<ContainerId>> {
    let mut closed = HashSet::new();
    if unresolved.is_empty() {
        return Ok(closed);
    }
    for id in listed {
        let opened = match reader.open(*id) {
            Ok(opened) => opened,
            Err(error) if error.is_not_found() => continue,
            Err(error) if error.is_loss() => {
                tracing::warn!("{error}: it stays, for it may hold a chunk that is missing");
                closed.insert(*id);
                continue;
            }
            Err(error) => return Err(error),
        };
        let held = opened.table.chunks.iter().map(|(held, _)| held);
        for fingerprint in held.filter(|held| unresolved.contains(held)) {
            marks.add(*id, fingerprint, MarkOrigin::Followed)?;
        }
    }
    Ok(closed)
}

/// Whether a container that references were followed to holds what they mean. Where it does not, or cannot be opened,
/// the index has led astray, as far as anybody can tell: the chunks may be where they came from.
pub(super) fn is_proved(reader: &mut ChunkReader, marks: &ContainerMarks) -> Result<bool> {
    let why = match reader.open(marks.id) {
        Ok(opened) if holds_all(&opened, &marks.prefixes) => return Ok(true),
        Ok(_) => "the index names it for chunks that it does not hold".into(),
        Err(error) if error.is_damage() => error.to_string(),
        Err(error) => return Err(error),
    };
    let object = container::object_name(marks.id);
    tracing::warn!("{object}: {why}; run `onefold repair`");
    Ok(false)
}

/// Decides on containers that something refers to, one after the other.
struct Judge<'a> {
    repository: &'a Repository,
    reader: &'a mut ChunkReader,
    options: &'a SweepOptions,
    /// Containers that were condemned before.
    condemned: &'a Sorted<ContainerId>,
    report: &'a mut SweepReport,
    plan: SweepPlan,
    /// The index has led astray: nothing may be deleted.
    is_astray: bool,
}

impl Judge<'_> {
    /// Decides on one, of `stored` bytes.
    fn container(&mut self, marks: ContainerMarks, stored: u64) -> Result<()> {
        if marks.followed && !is_proved(self.reader, &marks)? {
            self.is_astray = true;
            return Ok(());
        }
        // Most containers are wholly alive: their footer tells that without the table.
        let footer = read_footer(&self.repository.shared, marks.id);
        let Some(footer) = unless_it_stays(footer)? else {
            return Ok(());
        };
        let is_condemned = self.condemned.contains(&marks.id);
        let may_stay_whole = !is_condemned && stored >= self.options.rewrite_smaller_than;
        if marks.prefixes.len() >= footer.chunks as usize && !marks.followed && may_stay_whole {
            return Ok(());
        }
        let Some(opened) = unless_it_stays(self.reader.open(marks.id))? else {
            return Ok(());
        };
        let candidate = Candidate {
            is_condemned,
            ..weighed(&opened, &marks, stored)
        };
        if candidate.is_one(self.options) {
            self.plan.candidates.push(candidate);
        } else {
            self.report.unused_bytes_left += candidate.dead_bytes;
        }
        Ok(())
    }
}

/// `None` of a container that stays as it is, since it is damaged or of another version.
fn unless_it_stays<T>(read: Result<T>) -> Result<Option<T>> {
    tolerate(read, |error| {
        tracing::warn!("{error}: the container stays as it is");
    })
}

/// Weighs a container: how much of it is alive.
fn weighed(opened: &Opened, marks: &ContainerMarks, stored: u64) -> Candidate {
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
    Candidate {
        id: marks.id,
        stream: opened.header.stream,
        live,
        stored,
        is_condemned: false,
        dead_bytes: (stored as f64 * (1.0 - share)) as u64,
        share,
    }
}

fn holds_all(opened: &Opened, prefixes: &[u64]) -> bool {
    prefixes.iter().all(|prefix| opened.holds_prefix(*prefix))
}
