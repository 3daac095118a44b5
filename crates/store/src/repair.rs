//! Repair: rebuilds what can be rebuilt from containers alone, and says what cannot.
//!
//! A damaged container is read block by block; its good chunks move to a new container, then it is deleted as the sweep deletes. Nothing is
//! deleted before what can be saved of it is durable.

use onefold_index::ContainerId;

use crate::check::{CheckDepth, CheckReport};
use crate::compression::Decompressor;
use crate::config::{self, CONFIG, CONFIG_COPY_OBJECT, CONFIG_OBJECT};
use crate::repository::Repository;
use crate::roots::Roots;
use crate::salvage::Salvage;
use crate::session::SessionKind;
use crate::sketch::SKETCH_OBJECT;
use crate::slots::{SLOT_FOLDER, Slot};
use crate::sweep::{Progress, Sweep, SweepObserver};
use crate::{Result, condemned};

/// What a repair did, and what is beyond it.
#[derive(Default, Debug)]
pub struct RepairReport {
    /// Small objects written anew from their second copy: the configuration, key slots.
    pub restored_objects: Vec<String>,
    /// Damaged containers that were replaced.
    pub replaced_containers: Vec<ContainerId>,
    /// Chunks saved from them.
    pub saved_chunks: u64,
    /// What a check finds after it: damage that is left, and what is lost.
    pub left: CheckReport,
}

impl Repository {
    /// Repairs what can be repaired. Reads every block of every container.
    ///
    /// # Errors
    /// [`Error::Locked`](crate::Error::Locked) while a sweep runs; failures of the device.
    pub fn repair(
        &self,
        roots: &dyn Roots,
        observer: &mut dyn SweepObserver,
    ) -> Result<RepairReport> {
        let lock = self.lock_sweep()?;
        self.clear_after_the_dead()?;
        let mut report = RepairReport::default();
        self.restore_small_objects(&mut report)?;
        let damaged = self.damaged_containers(observer)?;
        self.replace(&damaged, roots, &mut report, observer)?;
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

    /// Objects that are kept twice: the good copy becomes both.
    fn restore_small_objects(&self, report: &mut RepairReport) -> Result<()> {
        let objects = &*self.shared.objects;
        let config = config::encode_twice(CONFIG, &self.shared.config.encode());
        for name in [CONFIG_OBJECT, CONFIG_COPY_OBJECT] {
            if !matches!(objects.get(name), Ok(stored) if stored == config) {
                objects.put(name, &[&config])?;
                report.restored_objects.push(name.into());
            }
        }
        for (name, _) in objects.list(SLOT_FOLDER)? {
            let slot = objects
                .get(&name)
                .and_then(|stored| Slot::decode(&stored, &name));
            if let Ok((slot, Some(_))) = slot {
                objects.put(&name, &[&slot.encode()])?;
                report.restored_objects.push(name);
            }
        }
        if matches!(condemned::read(objects), Err(error) if error.is_damage()) {
            // Without the list nothing is deleted on its strength: what was on it is judged anew by the next sweep.
            objects.delete(condemned::CONDEMNED_OBJECT)?;
            report
                .restored_objects
                .push(condemned::CONDEMNED_OBJECT.into());
        }
        if matches!(self.sketch(), Err(error) if error.is_damage()) {
            // The next backup makes a new one.
            objects.delete(SKETCH_OBJECT)?;
            report.restored_objects.push(SKETCH_OBJECT.into());
        }
        Ok(())
    }

    /// Containers in which anything does not read as it was written.
    fn damaged_containers(&self, observer: &mut dyn SweepObserver) -> Result<Vec<ContainerId>> {
        let listed = self.shared.containers()?;
        let mut zstd = Decompressor::new()?;
        let mut damaged = Vec::new();
        for (i, id) in listed.iter().enumerate() {
            observer.progress(Progress {
                stage: "reading containers",
                done: i as u64,
                total: listed.len() as u64,
            });
            match self.read_through(*id, &mut zstd) {
                Ok(()) => {}
                Err(error) if error.is_damage() => {
                    tracing::warn!("{error}");
                    damaged.push(*id);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(damaged)
    }

    fn read_through(&self, id: ContainerId, zstd: &mut Decompressor) -> Result<()> {
        let opened = crate::opened::Opened::read(&self.shared, id)?;
        for (number, block) in opened.table.blocks.iter().enumerate() {
            let raw = self.read_block(&opened, number, zstd)?;
            let numbers = block.first_chunk..block.first_chunk + block.chunks;
            let found = self
                .fingerprinter()
                .fingerprints(opened.chunks_of(numbers.clone(), &raw));
            numbers
                .zip(found)
                .try_for_each(|(number, found)| opened.confirm(number, &found))?;
        }
        Ok(())
    }

    /// Moves the good chunks of `damaged` to new containers and deletes the old ones.
    fn replace(
        &self,
        damaged: &[ContainerId],
        roots: &dyn Roots,
        report: &mut RepairReport,
        observer: &mut dyn SweepObserver,
    ) -> Result<()> {
        if damaged.is_empty() {
            return Ok(());
        }
        let session = self.session(SessionKind::Backup)?;
        let reader = session.reader()?;
        for (i, id) in damaged.iter().enumerate() {
            observer.progress(Progress {
                stage: "saving chunks",
                done: i as u64,
                total: damaged.len() as u64,
            });
            let Some(salvage) = Salvage::begin(&self.shared, *id)? else {
                continue;
            };
            let mut writer = session.writer(salvage.header().stream)?;
            salvage.chunks(&mut |chunk| {
                report.saved_chunks += 1;
                writer.write_again(self.fingerprinter().fingerprint(chunk), chunk)
            })?;
            writer.finish()?;
        }
        session.finish()?;
        let mut sweep = Sweep::begin(self, roots, reader)?;
        sweep.delete_damaged(damaged.to_vec(), observer)?;
        report.replaced_containers = damaged.to_vec();
        Ok(())
    }
}
