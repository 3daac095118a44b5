//! State that the engine's writer and its readers share.
//!
//! Lock order: `open_group` → `maps` → `zones` → `open_checks`; the group disk's own lock is the last. No lock is
//! held over I/O.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use onefold_io::Disk;
use parking_lot::RwLock;

use super::damaged::DamagedChunks;
use super::group_buffer::GroupBuffer;
use super::group_disk::GroupDisk;
use super::layout::{Address, Layout, ZoneId};
use super::map::levels::Levels;
use super::map::memtable::Memtable;
use super::map::page_cache::PageCache;
use super::map::run::Run;
use super::map::run_id::RunId;
use super::seals::Seals;
use super::tables::{Tables, ZoneChecks};
use super::zones::Zones;
use crate::HeadId;
use crate::hints::Prefetched;

/// Everything a reader needs to find and prove a chunk.
pub struct Shared {
    /// Sizes of zones and chunks; how many zones there are, [`layout_now`](Self::layout_now) tells.
    pub layout: Layout,
    /// The data device.
    pub data: Arc<dyn Disk>,
    /// The same, for groups.
    pub groups: Arc<GroupDisk>,
    /// Keys of everything, or none.
    pub seals: Seals,
    /// The block maps.
    pub maps: RwLock<BTreeMap<HeadId, HeadMap>>,
    /// Pages of their runs.
    pub map_pages: PageCache,
    /// The zones.
    pub zones: RwLock<Zones>,
    /// The group that is not written yet.
    pub open_group: RwLock<OpenGroup>,
    /// Checks of zones that have no table yet.
    pub open_checks: RwLock<HashMap<ZoneId, ZoneChecks>>,
    /// Rows and checks of the others.
    pub tables: Tables,
    /// Chunks that no hit may name.
    pub damaged: DamagedChunks,
    /// Chunks that were read with the hint PREFETCH.
    pub prefetched: Prefetched<Address>,
}

/// The map of one head: what changed since the last checkpoint, and runs.
pub struct HeadMap {
    /// The newest changes. Shared while a checkpoint writes them.
    pub memtable: Arc<Memtable>,
    /// Everything else. A reader takes the list and asks it without a lock.
    pub levels: Arc<Levels>,
}

impl HeadMap {
    /// A map that maps nothing.
    pub fn new(chunk_pages: u32) -> Self {
        Self {
            memtable: Arc::new(Memtable::new(chunk_pages)),
            levels: Arc::default(),
        }
    }
}

/// Data of the group that is not written yet. Its chunks have pending addresses.
pub struct OpenGroup {
    /// The group's number.
    pub sequence: u64,
    /// Data pages.
    pub data: GroupBuffer,
}

impl OpenGroup {
    /// An empty group.
    pub fn new(sequence: u64) -> Self {
        Self {
            sequence,
            data: GroupBuffer::new(),
        }
    }
}

impl Shared {
    /// The layout with the zones that there are now: a device may have grown since it was opened.
    pub fn layout_now(&self) -> Layout {
        Layout {
            zones: self.zones.read().count(),
            ..self.layout
        }
    }

    /// Maps chunks of a head, and returns how many of them are known to have been mapped before: the runs are not asked.
    pub fn map(&self, head: HeadId, lbn: u64, chunks: u64, target: Option<Address>) -> u64 {
        let mut maps = self.maps.write();
        let map = maps
            .get_mut(&head)
            .expect("the writer asked whether the head is there");
        Arc::make_mut(&mut map.memtable).set(lbn, chunks, target)
    }

    /// Every run of any head, once.
    pub fn distinct_runs(&self) -> BTreeMap<RunId, Arc<Run>> {
        let maps = self.maps.read();
        let runs = maps.values().flat_map(|map| map.levels.runs());
        runs.map(|run| (run.listed.id, Arc::clone(run))).collect()
    }

    /// Entries of all memtables.
    pub fn memtable_entries(&self) -> usize {
        let maps = self.maps.read();
        maps.values().map(|map| map.memtable.len()).sum()
    }
}
