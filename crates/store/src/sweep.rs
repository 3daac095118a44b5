//! Sweep: garbage collection beside running sessions, without a lock that they would wait for. ARCHITECTURE.md, "Sweep beside backups".
//!
//! Always holds: a container is deleted only when it has been condemned durably, every session that could have missed that is over, and
//! no root that came up since refers to it; and what it held that is referred to is durable elsewhere, and the index knows where.

mod choose;

use std::collections::HashSet;

use onefold_index::ContainerId;
use onefold_io::{LockGuard, LockKind};

use crate::container::{self, StreamKind};
use crate::ingested::Ingested;
use crate::leftovers;
use crate::mark::{ContainerMarks, Marker, Marks};
use crate::opened::{Opened, read_footer};
use crate::pin::{self, PinInfo};
use crate::reader::ChunkReader;
use crate::repository::Repository;
use crate::roots::{RootId, Roots};
use crate::session::SessionKind;
use crate::{Error, Result, condemned};

use choose::{Candidate, Live};

/// What the sweep may do.
#[derive(Clone, Debug)]
pub struct SweepOptions {
    /// Only look and report.
    pub dry_run: bool,
    /// A container whose share of live bytes is below this is rewritten; 0 rewrites none.
    pub compact_below: f64,
    /// Instead of that: containers are rewritten, those with most to gain first, until no more than this is unused.
    pub unused_max: Option<Unused>,
    /// Containers of fewer bytes are rewritten too, if there are several: what many small backups leave behind becomes whole containers.
    pub rewrite_smaller_than: u64,
    /// No more than so many bytes of containers are rewritten.
    pub rewrite_bytes_max: Option<u64>,
}

/// How much may be left unused.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Unused {
    /// So many bytes.
    Bytes(u64),
    /// This share of what is stored then, below 1.
    Share(f64),
}

impl Unused {
    /// In bytes, where `used` bytes are in use.
    fn bytes(self, used: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) if share >= 1.0 => u64::MAX,
            Self::Share(share) => (share / (1.0 - share) * used as f64) as u64,
        }
    }
}

impl Default for SweepOptions {
    /// Containers that are less than 70 % alive are rewritten.
    fn default() -> Self {
        Self {
            dry_run: false,
            compact_below: 0.7,
            unused_max: None,
            rewrite_smaller_than: 0,
            rewrite_bytes_max: None,
        }
    }
}

/// How far something long has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What is done now, in a word or two.
    pub stage: &'static str,
    /// Items of the stage that are done.
    pub done: u64,
    /// Items of the stage in all; 0 where that is not known.
    pub total: u64,
}

/// How its user takes part in the sweep.
pub trait SweepObserver {
    /// Told from time to time.
    fn progress(&mut self, progress: Progress);

    /// Called while sessions that began before are still running; returns false to leave the rest to a later sweep. Sleeps as it likes.
    fn wait_for(&mut self, sessions: &[PinInfo]) -> bool;
}

/// What a sweep found and did. Bytes are of containers as stored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SweepReport {
    /// Containers there were, and their bytes.
    pub containers: u64,
    /// Their bytes.
    pub stored_bytes: u64,
    /// Containers nothing refers to.
    pub dead_containers: u64,
    /// Their bytes.
    pub dead_bytes: u64,
    /// Containers that were, or would be, rewritten.
    pub compacted_containers: u64,
    /// Their bytes.
    pub compacted_bytes: u64,
    /// An estimate of their bytes that nothing refers to.
    pub compacted_dead_bytes: u64,
    /// An estimate of bytes that nothing refers to in containers that are left as they are.
    pub unused_bytes_left: u64,
    /// Containers deleted.
    pub deleted_containers: u64,
    /// Bytes freed by the deletions, less those written.
    pub freed_bytes: u64,
    /// Condemned containers that were left to a later sweep, because sessions were running.
    pub pending_containers: u64,
}

/// What becomes of the containers.
#[derive(Default)]
struct Verdict {
    dead: Vec<ContainerId>,
    compact: Vec<(ContainerId, Live)>,
    candidates: Vec<Candidate>,
}

impl Repository {
    /// Reclaims what no root refers to. See the module. Where the disk is full, the index is thrown away to make room, and made anew behind what was
    /// reclaimed.
    ///
    /// # Errors
    /// [`Error::Locked`] while another sweep runs; damage of a root: what it kept alive cannot be known then.
    pub fn sweep(
        &self,
        roots: &dyn Roots,
        options: &SweepOptions,
        observer: &mut dyn SweepObserver,
    ) -> Result<SweepReport> {
        match self.sweep_once(roots, options, observer) {
            Err(error) if error.is_no_space() && !options.dry_run => {
                tracing::warn!(
                    "no space left to sweep: the index makes room, and only whole containers go"
                );
                self.forget_index()?;
                let whole_only = SweepOptions {
                    compact_below: 0.0,
                    unused_max: None,
                    rewrite_smaller_than: 0,
                    ..options.clone()
                };
                self.sweep_once(roots, &whole_only, observer)
            }
            other => other,
        }
    }

    fn sweep_once(
        &self,
        roots: &dyn Roots,
        options: &SweepOptions,
        observer: &mut dyn SweepObserver,
    ) -> Result<SweepReport> {
        let _lock = self.lock_sweep()?;
        if !options.dry_run {
            self.clear_after_the_dead()?;
        }
        let session = self.session(SessionKind::Backup)?;
        let mut sweep = Sweep::begin(self, roots, session.reader()?)?;
        let verdict = sweep.judge(options, observer)?;
        if options.dry_run {
            return Ok(sweep.report);
        }
        let written = sweep.compact(&session, &verdict, observer)?;
        session.finish()?;
        let mut list = verdict.dead;
        list.extend(verdict.compact.iter().map(|(id, _)| *id));
        sweep.delete(list, observer)?;
        sweep.report.freed_bytes = sweep.report.freed_bytes.saturating_sub(written);
        Ok(sweep.report)
    }

    /// Whoever died left a pin and perhaps half a container: looking at pins removes those of the dead; containers go when nobody lives.
    /// For the holder of the sweep's lock.
    pub(crate) fn clear_after_the_dead(&self) -> Result<()> {
        let unfinished = leftovers::list(&self.shared.root)?;
        if pin::living(&*self.shared.root)?.is_empty() {
            leftovers::remove(&unfinished)?;
        }
        Ok(())
    }

    /// One sweep, check or repair that writes at a time.
    pub(crate) fn lock_sweep(&self) -> Result<Box<dyn LockGuard>> {
        let locks = self.shared.root.subdir("locks")?;
        let held = || Error::Locked {
            what: "another prune or repair is running".into(),
        };
        locks.lock("sweep", LockKind::Exclusive)?.ok_or_else(held)
    }
}

/// A sweep under way; also how `repair` deletes containers.
pub(crate) struct Sweep<'a> {
    repository: &'a Repository,
    roots: &'a dyn Roots,
    reader: ChunkReader,
    listed: Vec<ContainerId>,
    /// What an earlier sweep condemned and did not delete.
    inherited: Vec<ContainerId>,
    marked: HashSet<RootId>,
    pub(crate) report: SweepReport,
}

impl<'a> Sweep<'a> {
    /// Containers are listed before roots are: what a root refers to was there before the root was.
    pub(crate) fn begin(
        repository: &'a Repository,
        roots: &'a dyn Roots,
        reader: ChunkReader,
    ) -> Result<Self> {
        let shared = &repository.shared;
        let inherited = condemned::read(&*shared.objects)?;
        let listed = shared.containers()?;
        Ok(Self {
            repository,
            roots,
            reader,
            listed,
            inherited,
            marked: HashSet::new(),
            report: SweepReport::default(),
        })
    }

    /// Marks from all roots and decides on every container.
    fn judge(
        &mut self,
        options: &SweepOptions,
        observer: &mut dyn SweepObserver,
    ) -> Result<Verdict> {
        let mut marks = Marks::new(&*self.repository.shared.root)?;
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

    fn lengths(&self) -> Result<std::collections::HashMap<ContainerId, u64>> {
        let listed = self.repository.shared.objects.list("containers")?;
        Ok(listed
            .iter()
            .filter_map(|(name, len)| Some((container::id_of_object(name)?, *len)))
            .collect())
    }

    /// Looks for chunks that the index does not know in all descriptors.
    fn search_unresolved(
        &mut self,
        unresolved: HashSet<onefold_chunk::Fingerprint>,
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

    /// Copies what lives of the containers worth it into new ones, in order. Gives the bytes written.
    fn compact(
        &mut self,
        session: &crate::Session,
        verdict: &Verdict,
        observer: &mut dyn SweepObserver,
    ) -> Result<u64> {
        let mut written = 0;
        for stream in [StreamKind::Data, StreamKind::Metadata] {
            let mut writer = session.writer(stream)?;
            for (i, (id, live)) in verdict.compact.iter().enumerate() {
                observer.progress(Progress {
                    stage: "compacting",
                    done: i as u64,
                    total: verdict.compact.len() as u64,
                });
                let opened = self.reader.open(*id)?;
                if opened.header.stream != stream {
                    continue;
                }
                let wanted: Vec<_> = (0..)
                    .zip(&opened.table.chunks)
                    .filter(|(number, _)| live.contains(*number))
                    .map(|(_, (fingerprint, _))| *fingerprint)
                    .collect();
                self.reader
                    .read_container(*id, &wanted, &mut |fingerprint, data| {
                        writer.write_again(*fingerprint, data)
                    })?;
            }
            written += writer.finish()?.stored_bytes;
        }
        Ok(written)
    }

    /// Condemns `list`, waits out the sessions that may refer to it, acquits what new roots refer to, and deletes the rest.
    pub(crate) fn delete(
        &mut self,
        mut list: Vec<ContainerId>,
        observer: &mut dyn SweepObserver,
    ) -> Result<()> {
        let shared = &self.repository.shared;
        if list.is_empty() && self.inherited.is_empty() {
            return Ok(());
        }
        list.sort_unstable();
        condemned::write(&*shared.objects, &list)?;
        if !self.wait(observer)? {
            self.report.pending_containers = list.len() as u64;
            return Ok(());
        }
        self.acquit(&mut list)?;
        let lens = self.lengths()?;
        shared.with_index(|index| {
            index.retire(&list)?;
            Ok(index.checkpoint()?)
        })?;
        for (i, id) in list.iter().enumerate() {
            observer.progress(Progress {
                stage: "deleting",
                done: i as u64,
                total: list.len() as u64,
            });
            shared.objects.delete(&container::object_name(*id))?;
            self.report.deleted_containers += 1;
            self.report.freed_bytes += lens.get(id).copied().unwrap_or(0);
        }
        Ingested::new(std::sync::Arc::clone(&shared.index_dir)).remove(&list)?;
        shared.objects.delete(condemned::CONDEMNED_OBJECT)
    }

    /// Deletes damaged containers whose good chunks are durable elsewhere: roots that refer to them are no reason to keep them.
    pub(crate) fn delete_damaged(
        &mut self,
        list: Vec<ContainerId>,
        observer: &mut dyn SweepObserver,
    ) -> Result<()> {
        self.marked.extend(self.repository.roots()?);
        self.delete(list, observer)
    }

    /// Returns when every session that lives now, and began before the list was durable, is over; false where the observer gave up.
    fn wait(&self, observer: &mut dyn SweepObserver) -> Result<bool> {
        let root = &*self.repository.shared.root;
        let mut waited_for: HashSet<String> = pin::living(root)?
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        loop {
            let living: Vec<_> = pin::living(root)?
                .into_iter()
                .filter(|(name, _)| waited_for.contains(name))
                .collect();
            if living.is_empty() {
                return Ok(true);
            }
            let infos: Vec<_> = living.iter().map(|(_, info)| info.clone()).collect();
            if !observer.wait_for(&infos) {
                return Ok(false);
            }
            waited_for = living.into_iter().map(|(name, _)| name).collect();
        }
    }

    /// Takes off the list what roots refer to that came up since the marking.
    fn acquit(&mut self, list: &mut Vec<ContainerId>) -> Result<()> {
        let mut marker = Marker::new(self.repository, &self.listed, &[]);
        let mut marks = Marks::new(&*self.repository.shared.root)?;
        for id in self.repository.roots()? {
            if self.marked.insert(id) {
                marker.mark(&id, self.roots, &mut self.reader, &mut marks.taker())?;
                if let Some((_, error)) = marker.damaged.pop() {
                    return Err(error);
                }
            }
        }
        let mut acquitted = HashSet::new();
        marks.for_each(&mut |marks| {
            acquitted.insert(marks.id);
            Ok(())
        })?;
        list.retain(|id| !acquitted.contains(id));
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
