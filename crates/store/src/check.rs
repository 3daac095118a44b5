//! Check: is everything there that the roots refer to, and is it what was written? Changes nothing, and stops neither
//! at damage nor where the device does not give what is stored.

mod depth;
mod references;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

pub use depth::CheckDepth;
use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use onefold_io::ErrorKind;
use references::References;

use crate::container::CONTAINER_FOLDER;
use crate::container::compression::Decompressor;
use crate::container::opened::Opened;
use crate::error::{chunks_are, tolerate};
use crate::repair::aside::Aside;
use crate::repository::Repository;
use crate::repository::config::{self, CONFIG, CONFIG_COPY_OBJECT, CONFIG_OBJECT};
use crate::repository::slots::{self, Slot};
use crate::roots::{RootId, Roots};
use crate::session::SessionKind;
use crate::sweep::StageProgress;
use crate::sweep::marker::Marker;
use crate::{ChunkRef, Error, Result, sweep::condemned};

/// Findings of a check.
#[derive(Default, Debug)]
pub struct CheckReport {
    /// Roots looked at.
    pub roots: u64,
    /// Containers looked at.
    pub containers: u64,
    /// Containers whose contents were read.
    pub containers_read: u64,
    /// Chunks whose content was verified.
    pub chunks_read: u64,
    /// Everything that is not as it was written, in words, in order of discovery.
    pub damage: Vec<Error>,
    /// Objects that another version of the program made. This version cannot judge them: they are no damage, but were
    /// not checked either.
    pub other_versions: Vec<Error>,
    /// Roots that cannot be read whole.
    pub damaged_roots: Vec<RootId>,
    /// Some of the damage is what a repair mends: of containers, and of small objects that have another copy or are
    /// found out anew.
    pub is_mendable: bool,
    /// The second copy of the configuration is missing: no damage, but of two safeguards one.
    pub has_no_copy: bool,
    /// Containers that are damaged in any place, or missing.
    pub broken: BTreeSet<ContainerId>,
    /// Containers that a repair set aside: no damage, but a repair may take them back.
    pub set_aside: Vec<Aside>,
    /// Chunks that are lost by the damage.
    pub hurt: LostChunks,
}

/// Lost containers and chunks: a caller who knows files can ask of each reference whether it still leads to its chunk.
#[derive(Default, Debug)]
pub struct LostChunks {
    /// Containers that are missing, or that cannot be opened; what can be read of these all the same is `elsewhere`.
    pub containers: HashSet<ContainerId>,
    /// Chunks that are there but do not read as what was written, and those whose container is gone and that the index
    /// does not know elsewhere.
    pub chunks: HashSet<Fingerprint>,
    /// Beginnings of their fingerprints ([`Fingerprint::prefix`]), and of those that references look for in vain in a
    /// container that is there.
    pub missing: HashSet<u64>,
    /// Chunks that are well, wherever they are; kept only for those that a lost container might have held.
    pub elsewhere: HashSet<Fingerprint>,
}

impl LostChunks {
    /// Whether nothing is lost.
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.chunks.is_empty() && self.missing.is_empty()
    }

    /// Whether this reference leads nowhere any more.
    pub fn hurts(&self, chunk: &ChunkRef) -> bool {
        let gone = self.containers.contains(&chunk.container)
            || self.chunks.contains(&chunk.fingerprint)
            || self.missing.contains(&chunk.fingerprint.prefix());
        gone && !self.elsewhere.contains(&chunk.fingerprint)
    }
}

impl Repository {
    /// Checks the repository. `found` hears of each damage as it is discovered.
    ///
    /// # Errors
    /// Only what keeps it from looking at all; damage goes into the report.
    pub fn check(
        &self,
        roots: &dyn Roots,
        depth: CheckDepth,
        observer: &mut dyn FnMut(StageProgress),
        found: &mut dyn FnMut(&Error),
    ) -> Result<CheckReport> {
        self.shared.read_the_store_itself();
        let session = self.session(SessionKind::Read)?;
        let mut check = Check {
            repository: self,
            report: CheckReport::default(),
            bad: HashSet::new(),
            has_foreign_contents: false,
            found,
        };
        check.small_objects()?;
        // before the containers are: a root that comes up while they are read refers to some that were not there then
        let mut all = check.tolerate(self.roots())?.unwrap_or_default();
        let mut listed = self
            .shared
            .containers_past(&mut |error| check.tolerate(Err(error)).map(|_: Option<()>| ()))?;
        // The error of a folder that cannot be listed was noted just now.
        let mut is_noted = |error: Error| tolerate(Err(error), |_| ()).map(|_: Option<()>| ());
        check.report.set_aside = self.shared.aside_past(&mut is_noted)?;
        check.mendable(|check| check.containers(&listed, depth, observer))?;
        let mut reader = session.reader()?;
        let mut astray = check.references(roots, &all, &listed, &mut reader, observer)?;
        // Snapshots are forgotten meanwhile, and where no pin keeps that off, containers swept: what was there is
        // looked at again, as it is now.
        for _ in 0..LOOKS_MAX {
            let now = self
                .roots()
                .and_then(|roots| Ok((roots, self.shared.containers()?)));
            let changes = |now: &(_, _)| now.0 != all || now.1 != listed;
            match now {
                Ok(now) if !astray.is_empty() && changes(&now) => (all, listed) = now,
                _ => break,
            }
            astray = check.references(roots, &all, &listed, &mut reader, observer)?;
        }
        check.tell(astray, &listed)?;
        session.finish()?;
        Ok(check.report)
    }
}

/// Largest number of times that references that lead astray are followed again, where others change the repository
/// meanwhile.
const LOOKS_MAX: usize = 4;

/// References that do not lead where they should.
struct Astray {
    /// Chunks, by the beginning of their fingerprint, that are not in the container that is there.
    missing: HashSet<u64>,
    /// Containers that could not be looked into, and why.
    failed: Vec<(ContainerId, Error)>,
    /// Roots that could not be read, and why.
    damaged: Vec<(RootId, Error)>,
    /// Chunks whose container is not there, and that it is.
    unresolved: HashMap<Fingerprint, ContainerId>,
}

impl Astray {
    fn is_empty(&self) -> bool {
        self.missing.is_empty()
            && self.failed.is_empty()
            && self.damaged.is_empty()
            && self.unresolved.is_empty()
    }
}

struct Check<'a> {
    repository: &'a Repository,
    report: CheckReport,
    /// Chunks that do not read as what was written, in this container; the same chunk in another may be well.
    bad: HashSet<(ContainerId, Fingerprint)>,
    /// Whether a container, or a block in one, is of another version.
    has_foreign_contents: bool,
    found: &'a mut dyn FnMut(&Error),
}

impl Check<'_> {
    fn note(&mut self, error: Error) {
        (self.found)(&error);
        if error.is_other_version() {
            self.report.other_versions.push(error)
        } else {
            self.report.damage.push(error)
        }
    }

    /// Runs `look`, and notes that a repair mends the damage that it finds.
    fn mendable<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.report.damage.len();
        let looked = look(self);
        self.report.is_mendable |= self.report.damage.len() > before;
        looked
    }

    /// Damage, what the device does not give, and what another version made is noted; anything else ends the check.
    fn tolerate<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        tolerate(result, |error| self.note(error))
    }

    /// Both copies of the configuration and of every key slot; the sweep's list; the sketch.
    fn small_objects(&mut self) -> Result<()> {
        self.mendable(Self::configuration)?;
        self.slots()?;
        self.mendable(|check| {
            let objects = Arc::clone(&check.repository.shared.objects);
            for list in check
                .tolerate(condemned::ids(&*objects))?
                .unwrap_or_default()
            {
                match condemned::read(&*objects, list) {
                    // All that it named is gone.
                    Err(error) if error.is_not_found() => {}
                    other => drop(check.tolerate(other)?),
                }
            }
            check.tolerate(check.repository.sketch())
        })?;
        Ok(())
    }

    fn configuration(&mut self) -> Result<()> {
        let objects = &*self.repository.shared.objects;
        let in_use = self.repository.config().encode();
        for name in [CONFIG_OBJECT, CONFIG_COPY_OBJECT] {
            let damage = objects.get(name).and_then(|bytes| {
                let twice = config::decode_twice(CONFIG, &bytes, name)?;
                if twice.payload != in_use {
                    let what = "it is not the configuration that the repository was opened with";
                    return Err(Error::damaged(name, None, what));
                }
                Ok(twice.damage.map(Error::from))
            });
            match damage {
                // A crash in `init` leaves no copy; `repair` makes one.
                Err(error) if name == CONFIG_COPY_OBJECT && error.is_not_found() => {
                    self.report.has_no_copy = true;
                }
                other => {
                    if let Some(Some(damage)) = self.tolerate(other)? {
                        self.note(damage);
                    }
                }
            }
        }
        Ok(())
    }

    fn slots(&mut self) -> Result<()> {
        let objects = &*self.repository.shared.objects;
        let keys = &self.repository.shared.keys;
        for name in slots::listed(objects)? {
            let slot = objects
                .get(&name)
                .and_then(|bytes| Ok(Slot::decode(&bytes, &name)?))
                .and_then(|(slot, damage)| {
                    slots::confirm(&slot, keys, &name)?;
                    Ok(damage.map(Error::from))
                });
            if matches!(&slot, Err(error) if error.is_not_found()) {
                continue; // removed since it was listed
            }
            if let Some(Some(damage)) = self.tolerate(slot)? {
                self.mendable(|check| check.note(damage));
            }
        }
        Ok(())
    }

    /// Follows every reference of every root of `all`.
    fn references(
        &mut self,
        roots: &dyn Roots,
        all: &[RootId],
        listed: &[ContainerId],
        reader: &mut crate::ChunkReader,
        observer: &mut dyn FnMut(StageProgress),
    ) -> Result<Astray> {
        let mut references = References::new(self.repository, &self.report.hurt.containers);
        let mut marker = Marker::new(self.repository, listed, &[]);
        for (i, id) in all.iter().enumerate() {
            observer(StageProgress {
                stage: "reading metadata",
                done: i as u64,
                total: all.len() as u64,
            });
            let mut add =
                |container, chunk: &Fingerprint, _| references.add(container, chunk.prefix());
            marker.mark(id, roots, reader, &mut add)?;
        }
        let (missing, failed) = references.finish()?;
        self.report.roots = all.len() as u64;
        Ok(Astray {
            missing,
            failed,
            damaged: marker.damaged,
            unresolved: marker.unresolved,
        })
    }

    /// Puts down what leads astray, unless it is elsewhere.
    fn tell(&mut self, astray: Astray, listed: &[ContainerId]) -> Result<()> {
        for (id, error) in astray.damaged {
            if !error.is_other_version() {
                self.report.damaged_roots.push(id);
            }
            // A block of metadata is read here alone, unless all contents are; a root itself nothing makes again.
            let object = error.damaged_object();
            if object.is_some_and(|object| object.starts_with(CONTAINER_FOLDER)) {
                self.mendable(|check| check.note(error))
            } else {
                self.note(error)
            }
        }
        let chunks = astray.unresolved.keys().copied();
        self.report.hurt.chunks.extend(chunks);
        for (id, error) in astray.failed {
            if error.is_other_version() {
                self.report.hurt.containers.insert(id);
            } else {
                self.lose(id)
            }
            self.mendable(|check| check.note(error));
        }
        self.search(listed, astray.missing)?;
        // A container that a sweep has rewritten is not missed.
        let elsewhere = &self.report.hurt.elsewhere;
        let lost = astray
            .unresolved
            .into_iter()
            .filter(|(chunk, id)| listed.binary_search(id).is_err() && !elsewhere.contains(chunk));
        self.report.broken.extend(lost.map(|(_, id)| id));
        Ok(())
    }

    /// Opens every container, and reads those of the chosen part.
    fn containers(
        &mut self,
        listed: &[ContainerId],
        depth: CheckDepth,
        observer: &mut dyn FnMut(StageProgress),
    ) -> Result<()> {
        let mut zstd = Decompressor::new()?;
        let is_chosen = depth.chooser(listed);
        for (i, id) in listed.iter().enumerate() {
            observer(StageProgress {
                stage: "checking containers",
                done: i as u64,
                total: listed.len() as u64,
            });
            self.report.containers += 1;
            let (opened, is_read) = match Opened::read(&self.repository.shared, *id) {
                // Deleted by a sweep while we looked: nothing refers to it.
                Err(error) if error.is_not_found() => continue,
                // The roots may refer only to the part of the container that is left: `search` finds that out. The
                // table of such a container is always read, even where little is to be read.
                Err(error) if error.is_loss() => {
                    let left = self.repository.shared.recover(*id, &error, false)?;
                    self.note(error);
                    self.lose(*id);
                    (left, true)
                }
                Err(error) if error.is_other_version() => {
                    self.has_foreign_contents = true;
                    self.note(error);
                    self.report.hurt.containers.insert(*id);
                    (None, false)
                }
                other => (Some(Arc::new(other?)), is_chosen(*id)),
            };
            if let Some(opened) = opened.filter(|_| is_read) {
                self.report.containers_read += 1;
                self.read_blocks(&opened, &mut zstd)?;
            }
        }
        Ok(())
    }

    fn read_blocks(&mut self, opened: &Opened, zstd: &mut Decompressor) -> Result<()> {
        let shared = &self.repository.shared;
        for (number, block) in opened.table.blocks.iter().enumerate() {
            let numbers = block.first_chunk..block.first_chunk + block.chunks;
            let verdict = match opened.read_block(shared, number, zstd) {
                // A sweep that had condemned it before we began, or that we cannot keep off, deleted it.
                Err(error) if error.is_not_found() => return Ok(()),
                other => other,
            };
            self.has_foreign_contents |= matches!(&verdict, Err(error) if error.is_other_version());
            let Some(raw) = self.tolerate(verdict)? else {
                numbers.for_each(|number| self.note_bad(opened, number));
                continue;
            };
            for (number, verdict) in opened.verify(shared, numbers, &raw) {
                self.report.chunks_read += 1;
                if let Err(damage) = verdict {
                    self.note(damage);
                    self.note_bad(opened, number);
                }
            }
        }
        Ok(())
    }

    fn lose(&mut self, id: ContainerId) {
        self.report.broken.insert(id);
        self.report.hurt.containers.insert(id);
    }

    fn note_bad(&mut self, opened: &Opened, number: u32) {
        let fingerprint = opened.table.chunks[number as usize].0;
        self.bad.insert((opened.header.id, fingerprint));
        self.report.broken.insert(opened.header.id);
        self.report.hurt.chunks.insert(fingerprint);
    }

    /// A container, or what is left of it.
    fn open_what_is_left(&self, id: ContainerId) -> Result<Option<Arc<Opened>>> {
        let shared = &self.repository.shared;
        match Opened::read(shared, id) {
            Ok(opened) => Ok(Some(Arc::new(opened))),
            Err(error) if error.is_loss() => shared.recover(id, &error, false),
            Err(error) if error.is_other_version() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Looks in all containers for the chunks that are `missing` where they should be, and for those that are bad
    /// there.
    fn search(&mut self, listed: &[ContainerId], mut missing: HashSet<u64>) -> Result<()> {
        missing.extend(self.report.hurt.chunks.iter().map(Fingerprint::prefix));
        self.report.hurt.missing = missing;
        let missing = &self.report.hurt.missing;
        if missing.is_empty() {
            return Ok(());
        }
        let mut elsewhere = HashSet::new();
        for id in listed {
            let Some(opened) = self.open_what_is_left(*id)? else {
                continue;
            };
            for (fingerprint, _) in &opened.table.chunks {
                if missing.contains(&fingerprint.prefix())
                    && !self.bad.contains(&(*id, *fingerprint))
                {
                    elsewhere.insert(*fingerprint);
                }
            }
        }
        self.report.hurt.elsewhere = elsewhere;
        let found: HashSet<u64> = self
            .report
            .hurt
            .elsewhere
            .iter()
            .map(Fingerprint::prefix)
            .collect();
        let lost = missing
            .iter()
            .filter(|prefix| !found.contains(prefix))
            .count();
        if lost > 0 {
            let what = format!("{} lost", chunks_are(lost));
            self.note(if self.has_foreign_contents {
                // They may be in what another version wrote.
                onefold_io::Error::new(
                    "read",
                    "references",
                    ErrorKind::OtherVersion,
                    what + " to this version of onefold",
                )
                .into()
            } else {
                Error::damaged("references", None, what)
            });
        }
        Ok(())
    }
}
