//! Checkpoints: what the journal says goes into runs of the map, so that recovery need not read it.
//!
//! Order: group closed → data synced, since the runs will name it → index durable → runs written and synced → files of
//! zones and relocations → folders synced → manifest replaced → old files removed. A crash before the manifest leaves
//! files that no manifest names; opening removes them.
//!
//! Cleaning commits between checkpoints: its manifest frees zones, and names the runs and the log position of the last
//! checkpoint, since memtables stay.
//!
//! The cost is that of what changed: a file of zones is written anew only when an eighth of them changed, and one of
//! relocations when a cleaning changed them.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use onefold_io::{Dir, create_anew, remove_if_there};

use super::faults::{self, Fault};
use super::layout::{Layout, ZoneId};
use super::manifest::{ListedHead, Manifest, Position};
use super::map::memtable::Memtable;
use super::map::settle::Merger;
use super::writer::LogEngine;
use super::zone_list::{ZoneChange, encode_zones};
use crate::{Error, HeadId, HeadInfo, Result};

/// Changes of zones that a manifest holds in any case. Tests write files of zones often.
const ZONE_CHANGES_MIN: usize = if cfg!(test) { 4 } else { 256 };

/// A checkpoint that found no room, or no descriptors, is tried again after this many bytes of journal.
const CHECKPOINT_AGAIN_BYTES: u64 = 4 << 20;
/// Memtables grow to this many times their size, where no checkpoint finds room; then changes are refused.
const MEMTABLES_MAX: usize = 4;

/// The part of the journal that is in the runs of the map.
#[derive(Clone, Copy)]
pub(super) struct Reached {
    /// Recovery reads the journal from here on.
    pub position: Position,
    /// The last group before it.
    pub sequence: u64,
}

/// Name of the file of zones of a generation.
pub fn zones_name(generation: u64) -> String {
    format!("zones-{generation:016x}")
}

/// Name of the file of relocations of a generation.
pub fn relocations_name(generation: u64) -> String {
    format!("relocations-{generation:016x}")
}

/// Removes files of zones and relocations that no manifest names.
///
/// # Errors
/// The folder cannot be read or changed.
pub fn remove_left_over(dir: &dyn Dir, manifest: &Manifest) -> Result<()> {
    let named = [
        zones_name(manifest.zone_list),
        relocations_name(manifest.relocations),
    ];
    for entry in dir.list()? {
        let is_ours = entry.name.starts_with("zones-") || entry.name.starts_with("relocations-");
        if is_ours && !entry.is_dir && !named.contains(&entry.name) {
            remove_if_there(dir, &entry.name)?;
        }
    }
    Ok(())
}

impl LogEngine {
    /// Makes the maps durable, so that recovery need not read the journal written so far.
    pub(super) fn checkpoint(&mut self) -> Result<()> {
        self.close_group()?;
        if !faults::is_on(Fault::NoSyncBeforeCheckpoint) {
            let synced = self.shared.data.sync().map_err(Error::from);
            self.fail(synced)?;
        }
        self.durable = self.sequence - 1;
        if self.index.checkpoint().is_err() {
            self.totals.index_failures += 1;
        }
        self.in_folder(Self::write_memtables)?;
        self.limit_map_pages();
        let reached = Reached {
            position: self.position_now(),
            sequence: self.sequence - 1,
        };
        self.in_folder(|engine| engine.replace_manifest(&reached, &HashSet::new()))?;
        self.shared.damaged.keep(&*self.dir);
        self.reached = reached;
        self.host.hold_ballast()?;
        self.log_bytes = 0;
        self.totals.checkpoints += 1;
        Ok(())
    }

    /// Commits a manifest that leaves out zones which cleaning has emptied, once their chunks' copies are synced.
    /// Readers know these zones until it is durable. Memtables stay, so recovery reads the journal from the last
    /// checkpoint on: cleaning made one before it chose these zones, and nothing behind it names them.
    pub(super) fn commit_without(&mut self, emptied: &HashSet<ZoneId>) -> Result<()> {
        if !faults::is_on(Fault::NoSyncBeforeFreeing) {
            let synced = self.shared.data.sync().map_err(Error::from);
            self.fail(synced)?;
            self.durable = self.sequence - 1;
        }
        let reached = self.reached;
        self.in_folder(|engine| engine.replace_manifest(&reached, emptied))?;
        self.host.hold_ballast()
    }

    /// A checkpoint, where recovery would have much to read otherwise, or memtables are full.
    pub(super) fn checkpoint_if_due(&mut self) -> Result<()> {
        let is_due = self.log_bytes >= self.sizes.checkpoint_bytes
            || self.shared.memtable_entries() >= self.sizes.memtable_entries;
        if !is_due || self.log_bytes < self.checkpoint_again {
            return Ok(());
        }
        match self.checkpoint() {
            // The journal has everything. New data is refused until there is room; what frees some goes on.
            Err(error) if error.is_shortage() => {
                self.checkpoint_again = self.log_bytes + CHECKPOINT_AGAIN_BYTES;
                Ok(())
            }
            done => {
                self.checkpoint_again = 0;
                done
            }
        }
    }

    /// Refuses changes of maps that could not be made smaller by a checkpoint for long.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(super) fn check_memtables(&self) -> Result<()> {
        let entries_max = self.sizes.memtable_entries * MEMTABLES_MAX;
        if self.checkpoint_again > 0 && self.shared.memtable_entries() >= entries_max {
            return Err(Error::NoSpace {
                what: "the file system of the depot's folder has no room for the map".to_string(),
            });
        }
        Ok(())
    }

    /// A checkpoint, where anything changed since the last one.
    pub(super) fn checkpoint_if_changed(&mut self) -> Result<()> {
        if self.log_bytes > 0 || self.has_pending() {
            self.checkpoint()
        } else {
            self.shared.damaged.keep(&*self.dir);
            self.check_usable()
        }
    }

    /// Writes to the folder. Where its file system is full, the ballast makes room, and then free zones of the data
    /// file do. Without any, nothing was changed, and the engine goes on: the journal has everything.
    ///
    /// # Errors
    /// [`Error::is_shortage`]; a device failed, and the engine takes no writes from then on.
    pub(super) fn in_folder(
        &mut self,
        mut write: impl FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let mut has_given_back = false;
        loop {
            let written = write(self);
            if written.as_ref().is_err_and(Error::is_shortage) {
                // Runs that were begun take the room that the next attempt needs.
                self.map_folder.keep(&self.named_runs).ok();
            }
            match written {
                Err(Error::NoSpace { .. }) if self.host.ballast.release() => {}
                Err(Error::NoSpace { .. }) if !has_given_back => {
                    has_given_back = true;
                    self.give_back_all_room()?;
                }
                Err(error) if error.is_shortage() => return Err(error),
                done => return self.fail(done),
            }
        }
    }

    /// Makes runs of all memtables, and has runs merged where that is due.
    fn write_memtables(&mut self) -> Result<()> {
        self.install_merged(false)?;
        let heads: Vec<HeadId> = self.shared.maps.read().keys().copied().collect();
        for head in heads {
            self.limit_recent(head)?;
            let (memtable, levels) = {
                let maps = self.shared.maps.read();
                let map = &maps[&head];
                (Arc::clone(&map.memtable), Arc::clone(&map.levels))
            };
            if memtable.len() > 0 {
                let added = self.merging_now(|merger| merger.push(&levels, &memtable))?;
                let mut maps = self.shared.maps.write();
                let map = maps.get_mut(&head).expect("the writer alone removes heads");
                map.levels = Arc::new(added);
                map.memtable = Arc::new(Memtable::new(self.shared.layout.chunk_pages));
            }
        }
        self.start_merging();
        Ok(())
    }

    /// Fences of runs take RAM from the cache of map pages; recent runs keep as many pages as they may.
    fn limit_map_pages(&self) {
        self.limit_pinned();
        let runs = self.shared.distinct_runs();
        let fences: u64 = runs.values().map(|run| run.fence_bytes()).sum();
        let left = self.sizes.map_page_bytes.saturating_sub(fences as usize);
        self.shared.map_pages.limit(left);
    }

    /// Merges while the caller waits.
    pub(super) fn merging_now<T>(
        &mut self,
        act: impl FnOnce(&mut Merger<'_>) -> Result<T>,
    ) -> Result<T> {
        let shared = Arc::clone(&self.shared);
        let mut merger = Merger {
            folder: &self.map_folder,
            sizes: self.sizes.merges,
            relocate: &|extent, visit| shared.zones.read().relocate(extent, visit),
            stop: &AtomicBool::new(false),
            overwritten: 0,
            discarded: 0,
        };
        let done = act(&mut merger)?;
        let (overwritten, discarded) = (merger.overwritten, merger.discarded);
        self.note_merged(overwritten, discarded);
        Ok(done)
    }

    /// Notes what a merge found hidden.
    pub(super) fn note_merged(&mut self, overwritten: u64, discarded: u64) {
        self.totals.overwritten += overwritten;
        self.totals.discarded += discarded;
        self.totals.hidden = self.totals.hidden.saturating_sub(overwritten + discarded);
    }

    /// Writes what the manifest is to name, the manifest, and removes what it names no more.
    pub(super) fn replace_manifest(
        &mut self,
        reached: &Reached,
        emptied: &HashSet<ZoneId>,
    ) -> Result<()> {
        let mut manifest = self.manifest(reached, emptied);
        // No number is used twice: a file of this one may be there.
        self.generation = manifest.generation;
        let runs: BTreeSet<_> = manifest.runs().collect();
        let used = self.shared.zones.read().used();
        let is_listed_anew = manifest.zone_changes.len() > ZONE_CHANGES_MIN + used as usize / 8;
        if is_listed_anew {
            manifest.zone_list = manifest.generation;
            manifest.zone_changes = Vec::new();
            let zones = self.shared.zones.read().listed(emptied);
            self.write_file(&zones_name(manifest.zone_list), encode_zones(&zones))?;
        }
        if self.relocations_changed {
            let encoded = {
                let zones = self.shared.zones.read();
                (zones.relocations.len() > 0).then(|| zones.relocations.encode())
            };
            manifest.relocations = encoded.as_ref().map_or(0, |_| manifest.generation);
            if let Some(encoded) = encoded {
                self.write_file(&relocations_name(manifest.relocations), encoded)?;
            }
        }
        self.map_folder.sync()?;
        self.dir.sync()?;
        manifest.write(&*self.dir, &self.shared.seals)?;
        self.relocations_changed = false;
        if is_listed_anew {
            self.shared.zones.write().unchanged();
        }
        self.named_runs = runs;
        self.remove_unnamed(&manifest);
        Ok(())
    }

    /// Removes files that the manifest does not name. Those that cannot be removed now are removed at the next opening.
    fn remove_unnamed(&mut self, manifest: &Manifest) {
        self.map_folder.keep(&self.named_runs).ok();
        if self.zone_list != manifest.zone_list {
            remove_if_there(&*self.dir, &zones_name(self.zone_list)).ok();
            self.zone_list = manifest.zone_list;
        }
        if self.relocation_list != manifest.relocations {
            remove_if_there(&*self.dir, &relocations_name(self.relocation_list)).ok();
            self.relocation_list = manifest.relocations;
        }
    }

    fn write_file(&self, name: &str, plain: Vec<u8>) -> Result<()> {
        let bytes = self.shared.seals.seal_file(name, plain)?;
        let disk = create_anew(&*self.dir, name)?;
        disk.write_at(&bytes, 0)?;
        Ok(disk.sync()?)
    }

    /// Where the log goes on. No group is pending.
    fn position_now(&mut self) -> Position {
        if let Some(zone) = &self.zone {
            return Position {
                no: zone.no,
                zone: zone.id,
                page: zone.page,
            };
        }
        // The log goes on in the next zone, the id of which is fixed now.
        let mut zones = self.shared.zones.write();
        Position {
            no: zones
                .next_journal()
                .expect("the place of the next zone is chosen ahead"),
            zone: *self.begin.get_or_insert_with(|| zones.new_id()),
            page: 0,
        }
    }

    /// The state as a manifest, from which recovery reads the journal behind `reached`.
    fn manifest(&self, reached: &Reached, emptied: &HashSet<ZoneId>) -> Manifest {
        let zones = self.shared.zones.read();
        let zone_changes: Vec<ZoneChange> = zones.changes(emptied);
        let maps = self.shared.maps.read();
        let listed = |info: &HeadInfo| ListedHead {
            info: info.clone(),
            levels: maps[&info.id].levels.listed(),
        };
        let heads = self.heads.iter().map(listed).collect();
        drop(maps);
        Manifest {
            layout: Layout {
                zones: zones.count(),
                ..self.shared.layout
            },
            generation: self.generation + 1,
            sequence: reached.sequence,
            ids_reserved: zones.ids_reserved(),
            position: reached.position,
            next_run: self.map_folder.next(),
            zone_list: self.zone_list,
            zone_changes,
            relocations: self.relocation_list,
            next_head: self.heads.next,
            heads,
        }
    }
}
