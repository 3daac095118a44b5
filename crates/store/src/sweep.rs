//! Sweep: garbage collection beside running sessions, without a lock that they would wait for. ARCHITECTURE.md, "Sweep
//! beside backups".
//!
//! Always holds: a container is deleted only when it has been condemned durably, every session that could have missed
//! that is over, and no root that came up since refers to it; and what it held that is referred to is durable
//! elsewhere, and the index knows where.

mod choose;
mod judge;
mod last_copies;
mod report;
mod sift;

use std::collections::{HashMap, HashSet};

use onefold_index::ContainerId;

use crate::container::{self, StreamKind};
use crate::marker::Marker;
use crate::marks::Marks;
use crate::reader::ChunkReader;
use crate::registry::Lock;
use crate::repository::Repository;
use crate::roots::{RootId, Roots};
use crate::session::SessionKind;
use crate::writer::ChunkWriter;
use crate::{Error, Result, condemned};

use choose::Candidate;
use judge::{is_proved, search_unresolved};
pub use report::{Progress, SweepObserver, SweepOptions, SweepReport, Unused};

/// Of containers that are rewritten at once where there is little room, in bytes: one, and a little.
const ROUND_BYTES_MIN: u64 = 20 << 20;

impl Repository {
    /// Reclaims what no root refers to. See the module. Where the disk is full, the index is thrown away to make room,
    /// and made anew by the next who writes; then a little is rewritten at a time.
    ///
    /// # Errors
    /// [`Error::Locked`](crate::Error::Locked) while another sweep runs, unless this is a dry run; damage of a root:
    /// what it kept alive cannot be known then.
    pub fn sweep(
        &self,
        roots: &dyn Roots,
        options: &SweepOptions,
        observer: &mut dyn SweepObserver,
    ) -> Result<SweepReport> {
        match self.sweep_once(SessionKind::Backup, roots, options, observer) {
            Err(error) if error.is_no_space() && !options.dry_run => {
                tracing::warn!(
                    "no space left to sweep: the index makes room, and only whole containers go"
                );
                match self.forget_index() {
                    // It is gone, but a new one does not even get a file: none is needed.
                    Err(error) if error.is_no_space() => tracing::warn!("{error}"),
                    other => other?,
                }
                let whole_only = SweepOptions {
                    compact_below: 0.0,
                    unused_max: None,
                    rewrite_smaller_than: 0,
                    ..options.clone()
                };
                // It writes nothing, so its session need not tell the index what it missed, which is all.
                let report = self.sweep_once(SessionKind::Read, roots, &whole_only, observer)?;
                self.rewrite_in_rounds(roots, options, report, observer)
                    .and_then(|report| {
                        if report.freed_bytes > 0 {
                            Ok(report)
                        } else {
                            Err(error)
                        }
                    })
            }
            other => other,
        }
    }

    /// Rewrites a little, which makes room to rewrite more, until nothing is left to rewrite or there is no room even
    /// for that.
    fn rewrite_in_rounds(
        &self,
        roots: &dyn Roots,
        options: &SweepOptions,
        mut report: SweepReport,
        observer: &mut dyn SweepObserver,
    ) -> Result<SweepReport> {
        let mut left = options.rewrite_bytes_max.unwrap_or(u64::MAX);
        loop {
            let round = SweepOptions {
                rewrite_bytes_max: Some(left.min(ROUND_BYTES_MIN.max(report.freed_bytes))),
                ..options.clone()
            };
            match self.sweep_once(SessionKind::Backup, roots, &round, observer) {
                Err(error) if error.is_no_space() => return Ok(report),
                Err(error) => return Err(error),
                Ok(more) => {
                    left = left.saturating_sub(more.compacted_bytes);
                    report.add(&more);
                    // What is left has little to give, or a session holds it.
                    if more.compacted_containers == 0 || more.freed_bytes == 0 {
                        return Ok(report);
                    }
                }
            }
        }
    }

    fn sweep_once(
        &self,
        kind: SessionKind,
        roots: &dyn Roots,
        options: &SweepOptions,
        observer: &mut dyn SweepObserver,
    ) -> Result<SweepReport> {
        if options.dry_run {
            return self.look(roots, options, observer);
        }
        let _lock = self.shared.place.registry.lock(Lock::Sweep)?;
        self.clear_after_the_dead()?;
        let session = self.session(kind)?;
        let mut sweep = Sweep::begin(self, roots, session.reader()?)?;
        let marks = || Marks::new(&*self.shared.place.own);
        let verdict = sweep.judge(&marks, options, observer)?;
        let (rewritten, written) = sweep.compact(&session, &verdict.compact, observer)?;
        let mut list = verdict.dead;
        list.extend(rewritten);
        sweep.delete(list, session, observer)?;
        sweep.report.freed_bytes = sweep.report.freed_bytes.saturating_sub(written);
        Ok(sweep.report)
    }

    /// What a sweep would do now. It only reads, so it waits for nobody: beside another sweep it tells of a moment in
    /// between.
    fn look(
        &self,
        roots: &dyn Roots,
        options: &SweepOptions,
        observer: &mut dyn SweepObserver,
    ) -> Result<SweepReport> {
        let session = self.session(SessionKind::Read)?;
        let mut sweep = Sweep::begin(self, roots, session.reader()?)?;
        sweep.judge(&|| Ok(Marks::temporary()), options, observer)?;
        session.finish()?;
        Ok(sweep.report)
    }

    /// Whoever died left a pin and perhaps half a container: looking at pins removes those of the dead; containers go
    /// when nobody lives. For the holder of the sweep's lock.
    pub(crate) fn clear_after_the_dead(&self) -> Result<()> {
        let unfinished = self.shared.objects.unfinished()?;
        if self.shared.place.registry.living()?.is_empty() {
            self.shared.objects.clear_unfinished(&unfinished)?;
        }
        Ok(())
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

    fn lengths(&self) -> Result<HashMap<ContainerId, u64>> {
        let shared = &self.repository.shared;
        Ok(shared
            .container_lengths_past(&mut Err)?
            .into_iter()
            .collect())
    }

    /// Copies what lives of the containers worth it into new ones, in order. Gives those that were copied, and the
    /// bytes written.
    fn compact(
        &mut self,
        session: &crate::Session,
        worth: &[Candidate],
        observer: &mut dyn SweepObserver,
    ) -> Result<(Vec<ContainerId>, u64)> {
        let (mut copied, mut written) = (Vec::new(), 0);
        for stream in [StreamKind::Data, StreamKind::Metadata] {
            let mut writer = session.writer(stream)?;
            for (candidate, done) in worth.iter().zip(0..) {
                observer.progress(Progress {
                    stage: "compacting",
                    done,
                    total: worth.len() as u64,
                });
                if candidate.stream != stream {
                    continue;
                }
                if self.copy(candidate, &mut writer)? {
                    copied.push(candidate.id);
                } else {
                    self.report.leave(candidate);
                }
            }
            written += writer.finish()?.stored_bytes;
        }
        Ok((copied, written))
    }

    /// Copies what lives of a container; `false` where not all of it can be had, so that it must stay. All of it is
    /// read before any is written: of a container with a bad block each sweep would write a part again, for the next to
    /// remove.
    fn copy(&mut self, candidate: &Candidate, writer: &mut ChunkWriter) -> Result<bool> {
        let id = candidate.id;
        let mut is_writing = false;
        let reader = &mut self.reader;
        let read = reader.open(id).and_then(|opened| {
            let chunks = (0..).zip(&opened.table.chunks);
            let live = chunks.filter(|(number, _)| candidate.live.contains(*number));
            let wanted: Vec<_> = live.map(|(_, (fingerprint, _))| *fingerprint).collect();
            let lost = reader.read_container(id, &wanted, &mut |_, _| Ok(()))?;
            if !lost.is_empty() {
                return Ok(lost);
            }
            reader.read_container(id, &wanted, &mut |fingerprint, data| {
                is_writing = true;
                writer.write_again(*fingerprint, data)?;
                is_writing = false;
                Ok(())
            })
        });
        match read {
            Err(error) if (error.is_loss() || error.is_other_version()) && !is_writing => {
                tracing::warn!("{error}: the container stays as it is; run `onefold repair`");
                Ok(false)
            }
            other => Ok(other?.is_empty()),
        }
    }

    /// Condemns `list`, waits out the sessions that may refer to it, acquits what new roots refer to, and deletes the
    /// rest. `session` wrote what takes the place of what is on it.
    ///
    /// # Errors
    /// [`Error::Overtaken`]: nothing was deleted.
    pub(crate) fn delete(
        &mut self,
        mut list: Vec<ContainerId>,
        session: crate::Session,
        observer: &mut dyn SweepObserver,
    ) -> Result<()> {
        let shared = &self.repository.shared;
        if list.is_empty() && self.inherited.is_empty() {
            return session.finish();
        }
        list.sort_unstable();
        session.confirm_not_overtaken()?;
        condemned::write(&*shared.objects, &list)?;
        let condemned = list.clone();
        // A sweep that takes this session for dead removes its pin, then reads the list: with the pin still there, it
        // will follow what is on it to the copies.
        session.confirm_not_overtaken()?;
        session.finish()?;
        if !self.wait(observer)? {
            self.report.pending_containers = list.len() as u64;
            return Ok(());
        }
        self.acquit(&mut list)?;
        // Without it who begins counts on what is on it.
        if condemned::read(&*shared.objects)? != condemned {
            let object = condemned::CONDEMNED_OBJECT.into();
            return Err(Error::Overtaken { object });
        }
        // A root that was removed must not come back, in a power cut, when what it refers to is gone: whoever removed
        // it may have died before that was durable.
        shared.keep_roots()?;
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
            let object = container::object_name(*id);
            let bytes = shared.objects.len(&object).unwrap_or(0);
            shared.objects.delete(&object)?;
            self.report.deleted_containers += 1;
            self.report.freed_bytes += bytes;
        }
        shared.with_index(|index| Ok(index.ingested().remove(&list)?))?;
        shared.objects.delete(condemned::CONDEMNED_OBJECT)
    }

    /// Deletes damaged containers whose good chunks are durable elsewhere: roots that refer to them are no reason to
    /// keep them.
    pub(crate) fn delete_damaged(
        &mut self,
        list: Vec<ContainerId>,
        session: crate::Session,
        observer: &mut dyn SweepObserver,
    ) -> Result<()> {
        self.marked.extend(self.repository.roots()?);
        self.delete(list, session, observer)
    }

    /// Returns when every session that lives now, and began before the list was durable, is over; false where the
    /// observer gave up.
    fn wait(&self, observer: &mut dyn SweepObserver) -> Result<bool> {
        let registry = &*self.repository.shared.place.registry;
        let living = registry.living()?.into_iter();
        let mut waited_for: HashSet<String> = living.map(|session| session.name).collect();
        loop {
            let mut living = registry.living()?;
            living.retain(|session| waited_for.contains(&session.name));
            if living.is_empty() {
                return Ok(true);
            }
            let infos: Vec<_> = living.iter().map(|session| session.info.clone()).collect();
            if !observer.wait_for(&infos) {
                return Ok(false);
            }
            waited_for = living.into_iter().map(|session| session.name).collect();
        }
    }

    /// Takes off the list what roots refer to that came up since the marking, wherever the index or the tables say that
    /// it is.
    fn acquit(&mut self, list: &mut Vec<ContainerId>) -> Result<()> {
        let shared = &self.repository.shared;
        let mut marks = Marks::new(&*shared.place.own)?;
        let mut unresolved = HashSet::new();
        // One that is removed while we come to it was given another name, perhaps: that is listed then.
        loop {
            let new: Vec<_> = self.repository.roots()?;
            let new: Vec<_> = new
                .into_iter()
                .filter(|id| !self.marked.contains(id))
                .collect();
            // After the roots: what they refer to was there before they were.
            let listed = shared.containers()?;
            let mut marker = Marker::new(self.repository, &listed, &[]);
            let mut all_read = true;
            for id in new {
                if marker.mark(&id, self.roots, &mut self.reader, &mut marks.taker())? {
                    self.marked.insert(id);
                } else {
                    all_read = false;
                }
                if let Some((_, error)) = marker.damaged.pop() {
                    return Err(error);
                }
            }
            unresolved.extend(marker.unresolved.into_keys());
            if all_read {
                break;
            }
        }
        let mut acquitted = search_unresolved(list, &mut self.reader, &unresolved, &mut marks)?;
        let mut proved = true;
        let reader = &mut self.reader;
        marks.for_each(&mut |marks| {
            proved &= !marks.followed || is_proved(reader, &marks)?;
            acquitted.insert(marks.id);
            Ok(())
        })?;
        list.retain(|id| proved && !acquitted.contains(id));
        Ok(())
    }
}
