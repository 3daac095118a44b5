//! The writer: chunks become groups, groups fill zones. One thread.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use onefold_io::Dir;

use super::checkpoint::Reached;
use super::clean::CleaningPlan;
use super::faults::{self, Fault};
use super::figures::Totals;
use super::group::{Entry, header_pages_max};
use super::group_buffer::{GROUP_ENTRIES_MAX, GROUP_PAGES_MAX};
use super::hash_index::HashIndex;
use super::heads::Heads;
use super::layout::{Address, WHOLE, ZoneId, ZoneNo, ZonePlace};
use super::manifest::Position;
use super::map::folder::MapFolder;
use super::map::run_id::RunId;
use super::merging::Merging;
use super::packer::Packer;
use super::page_sealer::PageSealer;
use super::pending::PendingGroup;
use super::room::HostRoom;
use super::seals::Salt;
use super::shared::Shared;
use super::sizes::LogSizes;
use super::zone::{ChunkHash, NO_HASH, chunk_hash};
use super::zone_buffers::ZoneBuffers;
use super::zone_table::Row;
use crate::side_threads::SideThreads;
use crate::{ChunkContent, Error, HashedChunk, HeadId, Result};

/// The engine `log`.
pub struct LogEngine {
    pub(super) shared: Arc<Shared>,
    pub(super) dir: Arc<dyn Dir>,
    pub(super) depot: [u8; 16],
    pub(super) index: HashIndex,
    pub(super) sizes: LogSizes,
    pub(super) map_folder: MapFolder,
    pub(super) heads: Heads,
    /// Generations of the files of zones and of relocations that the manifest names; 0: none.
    pub(super) zone_list: u64,
    pub(super) relocation_list: u64,
    /// Runs that the manifest names.
    pub(super) named_runs: BTreeSet<RunId>,
    /// The part of the journal that the last checkpoint reached.
    pub(super) reached: Reached,
    /// Whether relocations changed since their file was written.
    pub(super) relocations_changed: bool,
    /// Zones that cleaning is going to empty.
    pub(super) plan: CleaningPlan,
    /// The place at which the next mark goes on with zones in turn.
    pub(super) mark_turn: ZoneNo,
    /// The zone that groups are appended to.
    pub(super) zone: Option<OpenZone>,
    /// Id of the zone at which the log begins, until that is opened.
    pub(super) begin: Option<ZoneId>,
    /// The zone before the one that is opened next; `None` where the log begins there.
    pub(super) last_zone: Option<ZoneId>,
    /// The group that is not written yet.
    pub(super) pending: PendingGroup,
    pub(super) packer: Packer,
    pub(super) sequence: u64,
    /// Newest group that is known to be durable.
    pub(super) durable: u64,
    pub(super) generation: u64,
    pub(super) log_bytes: u64,
    /// Why the engine takes no writes any more.
    failed: Option<String>,
    pub(super) totals: Totals,
    /// Room on the host's file systems.
    pub(super) host: HostRoom,
    pub(super) merging: Merging,
    /// The threads that read and write zones while cleaning copies.
    pub(super) cleaners: SideThreads,
    /// Memory for it.
    pub(super) zone_buffers: Arc<ZoneBuffers>,
    /// Zones that were filled by the call of `write` that goes on: the index was asked before they held anything.
    pub(super) just_sealed: Vec<(ZoneId, HashMap<ChunkHash, ZonePlace>)>,
    /// Journal at which a checkpoint is tried again that found no room, in bytes.
    pub(super) checkpoint_again: u64,
}

/// The zone that is being filled.
pub(super) struct OpenZone {
    pub no: ZoneNo,
    pub id: ZoneId,
    /// The next page to write.
    pub page: u32,
    pub rows: Vec<Row>,
    pub by_hash: HashMap<ChunkHash, ZonePlace>,
    /// The salt in its header.
    pub salt: Option<Salt>,
    /// Seals its groups and pages.
    pub sealer: PageSealer,
}

/// Purpose for which a write wants room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// A change of the map.
    Journal,
    /// A chunk, for which the front has set a page aside.
    Data,
}

/// Parts that a writer begins with.
pub(super) struct Beginning {
    pub shared: Arc<Shared>,
    pub dir: Arc<dyn Dir>,
    pub depot: [u8; 16],
    pub index: HashIndex,
    pub sizes: LogSizes,
    pub packer: Packer,
    pub map_folder: MapFolder,
    pub heads: Heads,
    pub zone_list: u64,
    pub relocation_list: u64,
    pub named_runs: BTreeSet<RunId>,
    pub begin: ZoneId,
    pub sequence: u64,
    pub generation: u64,
    pub host: HostRoom,
    pub merging: Merging,
    pub cleaners: SideThreads,
}

impl LogEngine {
    pub(super) fn begin(beginning: Beginning) -> Self {
        let layout = beginning.shared.layout;
        Self {
            shared: beginning.shared,
            dir: beginning.dir,
            depot: beginning.depot,
            index: beginning.index,
            sizes: beginning.sizes,
            map_folder: beginning.map_folder,
            heads: beginning.heads,
            zone_list: beginning.zone_list,
            relocation_list: beginning.relocation_list,
            named_runs: beginning.named_runs,
            // Opening makes a checkpoint.
            reached: Reached {
                position: Position {
                    no: ZoneNo(0),
                    zone: beginning.begin,
                    page: 0,
                },
                sequence: beginning.sequence - 1,
            },
            relocations_changed: false,
            plan: CleaningPlan::default(),
            mark_turn: ZoneNo(0),
            zone: None,
            begin: Some(beginning.begin),
            last_zone: None,
            pending: PendingGroup::new(&layout),
            packer: beginning.packer,
            sequence: beginning.sequence,
            durable: beginning.sequence - 1,
            generation: beginning.generation,
            log_bytes: 0,
            failed: None,
            totals: Totals::default(),
            host: beginning.host,
            merging: beginning.merging,
            cleaners: beginning.cleaners,
            zone_buffers: ZoneBuffers::new(&layout),
            just_sealed: Vec::new(),
            checkpoint_again: 0,
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Number of the group that is not written yet.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The zone that is being filled.
    pub(super) fn open_zone_id(&self) -> Option<ZoneId> {
        self.zone.as_ref().map(|zone| zone.id)
    }

    /// Whether something was written that is in no group yet.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(super) fn check_usable(&self) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(why) => Err(Error::ReadOnly { why: why.clone() }),
        }
    }

    /// Notes that the device failed: from now on nothing is written, since nobody can tell what is durable.
    pub(super) fn fail<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.failed
                .get_or_insert_with(|| format!("a write or sync failed: {error}"));
        }
        result
    }

    /// Stores chunks, and returns the positions of those that need a page and get none.
    pub(super) fn write_chunks(&mut self, chunks: &[HashedChunk<'_>]) -> Result<Vec<usize>> {
        self.check_usable()?;
        self.just_sealed.clear();
        let answers = self.ask_index(chunks);
        let mut refused = Vec::new();
        for (at, (chunk, answer)) in chunks.iter().zip(answers).enumerate() {
            match self.write_one(chunk, answer) {
                Err(error) if error.is_shortage() && self.failed.is_none() => refused.push(at),
                written => written?,
            }
        }
        self.checkpoint_if_due()?;
        Ok(refused)
    }

    /// Asks the index for each chunk that is not known otherwise. An index that fails knows nothing.
    fn ask_index(&mut self, chunks: &[HashedChunk<'_>]) -> Vec<Option<ZoneId>> {
        let mut answers = vec![None; chunks.len()];
        let asked: Vec<(usize, ChunkHash)> = (chunks.iter().enumerate())
            .filter_map(|(at, chunk)| match chunk.content {
                ChunkContent::Fingerprinted(fingerprint, _) => Some((at, chunk_hash(&fingerprint))),
                _ => None,
            })
            .filter(|(_, hash)| self.known_nearby(hash).is_none())
            .collect();
        let asked = self.answer_prefetched(asked, &mut answers);
        let hashes: Vec<ChunkHash> = asked.iter().map(|(_, hash)| *hash).collect();
        let mut zones = Vec::new();
        match self.index.lookup(&hashes, &mut zones) {
            Ok(()) => asked
                .iter()
                .zip(zones)
                .for_each(|((at, _), zone)| answers[*at] = zone),
            Err(_) => self.totals.index_failures += 1,
        }
        answers
    }

    fn write_one(&mut self, chunk: &HashedChunk<'_>, answer: Option<ZoneId>) -> Result<()> {
        if !self.takes_writes(chunk.head)? {
            return Ok(());
        }
        if !chunk.has_page {
            self.check_memtables()?;
        }
        self.make_room(Need::Journal)?;
        let target = match chunk.content {
            ChunkContent::Zero => {
                self.totals.zero += 1;
                None
            }
            ChunkContent::NoDedup(bytes) => Some(self.append(NO_HASH, bytes, chunk)?),
            ChunkContent::Fingerprinted(fingerprint, bytes) => {
                let hash = chunk_hash(&fingerprint);
                match self
                    .known_nearby(&hash)
                    .or_else(|| self.known_elsewhere(&hash, answer))
                {
                    Some(address) => {
                        self.totals.duplicate += 1;
                        Some(address)
                    }
                    None => Some(self.append(hash, bytes, chunk)?),
                }
            }
        };
        self.totals.writes += 1;
        self.totals.overwritten += self.change(chunk.head, chunk.lbn.0, 1, target);
        Ok(())
    }

    pub(super) fn unmap(&mut self, head: HeadId, lbns: Range<u64>) -> Result<()> {
        self.check_usable()?;
        if lbns.is_empty() || !self.takes_writes(head)? {
            return Ok(());
        }
        self.check_memtables()?;
        self.make_room(Need::Journal)?;
        self.totals.discarded += self.change(head, lbns.start, lbns.end - lbns.start, None);
        self.checkpoint_if_due()
    }

    /// The chunk, if the pending group or the open zone holds it, or a zone that this call of `write` has filled.
    fn known_nearby(&self, hash: &ChunkHash) -> Option<Address> {
        if let Some(place) = self.pending.place_of(hash) {
            return Some(place.in_zone(ZoneId::pending(self.sequence)));
        }
        let is_whole = |address: &Address| !self.shared.damaged.has(*address);
        if let Some(zone) = &self.zone
            && let Some(place) = zone.by_hash.get(hash)
        {
            return Some(place.in_zone(zone.id)).filter(is_whole);
        }
        let is_there = |zone: &ZoneId| {
            !self.plan.condemns(*zone) && self.shared.zones.read().get(*zone).is_some()
        };
        (self.just_sealed.iter())
            .find_map(|(zone, by_hash)| by_hash.get(hash).map(|place| place.in_zone(*zone)))
            .filter(|address| is_there(&address.zone))
            .filter(is_whole)
    }

    /// The chunk, if the zone that the index named is there and its rows hold the hash.
    pub(super) fn known_elsewhere(
        &mut self,
        hash: &ChunkHash,
        answer: Option<ZoneId>,
    ) -> Option<Address> {
        let is_condemned = |zone: &ZoneId| self.plan.condemns(*zone);
        let zone = answer
            .filter(|zone| !is_condemned(zone) || faults::is_on(Fault::HitsInCondemnedZones))?;
        let no = self.shared.zones.read().get(zone).map(|info| info.no);
        let is_open = self.open_zone_id() == Some(zone);
        let place = match no.filter(|_| !is_open) {
            Some(no) => self.shared.tables.rows(zone, no).ok().and_then(|rows| {
                let is_whole = |place: ZonePlace| !self.shared.damaged.has(place.in_zone(zone));
                rows.find(hash, is_whole)
            }),
            None => None,
        };
        self.totals.false_hits += u64::from(place.is_none());
        Some(place?.in_zone(zone))
    }

    /// Adds a new chunk to the pending group.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where no page was set aside for it, or none is left.
    fn append(
        &mut self,
        hash: ChunkHash,
        bytes: &[u8],
        chunk: &HashedChunk<'_>,
    ) -> Result<Address> {
        if !chunk.has_page {
            return Err(Error::NoSpace {
                what: "no page was set aside for a new chunk".to_string(),
            });
        }
        self.make_room(Need::Data)?;
        let page = {
            let mut open = self.shared.open_group.write();
            let page = open.data.pages() as u32;
            open.data.push(bytes);
            page
        };
        self.totals.unique += 1;
        self.pending.add_chunk(hash, page);
        // Chunks that are not deduplicated stay as they are, and so does metadata: it is read and written soon again.
        let is_packed = hash != NO_HASH && !chunk.is_metadata && !chunk.is_incompressible;
        self.packer.add(bytes, is_packed.then_some(chunk.head));
        Ok(ZonePlace::new(page, WHOLE).in_zone(ZoneId::pending(self.sequence)))
    }

    /// Changes the map, and notes it in the pending group. Returns how many of the chunks are known to have been mapped
    /// before: the runs are not asked.
    fn change(&mut self, head: HeadId, lbn: u64, chunks: u64, target: Option<Address>) -> u64 {
        let replaced = self.shared.map(head, lbn, chunks, target);
        self.totals.changed_since_mark += match chunks {
            1 => 1,
            // A discard may be far longer than what is stored.
            chunks => chunks.min(self.stored_chunks()),
        };
        self.pending.add(Entry {
            head,
            lbn,
            chunks,
            target,
        });
        replaced
    }

    /// Sees to it that one more change, and a chunk where one is needed, fits into the group and its zone.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: no zone may be used for that, and cleaning gives none.
    fn make_room(&mut self, need: Need) -> Result<()> {
        let pages = if need == Need::Journal {
            0
        } else {
            self.shared.layout.chunk_pages as usize
        };
        loop {
            if need != Need::Journal {
                self.find_space(self.kept_for_others(need))?;
            }
            if let Some(zone) = &self.zone {
                let data_pages = self.shared.open_group.read().data.pages();
                let entries = self.pending.entries_max(self.packer.is_on());
                let rows = zone.rows.len() + self.pending.chunks() + usize::from(pages > 0);
                let groups_end = self.shared.layout.groups_end_with(rows) as usize;
                let room = groups_end.saturating_sub(zone.page as usize);
                let check_bytes = self.shared.layout.check_bytes;
                let fits = |data_pages: usize| {
                    let data_pages = data_pages + pages;
                    header_pages_max(entries + 1, data_pages, check_bytes) + data_pages <= room
                };
                let is_open = data_pages + pages <= GROUP_PAGES_MAX && entries < GROUP_ENTRIES_MAX;
                let packed_pages = |packer: &Packer| packer.data_pages(data_pages);
                if is_open
                    && (fits(packed_pages(&self.packer))
                        || self.packer.settle() && fits(packed_pages(&self.packer)))
                {
                    return Ok(());
                }
                if data_pages > 0 || entries > 0 {
                    self.close_group()?;
                    continue;
                }
                self.seal_zone()?;
            }
            self.open_zone(need)?;
        }
    }
}
