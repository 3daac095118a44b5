//! Repair: rebuilds what can be rebuilt from containers alone, and says what cannot.
//!
//! A damaged container is read block by block; its good chunks move to a new container, then it is deleted as the sweep
//! deletes. Nothing is deleted before what can be saved of it is durable. One that the device does not give whole is
//! not deleted but renamed, so that it counts no longer: what cannot be read today (a cable, a controller) may be read
//! tomorrow, and a repair must not make such a loss final. So is one of which nothing could be saved, whatever the
//! reason: no repair deletes all that there is of a container. What was set aside is read once more by each repair
//! after that, and taken back once it is whole. Nor does one bad reading decide on anything: see
//! `objects::unless_damaged`, and `salvage` for what bytes count.

pub(crate) mod aside;
pub(crate) mod salvage;

use onefold_index::ContainerId;

use crate::check::{CheckDepth, CheckReport};
use crate::container::compression::Decompressor;
use crate::container::{self, CONTAINER_FOLDER};
use crate::index::sketch::SKETCH_OBJECT;
use crate::registry::{Held, Lock};
use crate::repair::aside::{Aside, read_through};
use crate::repair::salvage::Salvage;
use crate::repository::Repository;
use crate::repository::config::{
    self, CONFIG, CONFIG_COPY_OBJECT, CONFIG_OBJECT, RepositoryConfig,
};
use crate::repository::slots::{self, Slot};
use crate::roots::{ROOT_FOLDER, Roots};
use crate::session::{Session, SessionKind};
use crate::sweep::{StageProgress, Sweep, SweepObserver};
use crate::{Error, Result, sweep::condemned};

/// Results of a repair, and the damage that is left.
#[derive(Default, Debug)]
pub struct RepairReport {
    /// Small objects written anew from their second copy: the configuration, key slots.
    pub restored_objects: Vec<String>,
    /// Small objects that were damaged and have no second copy. They are removed: what they said is found out anew.
    pub removed_objects: Vec<String>,
    /// Folders that were missing, and in which nothing can have been.
    pub made_folders: Vec<String>,
    /// Why containers were left alone that another version of the program made, by all that can be read of them.
    pub other_versions: Vec<Error>,
    /// Errors found in containers: the first place of damage of each, and each region that the device does not give.
    pub found: Vec<Error>,
    /// Damaged containers that were replaced.
    pub replaced_containers: Vec<ContainerId>,
    /// Containers that the device does not give whole, or of which nothing could be saved. They were replaced too, and
    /// lie beside the others under names that end in [`ASIDE_SUFFIX`](onefold_io::ASIDE_SUFFIX). The next repair takes
    /// back those that are whole then.
    pub set_aside: Vec<Aside>,
    /// Containers that an earlier repair set aside and that are whole now: they are containers again.
    pub taken_back: Vec<ContainerId>,
    /// Containers that stay set aside, and the reasons.
    pub still_aside: Vec<(Aside, Error)>,
    /// Chunks saved from those that were replaced or set aside.
    pub saved_chunks: u64,
    /// Findings of a check after the repair: damage that is left, and lost chunks.
    pub left: CheckReport,
}

/// A container that does not read as it was written, and why.
struct Hit {
    id: ContainerId,
    why: Error,
}

impl Repository {
    /// Repairs what can be repaired. Reads every block of every container.
    ///
    /// # Errors
    /// [`Error::Locked`](crate::Error::Locked) while a sweep runs; failures of the device; [`Error::is_other_version`]
    /// for a configuration, a root or a list of the condemned that another version made: nothing is changed then.
    pub fn repair(
        &self,
        roots: &dyn Roots,
        observer: &mut dyn SweepObserver,
    ) -> Result<RepairReport> {
        self.shared.read_the_store_itself();
        let lock = self.shared.place.registry.lock(Lock::Sweep)?;
        self.refuse_other_versions()?;
        self.clear_after_the_dead(None)?;
        let mut report = RepairReport::default();
        self.make_missing_folders(&mut report)?;
        self.restore_small_objects(&mut report)?;
        self.take_back_what_is_whole(&mut report, observer)?;
        let damaged = self.damaged_containers(&mut report, observer)?;
        self.replace(damaged, roots, &*lock, &mut report, observer)?;
        self.rebuild_index()?;
        drop(lock);
        report.left = self.check(
            roots,
            CheckDepth::Structure,
            &mut |progress| observer.progress(progress),
            &mut |_| {},
        )?;
        Ok(report)
    }

    /// Looks at what decides on all else for what another version made.
    fn refuse_other_versions(&self) -> Result<()> {
        fn refuse<T>(read: Result<T>) -> Result<()> {
            match read {
                Err(error) if error.is_other_version() => Err(error),
                _ => Ok(()),
            }
        }
        let objects = &*self.shared.objects;
        for name in [CONFIG_OBJECT, CONFIG_COPY_OBJECT] {
            let read = objects.get(name);
            refuse(read.and_then(|stored| {
                let twice = config::decode_twice(CONFIG, &stored, name)?;
                RepositoryConfig::decode(twice.payload, name, twice.offset)
            }))?;
        }
        for list in condemned::ids(objects)? {
            refuse(condemned::read(objects, list))?;
        }
        for id in self.roots().unwrap_or_default() {
            refuse(self.root(&id))?;
        }
        Ok(())
    }

    /// Makes folders that `init` made and that are missing, where nothing can have been in them: of a repository that
    /// holds no snapshot, and no container. Any other must be put back: a new, empty folder of snapshots would have the
    /// next sweep take every container for unused.
    fn make_missing_folders(&self, report: &mut RepairReport) -> Result<()> {
        let mut missing = Vec::new();
        let mut others = 0;
        for folder in [ROOT_FOLDER, CONTAINER_FOLDER] {
            match self.shared.objects.list(folder) {
                Err(error) if error.is_not_found() => missing.push(folder),
                listed => others += listed?.len(),
            }
        }
        for folder in missing {
            if others > 0 {
                return Err(Error::MissingFolder {
                    folder: folder.into(),
                });
            }
            self.shared.objects.make_folder(folder)?;
            report.made_folders.push(folder.into());
        }
        Ok(())
    }

    /// Objects that are kept twice: the good copy becomes both. Of those that are not, damaged ones go.
    fn restore_small_objects(&self, report: &mut RepairReport) -> Result<()> {
        let objects = &*self.shared.objects;
        let config = config::encode_twice(CONFIG, &self.shared.config.encode());
        for name in [CONFIG_OBJECT, CONFIG_COPY_OBJECT] {
            if !matches!(objects.get(name), Ok(stored) if stored == config) {
                objects.put(name, &[&config])?;
                report.restored_objects.push(name.into());
            }
        }
        let keys = self.shared.place.registry.lock(Lock::Keys)?;
        for name in slots::listed(objects)? {
            let slot = objects
                .get(&name)
                .and_then(|stored| Ok(Slot::decode(&stored, &name)?));
            if let Ok((slot, Some(_))) = slot {
                objects.put(&name, &[&slot.encode()])?;
                report.restored_objects.push(name);
            }
        }
        drop(keys);
        for list in condemned::ids(objects)? {
            if matches!(condemned::read(objects, list), Err(error) if error.is_loss()) {
                // Without the list nothing is deleted on its strength: what was on it is judged anew.
                objects.delete(&list.object())?;
                report.removed_objects.push(list.object());
            }
        }
        if matches!(self.sketch(), Err(error) if error.is_loss()) {
            // The next backup makes a new one.
            objects.delete(SKETCH_OBJECT)?;
            report.removed_objects.push(SKETCH_OBJECT.into());
        }
        Ok(())
    }

    /// Containers in which anything does not read as it was written.
    fn damaged_containers(
        &self,
        report: &mut RepairReport,
        observer: &mut dyn SweepObserver,
    ) -> Result<Vec<Hit>> {
        let listed = self.shared.containers()?;
        let mut zstd = Decompressor::new()?;
        let mut damaged = Vec::new();
        for (i, id) in listed.iter().enumerate() {
            observer.progress(StageProgress {
                stage: "reading containers",
                done: i as u64,
                total: listed.len() as u64,
            });
            match read_through(&self.shared, *id, &mut zstd) {
                Ok(()) => {}
                Err(why) if why.is_loss() => damaged.push(Hit { id: *id, why }),
                Err(error) if error.is_other_version() => report.other_versions.push(error),
                Err(error) => return Err(error),
            }
        }
        Ok(damaged)
    }

    /// Moves the good chunks of `damaged` to new containers, then deletes the old ones or sets them aside.
    fn replace(
        &self,
        damaged: Vec<Hit>,
        roots: &dyn Roots,
        lock: &dyn Held,
        report: &mut RepairReport,
        observer: &mut dyn SweepObserver,
    ) -> Result<()> {
        if damaged.is_empty() {
            return Ok(());
        }
        let session = self.session_in_the_place_of_the_dead(SessionKind::Backup)?;
        let reader = session.data_reader()?;
        let total = damaged.len() as u64;
        let (mut closed, mut aside) = (0, Vec::new());
        for (hit, done) in damaged.into_iter().zip(0..) {
            observer.progress(StageProgress {
                stage: "saving chunks",
                done,
                total,
            });
            let before = report.saved_chunks;
            let saved = match self.save(&session, hit.id, report) {
                Err(error) if error.is_other_version() => {
                    report.other_versions.push(error);
                    continue;
                }
                other => other?,
            };
            closed += u64::from(report.saved_chunks == before);
            // One of which nothing came may be sealed with a key that was not tried.
            let is_given = report.saved_chunks > before
                && matches!(&saved, Some(unreadable) if unreadable.is_empty());
            let list = if is_given && !hit.why.is_unreadable() {
                &mut report.replaced_containers
            } else {
                &mut aside
            };
            list.push(hit.id);
            let unreadable = saved.unwrap_or_default();
            if unreadable.is_empty() {
                report.found.push(hit.why);
            }
            report.found.extend(unreadable);
        }
        if closed == total && self.key_opens_nothing(closed)? {
            let what = "the key opens neither a container nor a snapshot: `keys` and `config` may be those of another \
                 repository, and no container was touched";
            return Err(Error::damaged("keys", None, what));
        }
        session.confirm_not_overtaken()?;
        let mut sweep = Sweep::begin(self, roots, reader, Some(lock))?;
        sweep.delete_damaged(report.replaced_containers.clone(), session, observer)?;
        for id in aside {
            report.set_aside.push(self.shared.set_aside(id)?);
        }
        Ok(())
    }

    /// Whether the `closed` containers, of which nothing came, are all that there are, and there are roots, of which it
    /// opens none either.
    fn key_opens_nothing(&self, closed: u64) -> Result<bool> {
        let roots = self.roots()?;
        let is_closed = |id| matches!(self.root(id), Err(error) if error.is_damage());
        let all = self.shared.containers()?.len() as u64;
        Ok(closed == all && !roots.is_empty() && roots.iter().all(is_closed))
    }

    /// Writes the good chunks of a container into a new one. Gives what the device does not give of it, or what was not
    /// searched; `None` where nothing can be unsealed.
    fn save(
        &self,
        session: &Session,
        id: ContainerId,
        report: &mut RepairReport,
    ) -> Result<Option<Vec<Error>>> {
        let Some(mut salvage) = Salvage::begin(&self.shared, id)? else {
            return Ok(None);
        };
        let mut writer = session.writer(salvage.header().stream)?;
        salvage.chunks(&mut |chunk| {
            report.saved_chunks += 1;
            writer.write_again(self.fingerprinter().fingerprint(chunk), chunk)
        })?;
        writer.finish()?;
        let told = salvage.unreadable().into_iter().map(|bytes| {
            let what = format!(
                "{} bytes that the device does not give",
                bytes.end - bytes.start
            );
            Error::damaged(container::object_name(id), Some(bytes.start), what)
        });
        let given_up = salvage.given_up_at().map(|at| {
            let what = "blocks seem to begin nearly everywhere from here on: it is not searched to its end";
            Error::damaged(container::object_name(id), Some(at), what)
        });
        let strange = salvage.strange_at().map(|at| {
            let what = "what begins here seems to be a block, and none that this version of onefold reads (of a later version, perhaps): it is kept";
            Error::damaged(container::object_name(id), Some(at), what)
        });
        Ok(Some(told.chain(given_up).chain(strange).collect()))
    }
}
