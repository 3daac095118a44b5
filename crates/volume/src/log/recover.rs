//! Opening: the manifest, then the groups behind its position. Bounded by the journal since the last checkpoint.
//!
//! After recovery the log begins in a new zone, never behind the last group that was found: what lies there may be the
//! rest of groups that were written and not acknowledged, and must never look like the continuation of new ones.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use onefold_io::{Dir, Disk, PageBuffer};
use parking_lot::RwLock;

use super::checkpoint::{relocations_name, remove_left_over, zones_name};
use super::checks::Checks;
use super::clean::READ_AHEAD;
use super::damaged::DamagedChunks;
use super::faults::{self, Fault};
use super::group::{GroupHeader, InZone, decode_group};
use super::group_disk::GroupDisk;
use super::hash_index::HashIndex;
use super::heads::Heads;
use super::layout::{Layout, PAGE_BYTES, ZoneId, ZoneNo, on_device};
use super::manifest::{ListedHead, Manifest, Position, read_file};
use super::map::folder::MapFolder;
use super::map::levels::Opening;
use super::map::page_cache::PageCache;
use super::map::run_id::RunId;
use super::merging::Merging;
use super::packer::Packer;
use super::page_sealer::PageSealer;
use super::relocations::Relocations;
use super::replayed_rows as rows;
use super::room::HostRoom;
use super::seals::Seals;
use super::shared::{HeadMap, OpenGroup, Shared};
use super::tables::Tables;
use super::writer::{Beginning, LogEngine};
use super::zone::{Stream, ZoneHeader, damaged};
use super::zone_list::{ListedZone, changed, decode_zones};
use super::zone_table::ZoneTable;
use super::zones::Zones;
use super::{Fingerprinter, LogOptions};
use crate::hints::Prefetched;
use crate::side_threads::SideThreads;
use crate::{Error, HeadId, Result};

/// An engine over an empty device.
pub fn create(
    dir: Arc<dyn Dir>,
    data: Arc<dyn Disk>,
    chunk_bytes: u32,
    options: LogOptions,
) -> Result<LogEngine> {
    let layout = Layout::new(data.len()?, chunk_bytes)?;
    let layout = layout.with_checks_of(options.seals.check_bytes());
    let none = BTreeSet::new();
    let found = RecoveredDepot {
        zones: Zones::new(&layout, &[], 1),
        map_folder: MapFolder::open(&*dir, layout, 1, &none)?.sealed_by(&options.seals),
        maps: BTreeMap::from([(options.first.id, HeadMap::new(layout.chunk_pages))]),
        heads: Heads::first(options.first.clone()),
        replayed: Vec::new(),
        sequence: 0,
        generation: 0,
        zone_list: 0,
        relocation_list: 0,
        named_runs: none,
    };
    begin(dir, data, layout, found, options)
}

/// The engine as its manifest and journal have it.
pub fn open(dir: Arc<dyn Dir>, data: Arc<dyn Disk>, options: LogOptions) -> Result<LogEngine> {
    let manifest = Manifest::read(&*dir, &options.seals)?;
    let layout = manifest.layout;
    let device_bytes = data.len()?;
    let needed = u64::from(layout.zones) * layout.zone_bytes();
    if device_bytes < needed {
        return Err(damaged(
            "data",
            on_device(device_bytes),
            format!("the device ends here, expected {} bytes", on_device(needed)),
        ));
    }
    remove_left_over(&*dir, &manifest)?;
    let mut zones = open_zones(&*dir, &options.seals, &manifest)?;
    let heads = Heads::listed(&manifest, options.first.clone());
    let (map_folder, mut maps) = open_maps(&*dir, &manifest, &options)?;
    for head in heads.iter() {
        maps.entry(head.id)
            .or_insert_with(|| HeadMap::new(layout.chunk_pages));
    }
    let mut replay = JournalReplay {
        data: &*data,
        layout,
        depot: options.depot,
        seals: &options.seals,
        fingerprint: Arc::clone(&options.fingerprint),
        sequence: manifest.sequence,
        zones: Vec::new(),
        groups: Vec::new(),
    };
    replay.run(&manifest.position)?;
    let (sequence, replayed, groups) = (replay.sequence, replay.zones, replay.groups);
    for entry in groups.iter().flat_map(|group| &group.entries) {
        let Some(map) = maps.get_mut(&entry.head) else {
            let what = format!(
                "the journal writes to volume {}, which is not there",
                entry.head.0
            );
            return Err(damaged(
                "data",
                layout.zone_offset(manifest.position.no),
                what,
            ));
        };
        Arc::make_mut(&mut map.memtable).set(entry.lbn, entry.chunks, entry.target);
    }
    for (no, table) in &replayed {
        if zones.get(table.zone).is_none() {
            if let Some(stale) = zones.at(*no) {
                return Err(damaged(
                    "data",
                    on_device(layout.zone_offset(*no)),
                    format!("the journal went on in a place that zone {} holds", stale.0),
                ));
            }
            zones.insert(table.zone, *no, Stream::Journal, table.pages_used);
        }
        zones.seal(table.zone, table.pages_used);
    }
    let found = RecoveredDepot {
        zones,
        map_folder,
        maps,
        heads,
        replayed,
        sequence,
        generation: manifest.generation,
        zone_list: manifest.zone_list,
        relocation_list: manifest.relocations,
        named_runs: manifest.runs().collect(),
    };
    begin(dir, data, layout, found, options)
}

/// The zones that hold something, by place.
///
/// # Errors
/// The file of zones cannot be read, or is damaged.
pub fn listed_zones(dir: &dyn Dir, seals: &Seals, manifest: &Manifest) -> Result<Vec<ListedZone>> {
    let listed = match manifest.zone_list {
        0 => Vec::new(),
        generation => {
            let name = zones_name(generation);
            let bytes = seals.open_file(&name, read_file(dir, &name)?)?;
            decode_zones(&bytes, &manifest.layout, &name)?
        }
    };
    Ok(changed(listed, &manifest.zone_changes))
}

/// The zones, and relocations of those that were freed.
fn open_zones(dir: &dyn Dir, seals: &Seals, manifest: &Manifest) -> Result<Zones> {
    let layout = &manifest.layout;
    let listed = listed_zones(dir, seals, manifest)?;
    let next_id = if faults::is_on(Fault::IdsGivenAgain) {
        listed.iter().map(|zone| zone.id.0 + 1).max().unwrap_or(1)
    } else {
        manifest.ids_reserved
    };
    let mut zones = Zones::new(layout, &listed, next_id);
    zones.note_changed(&manifest.zone_changes);
    if manifest.relocations > 0 {
        let name = relocations_name(manifest.relocations);
        let bytes = seals.open_file(&name, read_file(dir, &name)?)?;
        zones.relocations = Relocations::decode(&bytes, layout, &name)?;
    }
    Ok(zones)
}

/// The maps as of the last checkpoint.
fn open_maps(
    dir: &dyn Dir,
    manifest: &Manifest,
    options: &LogOptions,
) -> Result<(MapFolder, BTreeMap<HeadId, HeadMap>)> {
    let listed: BTreeSet<RunId> = manifest.runs().collect();
    let folder = MapFolder::open(dir, manifest.layout, manifest.next_run, &listed)?;
    let folder = folder.sealed_by(&options.seals);
    let mut maps = BTreeMap::new();
    let mut opening = Opening::new(&folder, options.sizes.pinned_bytes_max());
    for ListedHead { info, levels } in &manifest.heads {
        let mut map = HeadMap::new(manifest.layout.chunk_pages);
        map.levels = Arc::new(opening.levels(levels, info.is_writable)?);
        maps.insert(info.id, map);
    }
    Ok((folder, maps))
}

/// Content of a depot after recovery.
struct RecoveredDepot {
    zones: Zones,
    map_folder: MapFolder,
    maps: BTreeMap<HeadId, HeadMap>,
    heads: Heads,
    /// Zones that the journal went through since the last checkpoint, with tables as they should be.
    replayed: Vec<(ZoneNo, ZoneTable)>,
    sequence: u64,
    generation: u64,
    zone_list: u64,
    relocation_list: u64,
    named_runs: BTreeSet<RunId>,
}

/// Writes the tables of what was replayed and a manifest with a new place for the log; then the engine may write.
fn begin(
    dir: Arc<dyn Dir>,
    data: Arc<dyn Disk>,
    layout: Layout,
    found: RecoveredDepot,
    options: LogOptions,
) -> Result<LogEngine> {
    let groups = Arc::new(GroupDisk::new(data, options.is_inline));
    let data: Arc<dyn Disk> = groups.clone();
    let mut zones = found.zones;
    zones.forget_seen();
    let seals = options.seals;
    let cache_bytes = options.sizes.cache_bytes;
    let tables = Tables::new(Arc::clone(&data), layout, seals.clone(), cache_bytes);
    let mut index = HashIndex::new(options.index, &seals);
    let listed = zones.listed(&HashSet::new());
    tell_index(&mut index, found.replayed, &listed, &tables)?;
    let is_there = |zone| zones.get(zone).is_some();
    let known_damaged = DamagedChunks::kept(&*dir, seals.clone(), is_there)?;
    let shared = Shared {
        layout,
        data,
        groups,
        seals,
        maps: RwLock::new(found.maps),
        map_pages: PageCache::new(options.sizes.map_page_bytes),
        zones: RwLock::new(zones),
        open_group: RwLock::new(OpenGroup::new(found.sequence + 1)),
        open_checks: RwLock::new(HashMap::new()),
        tables,
        damaged: known_damaged,
        prefetched: Prefetched::default(),
    };
    let host = HostRoom::open(&dir, options.sizes.ballast_bytes, &shared, options.clock)?;
    let begin = {
        let mut zones = shared.zones.write();
        if zones.choose_next_journal().is_none() {
            let what = "no zone is free for the journal".to_string();
            return Err(damaged("manifest", 0, what));
        }
        zones.new_id()
    };
    let mut engine = LogEngine::begin(Beginning {
        shared: Arc::new(shared),
        dir,
        depot: options.depot,
        index,
        sizes: options.sizes,
        packer: Packer::new(options.compression, layout.chunk_pages),
        map_folder: found.map_folder,
        heads: found.heads,
        zone_list: found.zone_list,
        relocation_list: found.relocation_list,
        named_runs: found.named_runs,
        begin,
        sequence: found.sequence + 1,
        generation: found.generation,
        host,
        merging: Merging::new(options.is_inline),
        cleaners: SideThreads::unless_inline(options.is_inline, READ_AHEAD + 1),
    });
    // Nobody knows yet what of it is garbage: worth a look when space is short.
    engine.totals.garbage_left = listed.len() as u64 * u64::from(layout.zone_pages);
    engine.checkpoint()?;
    Ok(engine)
}

/// Writes the tables of the `replayed` zones and tells the index their chunks; a lost index is told those of all
/// `listed` zones. An index that fails costs duplicates.
fn tell_index(
    index: &mut HashIndex,
    replayed: Vec<(ZoneNo, ZoneTable)>,
    listed: &[ListedZone],
    tables: &Tables,
) -> Result<()> {
    let is_lost = index.is_empty();
    let mut tell = |table: &ZoneTable| {
        let hashes = table.rows.iter().map(|row| row.hash);
        index.insert(hashes, table.zone).ok();
    };
    for (no, table) in replayed {
        tell(&table);
        tables.write(table, no)?;
    }
    for zone in listed.iter().filter(|_| is_lost) {
        match tables.read(zone.id, zone.no) {
            // A damaged table hides chunks of its zone from the index: their duplicates are stored again.
            Err(Error::Damaged { .. }) => {}
            read => tell(&read?),
        }
    }
    Ok(())
}

/// Reads the journal from a position on, zone by zone.
struct JournalReplay<'a> {
    data: &'a dyn Disk,
    layout: Layout,
    depot: [u8; 16],
    seals: &'a Seals,
    fingerprint: Fingerprinter,
    /// Sequence number of the last group that counts.
    sequence: u64,
    /// Zones that the journal went through, with tables as they should be.
    zones: Vec<(ZoneNo, ZoneTable)>,
    /// Groups behind the position.
    groups: Vec<GroupHeader>,
}

impl JournalReplay<'_> {
    fn run(&mut self, position: &Position) -> Result<()> {
        let Some(first) = self.first_header(position)? else {
            return Ok(());
        };
        let (mut no, mut header, mut from) = (position.no, first, position.page.max(1));
        loop {
            self.replay_zone(no, &header, from)?;
            let Some(next) = self.next_header(&header) else {
                return Ok(());
            };
            (no, header, from) = (header.next, next, 1);
        }
    }

    /// The header of the zone that the manifest names. `None`: it was not written yet.
    fn first_header(&self, position: &Position) -> Result<Option<ZoneHeader>> {
        let found = self.header(position.no);
        if position.page == 0 {
            return Ok(found.ok().filter(|header| header.zone == position.zone));
        }
        let header = found?;
        if header.zone != position.zone {
            let what = format!(
                "the header of zone {}, expected {}",
                header.zone.0, position.zone.0
            );
            return Err(damaged(
                "data",
                on_device(self.layout.zone_offset(position.no)),
                what,
            ));
        }
        Ok(Some(header))
    }

    /// The header of the zone that follows. `None`: the log ends.
    fn next_header(&self, header: &ZoneHeader) -> Option<ZoneHeader> {
        if header.next.0 >= self.layout.zones {
            return None;
        }
        let next = self.header(header.next).ok()?;
        let follows = next.previous == Some(header.zone) && next.sequence == self.sequence + 1;
        follows.then_some(next)
    }

    fn header(&self, no: ZoneNo) -> Result<ZoneHeader> {
        let offset = self.layout.zone_offset(no);
        let mut page = PageBuffer::zeroed(PAGE_BYTES);
        self.data.read_at(&mut page, offset)?;
        let header = ZoneHeader::decode(&page, self.seals, "data", on_device(offset))?;
        if header.depot != self.depot {
            return Err(damaged(
                "data",
                on_device(offset),
                "the zone of another depot".to_string(),
            ));
        }
        Ok(header)
    }

    /// Takes the zone's groups: those before page `from` for its table alone.
    fn replay_zone(&mut self, no: ZoneNo, header: &ZoneHeader, from: u32) -> Result<()> {
        let layout = self.layout;
        let mut bytes = PageBuffer::zeroed(layout.groups_end() as usize * PAGE_BYTES);
        self.data.read_at(&mut bytes, layout.zone_offset(no))?;
        let mut table = ZoneTable {
            zone: header.zone,
            rows: Vec::new(),
            checks: Checks::zeros(layout.check_bytes, layout.zone_pages as usize),
            pages_used: 1,
            sequence: self.sequence,
            salt: header.salt,
        };
        let zone = &ReplayedZone {
            no,
            sealer: self.seals.pages(header.salt),
            id: header.zone,
            bytes: &bytes,
        };
        while table.pages_used < layout.groups_end() {
            let page = table.pages_used;
            let group = self.header_at(zone, page);
            // A durable group with a damaged page loses that page alone.
            let is_kept = |group: &GroupHeader| {
                page < from || zone.is_whole(group) || self.is_durable(group.sequence, zone, page)
            };
            let Some(group) = group.filter(is_kept) else {
                self.check_end(zone, page, from)?;
                break;
            };
            let is_new = page >= from;
            if is_new && group.sequence != self.sequence + 1 {
                self.check_end(zone, page, from)?;
                break;
            }
            let (sealer, fingerprint) = (&zone.sealer, &self.fingerprint);
            rows::add(&mut table, &group, &bytes, sealer, &layout, fingerprint);
            if is_new {
                self.sequence = group.sequence;
                self.groups.push(group);
            }
        }
        table.sequence = self.sequence;
        self.zones.push((no, table));
        Ok(())
    }

    /// The header of the group at a page of the zone, if that is what was written.
    fn header_at(&self, zone: &ReplayedZone<'_>, page: u32) -> Option<GroupHeader> {
        let start = page as usize * PAGE_BYTES;
        let offset = self.layout.page_offset(zone.no, page);
        let within = InZone {
            zone: zone.id,
            sealer: &zone.sealer,
        };
        let group = decode_group(&zone.bytes[start..], page, within, "data", offset).ok()?;
        let end = group.first_data_page as usize + group.checks.len();
        (group.zone == zone.id && end <= self.layout.groups_end() as usize).then_some(group)
    }

    /// Whether a whole group behind `page` says that this group was durable.
    fn is_durable(&self, sequence: u64, zone: &ReplayedZone<'_>, page: u32) -> bool {
        (page + 1..self.layout.groups_end()).any(|page| {
            self.header_at(zone, page)
                .is_some_and(|group| group.durable >= sequence && zone.is_whole(&group))
        })
    }

    /// Where no group follows at `page`: an error if a later one says that what is missing was durable.
    fn check_end(&self, zone: &ReplayedZone<'_>, page: u32, from: u32) -> Result<()> {
        let missing = self.sequence + 1;
        if page < from || self.is_durable(missing, zone, page) {
            let what = format!("expected group {missing}, which was durable, and found none");
            return Err(damaged(
                "data",
                on_device(self.layout.page_offset(zone.no, page)),
                what,
            ));
        }
        Ok(())
    }
}

/// A zone of the journal, as it was read.
struct ReplayedZone<'a> {
    no: ZoneNo,
    id: ZoneId,
    sealer: PageSealer,
    bytes: &'a [u8],
}

impl ReplayedZone<'_> {
    /// Whether all data pages of a group are what was written.
    fn is_whole(&self, group: &GroupHeader) -> bool {
        let start = group.first_data_page as usize * PAGE_BYTES;
        let pages = &self.bytes[start..start + group.checks.len() * PAGE_BYTES];
        let (_, are_whole) = self.sealer.opened(group.first_data(), pages, &group.checks);
        are_whole.into_iter().all(|is_whole| is_whole)
    }
}
