//! How full the device is, what is kept for whom, and the engine's counters.

use super::layout::Layout;
use super::map::memtable::ENTRY_RAM_BYTES;
use super::room::reserve_ready;
use super::writer::{LogEngine, Need};
use crate::{EngineStats, Error, FreeSpace, Result};

/// Zones that cleaning copies into.
pub(super) const ZONES_FOR_CLEANING: u32 = 2;
/// Zones that are kept for the journal of a full device: hits, discards, deletions.
pub(super) const ZONES_FOR_JOURNAL: u32 = 2;
/// Zones that are kept at least, those above included; the rest is for metadata of file systems.
const ZONES_KEPT_MIN: u32 = 6;
/// Part of the zones that is kept.
const ZONES_KEPT_PER_MILLE: u64 = 30;

/// Counters since the engine was opened.
#[derive(Default)]
pub(super) struct Totals {
    pub unique: u64,
    pub duplicate: u64,
    /// Chunks that were stored or found.
    pub writes: u64,
    /// Those that are known to have had a chunk in their place: the map is not read for that, merges find it out later.
    pub overwritten: u64,
    pub zero: u64,
    pub discarded: u64,
    pub groups: u64,
    pub group_pages: u64,
    pub zones_opened: u64,
    pub checkpoints: u64,
    pub syncs: u64,
    /// Index answers that the rows did not bear out.
    pub false_hits: u64,
    /// Failures of the index, which cost duplicates and no data.
    pub index_failures: u64,
    /// Chunks that were found without the index, since a read with the hint PREFETCH had met them.
    pub prefetch_hits: u64,
    pub pages_copied: u64,
    pub zones_freed: u64,
    pub merges: u64,
    /// Merges that the writer waited for.
    pub merges_waited_for: u64,
    /// Victims that cleaning left alone because a page of theirs is damaged.
    pub zones_damaged: u64,
    /// Chunks whose mapping changed since cleaning last looked: an upper bound of new garbage.
    pub changed_since_mark: u64,
    /// LBNs that several levels of the map had a chunk for when cleaning last looked, and merges did not find yet.
    pub hidden: u64,
    /// Pages of group headers since then: garbage once their zone is behind the log's position.
    pub journal_since_mark: u64,
    /// Pages of garbage that cleaning saw and left.
    pub garbage_left: u64,
    /// Whether cleaning found no zones that would give any of it back.
    pub is_left_worthless: bool,
}

impl LogEngine {
    /// Free zones that a write of this kind has to leave to others.
    pub(super) fn kept_for_others(&self, need: Need) -> u32 {
        match need {
            Need::Journal => ZONES_FOR_CLEANING,
            Need::Data => ZONES_FOR_CLEANING + ZONES_FOR_JOURNAL,
        }
    }

    /// Free zones that data leaves to cleaning, the journal, and metadata of file systems.
    pub(super) fn zones_kept(layout: &Layout) -> u32 {
        let share = u64::from(layout.zones) * ZONES_KEPT_PER_MILLE / 1000;
        (share as u32).max(ZONES_KEPT_MIN)
    }

    /// Cleans until so many zones are free.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: there is no garbage worth cleaning.
    pub(super) fn find_space(&mut self, zones_wanted: u32) -> Result<()> {
        while self.shared.zones.read().ready() < zones_wanted {
            self.keep_room()?;
            if self.shared.zones.read().ready() >= zones_wanted {
                break;
            }
            if !self.is_worth_cleaning() || self.clean(crate::Effort::Step)?.pages_freed == 0 {
                let zones = self.shared.zones.read();
                let (total, free) = (zones.count(), zones.ready());
                return Err(Error::NoSpace {
                    what: format!(
                        "{free} of {total} zones are free, and they are kept for discards, metadata and cleaning"
                    ),
                });
            }
        }
        Ok(())
    }

    /// Whether there is likely garbage of a zone or more.
    pub(super) fn is_worth_cleaning(&self) -> bool {
        self.likely_garbage() >= u64::from(self.shared.layout.groups_end() / 2)
    }

    /// Pages that cleaning would likely find.
    fn likely_garbage(&self) -> u64 {
        let totals = &self.totals;
        let left = if totals.is_left_worthless {
            0
        } else {
            totals.garbage_left
        };
        let changed = totals.changed_since_mark * u64::from(self.shared.layout.chunk_pages);
        changed + totals.journal_since_mark + left
    }

    /// Chunks that the zones in use hold at most where none is packed.
    pub(super) fn stored_chunks(&self) -> u64 {
        u64::from(self.shared.zones.read().used()) * self.shared.layout.chunks_a_zone()
    }

    /// Space in chunks. What is reclaimable is exact as of the last cleaning, and an upper bound from changes since.
    ///
    /// A chunk that is flushed alone takes a page for its group besides, so only half of what is free may be promised
    /// before it is written.
    pub(super) fn space(&self) -> FreeSpace {
        let layout = &self.shared.layout_now();
        let a_zone = layout.chunks_a_zone();
        let (free, ready, unseen) = {
            let zones = self.shared.zones.read();
            (zones.free(), zones.ready(), zones.unseen())
        };
        let others = ZONES_FOR_CLEANING + ZONES_FOR_JOURNAL;
        let is_host_full = self.host.is_full || !self.host.takes_data();
        let free_zones = if is_host_full { ready } else { free };
        let kept = Self::zones_kept(layout) - others;
        let usable = if self.host.takes_data() {
            free_zones.saturating_sub(others)
        } else {
            // Only metadata may be written.
            free_zones.saturating_sub(others).min(kept)
        };
        // Room that is promised must be there on the host already.
        let metadata = ready.saturating_sub(others);
        let data = if self.host.takes_data() {
            metadata.saturating_sub(reserve_ready(layout, kept))
        } else {
            0
        };
        let reclaimable = if self.is_worth_cleaning() {
            (self.likely_garbage() / u64::from(layout.chunk_pages)).min(self.stored_chunks())
        } else {
            0
        };
        let (total, free_chunks) = (u64::from(layout.zones) * a_zone, u64::from(usable) * a_zone);
        // No more chunks are live than volumes and snapshots map.
        let known_live = (total - free_chunks).saturating_sub(reclaimable);
        let may_be_live = self.mapped_chunks().saturating_sub(known_live);
        let fresh = self
            .totals
            .changed_since_mark
            .min(may_be_live)
            .min(reclaimable);
        FreeSpace {
            total,
            free: free_chunks,
            reclaimable,
            fresh,
            unseen: (u64::from(unseen) * a_zone).min(reclaimable - fresh),
            reserved: u64::from(kept) * a_zone,
            claimable_data: u64::from(data.min(usable.saturating_sub(kept))) * a_zone / 2,
            claimable_metadata: u64::from(metadata.min(usable)) * a_zone / 2,
            missing: u64::from(free - free_zones) * a_zone,
        }
    }

    /// Chunks that volumes and snapshots map, at most.
    fn mapped_chunks(&self) -> u64 {
        let maps = self.shared.maps.read();
        let mapped = maps
            .values()
            .map(|map| map.memtable.mapped() + map.levels.mapped());
        mapped.sum::<u64>().saturating_sub(self.totals.hidden)
    }

    /// The report's counters, RAM by part, and what this engine counts besides.
    pub(super) fn figures(&self) -> EngineStats {
        let (totals, packed) = (&self.totals, &self.packer.totals);
        let (hash_entries, index_ram, index_reads) = self.index.figures();
        let map = self.map_figures();
        EngineStats {
            unique_writes: totals.unique,
            duplicate_writes: totals.duplicate,
            overwrites: totals.overwritten,
            new_writes: totals.writes.saturating_sub(totals.overwritten),
            zero_writes: totals.zero,
            discards: totals.discarded,
            mapped_lbns: self.mapped_chunks(),
            stored_chunks: self.stored_chunks(),
            hash_entries,
            ram_bytes: vec![
                ("index", index_ram),
                ("memtables", map.memtable_entries * ENTRY_RAM_BYTES as u64),
                ("map runs", map.run_ram_bytes),
                ("map pages", self.shared.map_pages.ram_bytes()),
                ("zones", map.zone_ram_bytes),
                ("rows and checks", self.shared.tables.ram_bytes()),
                ("prefetched", self.shared.prefetched.ram_bytes()),
            ],
            counters: vec![
                ("ram limit", self.sizes.ram_bytes),
                ("groups", totals.groups),
                ("group pages", totals.group_pages),
                ("zones opened", totals.zones_opened),
                ("checkpoints", totals.checkpoints),
                ("syncs", totals.syncs),
                ("index reads", index_reads),
                ("false hits", totals.false_hits),
                ("chunks tried to compress", packed.tried),
                ("packed chunks", packed.packed_chunks),
                ("packed pages", packed.packed_pages),
                ("packed bytes", packed.packed_bytes),
                ("index failures", totals.index_failures),
                ("prefetch hits", totals.prefetch_hits),
                ("prefetched chunks", self.shared.prefetched.len() as u64),
                ("pages copied", totals.pages_copied),
                ("zones freed", totals.zones_freed),
                ("merges", totals.merges),
                ("merges waited for", totals.merges_waited_for),
                ("zones ready", u64::from(self.shared.zones.read().ready())),
                ("zones given back", self.host.zones_given_back),
                ("damaged zones left alone", totals.zones_damaged),
                ("damaged chunks known", self.shared.damaged.len() as u64),
                ("extents", map.memtable_entries + map.run_extents),
                ("map runs", map.runs),
                ("map page reads", self.shared.map_pages.reads()),
                ("relocations", map.relocations),
            ],
        }
    }

    fn map_figures(&self) -> MapFigures {
        let mut figures = MapFigures::default();
        for map in self.shared.maps.read().values() {
            figures.memtable_entries += map.memtable.len() as u64;
            figures.run_extents += map.levels.extents();
            figures.runs += map.levels.runs().count() as u64;
            let ram = map.levels.runs().map(|run| run.ram_bytes());
            figures.run_ram_bytes += ram.sum::<u64>();
        }
        let zones = self.shared.zones.read();
        figures.relocations = zones.relocations.len() as u64;
        figures.zone_ram_bytes = zones.ram_bytes();
        figures
    }
}

#[derive(Default)]
struct MapFigures {
    memtable_entries: u64,
    run_extents: u64,
    runs: u64,
    run_ram_bytes: u64,
    relocations: u64,
    zone_ram_bytes: u64,
}
