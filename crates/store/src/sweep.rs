//! Sweep: garbage collection beside running sessions, without a lock that they would wait for. ARCHITECTURE.md, "Sweep
//! beside backups".
//!
//! Invariant: a container is deleted only when it has been condemned durably, every session that could have missed
//! that is over, and no root that came up since refers to it; and what it held that is referred to is durable
//! elsewhere, and the index knows where. What was condemned durably is never counted on again: what still lives of it
//! is copied out, and then it goes. The order of all that is the machine's ([`protocol::SweepMachine`]).

mod catalogs;
mod choose;
mod chunk_filter;
pub mod condemned;
mod delete;
pub mod forgotten;
mod judge;
mod last_copies;
pub(crate) mod marker;
pub(crate) mod marks;
mod plan;
mod report;
mod sift;
pub(crate) mod spilled;
pub(crate) mod twins;

use std::collections::{HashMap, HashSet};

use onefold_index::ContainerId;

use crate::Result;
use crate::container::StreamKind;
use crate::protocol::{self, Names, ProtocolRules, Sorted};
use crate::reader::ChunkReader;
use crate::registry::{Held, Lock};
use crate::repository::Repository;
use crate::roots::{RootId, Roots};
use crate::session::writer::ChunkWriter;
use crate::session::{Session, SessionKind};
use crate::sweep::condemned::{List, ListId};
use crate::sweep::marks::Marks;

use plan::Candidate;
pub use report::{StageProgress, SweepObserver, SweepOptions, SweepReport, Unused};

/// Bytes of containers that are rewritten at once where there is little room: one container, and a little.
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
                    // The index is gone, but there is no room even for an empty file of a new one: none is needed.
                    Err(error) if error.is_no_space() => tracing::warn!("{error}"),
                    other => other?,
                }
                let whole_only = SweepOptions {
                    compact_below: 0.0,
                    unused_max: None,
                    rewrite_smaller_than: 0,
                    rewrite_bytes_max: Some(0),
                    ..options.clone()
                };
                // This sweep writes nothing, so its session need not tell the new index of all containers.
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
                    // The other candidates have little to give, or a session holds them.
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
        let lock = self.shared.place.registry.lock(Lock::Sweep)?;
        let session = self.session_in_the_place_of_the_dead(kind)?;
        let mut sweep = Sweep::begin(self, roots, session.reader()?, Some(&*lock))?;
        sweep.grace_s = options.grace_s.unwrap_or(sweep.grace_s);
        let marks = || Marks::new(&*self.shared.place.own);
        let plan = sweep.judge(&marks, options, observer)?;
        let (copied, written) = sweep.compact(&session, &plan.compact, observer)?;
        let mut going = plan.dead;
        going.extend(copied);
        let not_rescued = sweep.protocol.inherited().minus(&going.clone().into());
        sweep.delete(going, not_rescued, session, observer)?;
        self.clear_forgotten()?;
        sweep.report.freed_bytes = sweep.report.freed_bytes.saturating_sub(written);
        Ok(sweep.report)
    }

    /// Reports what a sweep would do now. A look only reads, so it waits for nobody: beside another sweep it tells of a
    /// moment in between.
    fn look(
        &self,
        roots: &dyn Roots,
        options: &SweepOptions,
        observer: &mut dyn SweepObserver,
    ) -> Result<SweepReport> {
        let session = self.session(SessionKind::Read)?;
        let mut sweep = Sweep::begin(self, roots, session.reader()?, None)?;
        sweep.judge(&|| Ok(Marks::temporary()), options, observer)?;
        session.finish()?;
        Ok(sweep.report)
    }

    /// A session of the holder of the sweep's lock: nobody who held it before, and is dead or taken for dead, can
    /// confirm its place any longer. The list that a version before this left becomes one like others.
    pub(crate) fn session_in_the_place_of_the_dead(&self, kind: SessionKind) -> Result<Session> {
        let shared = &self.shared;
        let session = self.session(kind)?;
        self.clear_after_the_dead(session.pin_name())?;
        condemned::take_over(&*shared.objects, shared.options.entropy.try_u64()?)?;
        Ok(session)
    }

    /// Clears what dead processes left: a pin, and perhaps half a container. Looking at pins removes those of the dead;
    /// containers go when no session lives but the one whose pin is `own`. The caller holds the sweep's lock.
    pub(crate) fn clear_after_the_dead(&self, own: Option<&str>) -> Result<()> {
        let unfinished = self.shared.objects.unfinished()?;
        let mut living = self.shared.place.registry.living()?.into_iter();
        if living.all(|session| Some(&*session.name) == own) {
            self.shared.objects.clear_unfinished(&unfinished)?;
        }
        forgotten::clear_old(&*self.shared.objects)
    }
}

/// A sweep under way; also how `repair` deletes containers. The machine says what comes next.
pub(crate) struct Sweep<'a> {
    repository: &'a Repository,
    roots: &'a dyn Roots,
    reader: ChunkReader,
    protocol: protocol::SweepMachine<Sorted<ContainerId>, Sorted<RootId>, Sorted<ListId>>,
    /// The lists that earlier sweeps left.
    lists: Vec<List>,
    /// How long a list waits before anything on it is deleted, in seconds.
    grace_s: u64,
    /// Lists that wait still.
    graced: HashSet<ListId>,
    marked: HashSet<RootId>,
    /// The sweep's lock; a dry run takes none.
    lock: Option<&'a dyn Held>,
    pub(crate) report: SweepReport,
}

impl<'a> Sweep<'a> {
    /// For the holder of the sweep's `lock`, whose session began in it; or for a dry run. Containers are listed before
    /// roots are: what a root refers to was there before the root was.
    pub(crate) fn begin(
        repository: &'a Repository,
        roots: &'a dyn Roots,
        reader: ChunkReader,
        lock: Option<&'a dyn Held>,
    ) -> Result<Self> {
        let shared = &repository.shared;
        let mut protocol = protocol::SweepMachine::new(ProtocolRules::default());
        protocol.lock_taken();
        protocol.begun();
        protocol.others_revoked();
        let lists = condemned::lists(&*shared.objects)?;
        let names: Vec<_> = lists.iter().map(|(id, _)| *id).collect();
        protocol.lists_read(names.into(), condemned::containers(&lists).into());
        protocol.containers_listed(shared.containers()?.into());
        Ok(Self {
            repository,
            roots,
            reader,
            protocol,
            lists,
            grace_s: shared.place.ways.grace_s,
            graced: HashSet::new(),
            marked: HashSet::new(),
            lock,
            report: SweepReport::default(),
        })
    }

    /// Returns the containers that earlier sweeps condemned and did not delete, sorted.
    fn inherited(&self) -> &[ContainerId] {
        self.protocol.inherited().as_slice()
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
        session: &Session,
        worth: &[Candidate],
        observer: &mut dyn SweepObserver,
    ) -> Result<(Vec<ContainerId>, u64)> {
        let (mut copied, mut written) = (Vec::new(), 0);
        for stream in [StreamKind::Data, StreamKind::Metadata] {
            let mut writer = session.writer(stream)?;
            for (candidate, done) in worth.iter().zip(0..) {
                observer.progress(StageProgress {
                    stage: "compacting",
                    done,
                    total: worth.len() as u64,
                });
                if candidate.stream != stream {
                    continue;
                }
                if self.copy(candidate, &mut writer)? {
                    session.copied(candidate.id);
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
            Err(error) if error.is_unusable() && !is_writing => {
                tracing::warn!("{error}: the container stays as it is; run `onefold repair`");
                Ok(false)
            }
            other => Ok(other?.is_empty()),
        }
    }
}
