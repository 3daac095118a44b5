//! The writer: chunks become groups, groups fill zones. One thread.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use onefold_io::Dir;

use super::checkpoint::Reached;
use super::clean::Plan;
use super::faults::{self, Fault};
use super::figures::Totals;
use super::group::{Entry, GroupContent, encode_header, header_pages_max};
use super::group_buffer::{GROUP_ENTRIES_MAX, GROUP_PAGES_MAX};
use super::hash_index::HashIndex;
use super::heads::Heads;
use super::layout::{Address, PAGE_BYTES, ZoneId, ZoneNo};
use super::manifest::Position;
use super::map::folder::MapFolder;
use super::map::run_page::RunId;
use super::merging::Merging;
use super::room::HostRoom;
use super::shared::Shared;
use super::sizes::LogSizes;
use super::zone::{ChunkHash, NO_HASH, Row, chunk_hash};
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
    pub(super) plan: Plan,
    /// The place at which the next mark goes on with zones in turn.
    pub(super) mark_turn: ZoneNo,
    /// The zone that groups are appended to.
    pub(super) zone: Option<OpenZone>,
    /// Id of the zone at which the log begins, until that is opened.
    pub(super) begin: Option<ZoneId>,
    /// The zone before the one that is opened next; `None` where the log begins there.
    pub(super) last_zone: Option<ZoneId>,
    /// The group that is not written yet.
    pending: PendingGroup,
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
    /// Zones that were filled by the call of `write` that goes on: the index was asked before they held anything.
    pub(super) just_sealed: Vec<(ZoneId, HashMap<ChunkHash, u32>)>,
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
    pub by_hash: HashMap<ChunkHash, u32>,
}

/// Changes and new chunks that are not written yet; the data is shared with readers.
#[derive(Default)]
struct PendingGroup {
    entries: Vec<Entry>,
    /// New chunks: hash, and page within the group's data.
    chunks: Vec<(ChunkHash, u32)>,
    by_hash: HashMap<ChunkHash, u32>,
}

/// What a write wants room for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// A change of the map.
    Journal,
    /// A chunk, for which the front has set a page aside.
    Data,
}

/// What a writer begins with.
pub(super) struct Beginning {
    pub shared: Arc<Shared>,
    pub dir: Arc<dyn Dir>,
    pub depot: [u8; 16],
    pub index: HashIndex,
    pub sizes: LogSizes,
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
}

impl LogEngine {
    pub(super) fn begin(beginning: Beginning) -> Self {
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
            plan: Plan::default(),
            mark_turn: ZoneNo(0),
            zone: None,
            begin: Some(beginning.begin),
            last_zone: None,
            pending: PendingGroup::default(),
            sequence: beginning.sequence,
            durable: beginning.sequence - 1,
            generation: beginning.generation,
            log_bytes: 0,
            failed: None,
            totals: Totals::default(),
            host: beginning.host,
            merging: beginning.merging,
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
        !self.pending.entries.is_empty()
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

    /// What the index says of each chunk that is not known otherwise. An index that fails knows nothing.
    fn ask_index(&mut self, chunks: &[HashedChunk<'_>]) -> Vec<Option<ZoneId>> {
        let mut answers = vec![None; chunks.len()];
        let asked: Vec<(usize, ChunkHash)> = (chunks.iter().enumerate())
            .filter_map(|(at, chunk)| match chunk.content {
                ChunkContent::Fingerprinted(fingerprint, _) => Some((at, chunk_hash(&fingerprint))),
                _ => None,
            })
            .filter(|(_, hash)| self.known_nearby(hash).is_none())
            .collect();
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
            ChunkContent::NoDedup(bytes) => Some(self.append(NO_HASH, bytes, chunk.has_page)?),
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
                    None => Some(self.append(hash, bytes, chunk.has_page)?),
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
        if let Some(page) = self.pending.by_hash.get(hash) {
            let zone = ZoneId::pending(self.sequence);
            return Some(Address { zone, page: *page });
        }
        let is_whole = |address: &Address| !self.shared.damaged.has(*address);
        if let Some(zone) = &self.zone
            && let Some(page) = zone.by_hash.get(hash)
        {
            let (zone, page) = (zone.id, *page);
            return Some(Address { zone, page }).filter(is_whole);
        }
        let is_there = |zone: &ZoneId| {
            !self.plan.condemns(*zone) && self.shared.zones.read().get(*zone).is_some()
        };
        (self.just_sealed.iter())
            .find_map(|(zone, by_hash)| by_hash.get(hash).map(|page| (*zone, *page)))
            .filter(|(zone, _)| is_there(zone))
            .map(|(zone, page)| Address { zone, page })
            .filter(is_whole)
    }

    /// The chunk, if the zone that the index named is there and its rows hold the hash.
    fn known_elsewhere(&mut self, hash: &ChunkHash, answer: Option<ZoneId>) -> Option<Address> {
        let is_condemned = |zone: &ZoneId| self.plan.condemns(*zone);
        let zone = answer
            .filter(|zone| !is_condemned(zone) || faults::is_on(Fault::HitsInCondemnedZones))?;
        let no = self.shared.zones.read().get(zone).map(|info| info.no);
        let is_open = self.open_zone_id() == Some(zone);
        let page = match no.filter(|_| !is_open) {
            Some(no) => self.shared.tables.rows(zone, no).ok().and_then(|rows| {
                let is_whole = |page| !self.shared.damaged.has(Address { zone, page });
                rows.find(hash, is_whole)
            }),
            None => None,
        };
        self.totals.false_hits += u64::from(page.is_none());
        Some(Address { zone, page: page? })
    }

    /// Adds a new chunk to the pending group.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where no page was set aside for it, or none is left.
    fn append(&mut self, hash: ChunkHash, bytes: &[u8], has_page: bool) -> Result<Address> {
        if !has_page {
            return Err(Error::NoSpace {
                what: "no page was set aside for a new chunk".to_string(),
            });
        }
        self.make_room(Need::Data)?;
        let page = {
            let mut open = self.shared.open_group.write();
            let page = open.data.pages() as u32;
            open.data_mut().push(bytes);
            page
        };
        self.totals.unique += 1;
        self.pending.chunks.push((hash, page));
        if hash != NO_HASH {
            self.pending.by_hash.insert(hash, page);
        }
        Ok(Address {
            zone: ZoneId::pending(self.sequence),
            page,
        })
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
        let chunk_pages = self.shared.layout.chunk_pages;
        let follows = |last: &Entry| {
            let goes_on = match (last.target, target) {
                (None, None) => true,
                (Some(last_target), Some(target)) => {
                    let behind = last_target.page + last.chunks as u32 * chunk_pages;
                    last_target.zone == target.zone && behind == target.page
                }
                _ => false,
            };
            last.head == head && last.lbn + last.chunks == lbn && goes_on
        };
        match self.pending.entries.last_mut().filter(|last| follows(last)) {
            Some(last) => last.chunks += chunks,
            None => self.pending.entries.push(Entry {
                head,
                lbn,
                chunks,
                target,
            }),
        }
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
                let entries = self.pending.entries.len();
                let group_pages =
                    header_pages_max(entries + 1, data_pages + pages) + data_pages + pages;
                let fits_group =
                    data_pages + pages <= GROUP_PAGES_MAX && entries < GROUP_ENTRIES_MAX;
                if fits_group
                    && zone.page as usize + group_pages <= self.shared.layout.groups_end() as usize
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

    /// Writes the pending group behind the zone's last one.
    pub(super) fn close_group(&mut self) -> Result<()> {
        self.check_usable()?;
        if self.pending.entries.is_empty() && self.pending.chunks.is_empty() {
            return Ok(());
        }
        let zone = self
            .zone
            .as_mut()
            .expect("room was made before anything was added");
        let data = Arc::clone(&self.shared.open_group.read().data);
        let (header_pages, header) = encode_header(&GroupContent {
            zone: zone.id,
            page: zone.page,
            sequence: self.sequence,
            durable: self.durable,
            data: data.data(),
            entries: &self.pending.entries,
        });
        drop(data);
        let offset = self.shared.layout.page_offset(zone.no, zone.page);
        let group = {
            let mut open = self.shared.open_group.write();
            open.data_mut().set_header(&header_pages);
            Arc::clone(&open.data)
        };
        let bytes = group.group().len();
        let written = self.shared.data.write_at(group.group(), offset);
        drop(group);
        self.fail(written.map_err(Error::from))?;
        let zone = self.zone.as_mut().expect("as before");
        let pages = (bytes / PAGE_BYTES) as u32;
        zone.page += pages;
        let pending = std::mem::take(&mut self.pending);
        for (hash, page) in &pending.chunks {
            let page = header.first_data_page + page;
            zone.rows.push(Row { page, hash: *hash });
            zone.by_hash.insert(*hash, page);
        }
        zone.by_hash.remove(&NO_HASH);
        let id = zone.id;
        self.publish(id, &header.checks, header.first_data_page, &header.entries);
        self.log_bytes += bytes as u64;
        self.totals.groups += 1;
        self.totals.group_pages += u64::from(pages);
        self.totals.journal_since_mark += u64::from(pages) - header.checks.len() as u64;
        if self
            .index
            .insert(pending.chunks.iter().map(|(hash, _)| *hash), id)
            .is_err()
        {
            self.totals.index_failures += 1;
        }
        Ok(())
    }

    /// Lets readers find the group's chunks on the device, and begins the next group.
    fn publish(&mut self, zone: ZoneId, checks: &[u32], first_page: u32, entries: &[Entry]) {
        self.sequence += 1;
        let mut open = self.shared.open_group.write();
        {
            let mut all = self.shared.open_checks.write();
            let zone_checks = all.entry(zone).or_default();
            zone_checks.resize(first_page as usize, 0);
            zone_checks.extend_from_slice(checks);
        }
        for entry in entries {
            self.shared
                .map(entry.head, entry.lbn, entry.chunks, entry.target);
        }
        open.sequence = self.sequence;
        open.data_mut().clear();
    }
}
