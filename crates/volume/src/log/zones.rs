//! Which zones hold what: places, fillings, free ones, and ids that may still be given.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::layout::{Address, Layout, ZoneId, ZoneNo};
use super::map::extent::Extent;
use super::relocations::Relocations;
use super::zone::Stream;
use super::zone_list::{ListedZone, ZoneChange};
use crate::Result;

/// Ids that a manifest reserves at once, so that most zones are opened without writing one.
const IDS_RESERVED_AT_ONCE: u64 = 1_000_000;

/// The zones of a depot. Invariant: each place has one filling at most, and an id is given once.
pub struct Zones {
    by_id: HashMap<ZoneId, ZoneInfo>,
    by_no: Vec<Option<ZoneId>>,
    free: u32,
    /// Knowledge about the device's room for each place, as long as nothing fills it.
    room: Vec<Room>,
    /// Free places for which the device keeps room.
    ready: u32,
    /// Where the search for a free zone begins: places are used in turn.
    cursor: u32,
    /// The place that the open zone's header names as the next one, or that the log begins at.
    next_journal: Option<ZoneNo>,
    next_id: u64,
    ids_reserved: u64,
    /// Places that changed since the file of zones was written.
    changed: BTreeSet<ZoneNo>,
    /// Zones of which nobody has counted what lives since the depot was opened.
    unseen: u32,
    /// Where the chunks of freed zones are.
    pub relocations: Relocations,
    chunk_pages: u32,
}

/// Room for a free place on the device: a sparse file has none for places that were never written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// Nobody asked since the depot was opened.
    Unknown,
    /// The device keeps room: filling the place does not fail for lack of space.
    Kept,
    /// The room was given back to the device.
    GivenBack,
}

/// One filling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneInfo {
    /// Its place.
    pub no: ZoneNo,
    /// Stream that fills the zone.
    pub stream: Stream,
    /// Pages behind the last one written, once it is full.
    pub pages_used: u32,
    /// Pages of chunks that lived at the last mark that tracked it; where none did since opening, 0: worth a look.
    pub live_pages: u32,
    /// Whether somebody has counted them since the depot was opened.
    pub is_seen: bool,
}

impl Zones {
    /// The zones that a manifest lists, and ids from `next_id` on. None counts as changed.
    pub fn new(layout: &Layout, listed: &[ListedZone], next_id: u64) -> Self {
        let mut zones = Self {
            by_id: HashMap::new(),
            by_no: vec![None; layout.zones as usize],
            free: layout.zones,
            room: vec![Room::Unknown; layout.zones as usize],
            ready: 0,
            cursor: 0,
            next_journal: None,
            next_id,
            ids_reserved: next_id + IDS_RESERVED_AT_ONCE,
            changed: BTreeSet::new(),
            unseen: 0,
            relocations: Relocations::default(),
            chunk_pages: layout.chunk_pages,
        };
        for zone in listed {
            zones.insert(zone.id, zone.no, zone.stream, zone.pages_used);
        }
        zones
            .by_id
            .values_mut()
            .for_each(|info| info.live_pages = 0);
        zones.unchanged();
        zones
    }

    /// Nobody has counted what lives in any zone.
    pub fn forget_seen(&mut self) {
        (self.by_id.values_mut()).for_each(|info| info.is_seen = false);
        self.unseen = self.by_id.len() as u32;
    }

    /// The device has this many zones from now on, more than before.
    pub fn grow(&mut self, zones: u32) {
        let more = zones.saturating_sub(self.count());
        self.by_no.resize((self.count() + more) as usize, None);
        self.room.resize(self.by_no.len(), Room::Unknown);
        self.free += more;
    }

    /// Takes a growth back, where nothing was filled since.
    pub fn shrink(&mut self, zones: u32) {
        self.free -= self.count() - zones;
        self.by_no.truncate(zones as usize);
        self.room.truncate(zones as usize);
    }

    /// Zones of the device.
    pub fn count(&self) -> u32 {
        self.by_no.len() as u32
    }

    /// Zones of which nobody has counted what lives since the depot was opened.
    pub fn unseen(&self) -> u32 {
        self.unseen
    }

    /// The filling, if the depot holds it.
    pub fn get(&self, id: ZoneId) -> Option<&ZoneInfo> {
        self.by_id.get(&id)
    }

    /// Where a chunk is that a map says to lie at `address`. `None`: its zone was freed since, and it was not moved.
    pub fn locate(&self, address: Address) -> Option<(Address, ZoneNo)> {
        if let Some(info) = self.get(address.zone) {
            return Some((address, info.no));
        }
        let address = self.relocations.resolve(address, self.chunk_pages)?;
        Some((address, self.get(address.zone)?.no))
    }

    /// Calls `visit` for the parts of an extent with the addresses at which their chunks are now. A chunk that is
    /// nowhere any more keeps its address: newer levels of the map hide it.
    pub fn relocate(
        &self,
        extent: Extent,
        visit: &mut dyn FnMut(Extent) -> Result<()>,
    ) -> Result<()> {
        let is_moved = |target: Address| self.get(target.zone).is_none();
        if self.relocations.len() == 0 || !extent.target.is_some_and(is_moved) {
            return visit(extent);
        }
        for ahead in 0..extent.chunks {
            let old = extent.target_at(ahead, self.chunk_pages);
            let new = old.and_then(|old| self.relocations.resolve(old, self.chunk_pages));
            visit(Extent {
                lbn: extent.lbn + ahead,
                chunks: 1,
                target: new.or(old),
            })?;
        }
        Ok(())
    }

    /// The filling at a place.
    pub fn at(&self, no: ZoneNo) -> Option<ZoneId> {
        self.by_no[no.0 as usize]
    }

    /// Zones that hold nothing, the one that is kept for the journal included.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Zones that hold something.
    pub fn used(&self) -> u32 {
        self.by_no.len() as u32 - self.free
    }

    /// Free zones that can be filled: the device keeps room for them.
    pub fn ready(&self) -> u32 {
        self.ready
    }

    /// Free places for which the device is not known to keep room, in the order in which they are used.
    pub fn without_room(&self) -> impl Iterator<Item = ZoneNo> + '_ {
        let lacks_room = |no: &ZoneNo| self.room[no.0 as usize] != Room::Kept;
        self.free_places().filter(lacks_room)
    }

    /// Free places that still take room on the device or may do so, without the first `kept` of those that are ready.
    pub fn with_needless_room(&self, kept: u32) -> impl Iterator<Item = ZoneNo> + '_ {
        let mut ready = 0;
        self.free_places().filter(move |no| {
            let room = self.room[no.0 as usize];
            ready += u32::from(room == Room::Kept);
            let is_needless = room == Room::Unknown || room == Room::Kept && ready > kept;
            is_needless && self.next_journal != Some(*no)
        })
    }

    /// Notes what became of the room for a free place.
    pub fn set_room(&mut self, no: ZoneNo, room: Room) {
        debug_assert!(self.at(no).is_none(), "a filling keeps its room");
        let before = std::mem::replace(&mut self.room[no.0 as usize], room);
        self.ready -= u32::from(before == Room::Kept);
        self.ready += u32::from(room == Room::Kept);
    }

    fn free_places(&self) -> impl Iterator<Item = ZoneNo> + '_ {
        let count = self.by_no.len() as u32;
        (0..count)
            .map(move |ahead| ZoneNo((self.cursor + ahead) % count))
            .filter(|no| self.at(*no).is_none())
    }

    /// Every filling.
    pub fn iter(&self) -> impl Iterator<Item = (ZoneId, &ZoneInfo)> {
        self.by_id.iter().map(|(id, info)| (*id, info))
    }

    /// Every filling but `left_out`, by place.
    pub fn listed(&self, left_out: &HashSet<ZoneId>) -> Vec<ListedZone> {
        let places = (0..self.by_no.len() as u32).map(ZoneNo);
        let changes = places.map(|no| self.change(no, left_out));
        let filled = changes.filter_map(|change| match change {
            ZoneChange::Filled(zone) => Some(zone),
            ZoneChange::Free(_) => None,
        });
        filled.collect()
    }

    /// Places that changed since [`unchanged`](Self::unchanged), as if `left_out` were free.
    pub fn changes(&self, left_out: &HashSet<ZoneId>) -> Vec<ZoneChange> {
        let freed = left_out.iter().filter_map(|id| self.get(*id));
        let mut places = self.changed.clone();
        places.extend(freed.map(|info| info.no));
        let changes = places.into_iter().map(|no| self.change(no, left_out));
        changes.collect()
    }

    fn change(&self, no: ZoneNo, left_out: &HashSet<ZoneId>) -> ZoneChange {
        let filling = self.at(no).filter(|id| !left_out.contains(id));
        match filling.and_then(|id| Some((id, self.get(id)?))) {
            None => ZoneChange::Free(no),
            Some((id, info)) => ZoneChange::Filled(ListedZone {
                no,
                id,
                stream: info.stream,
                pages_used: info.pages_used,
            }),
        }
    }

    /// Places whose changes the manifest holds, and not the file of zones.
    pub fn note_changed(&mut self, changes: &[ZoneChange]) {
        self.changed.extend(changes.iter().map(ZoneChange::no));
    }

    /// The file of zones holds all changes.
    pub fn unchanged(&mut self) {
        self.changed.clear();
    }

    /// RAM of the tables of zones and of relocations, in bytes.
    pub fn ram_bytes(&self) -> u64 {
        let by_id = self.by_id.capacity() * (size_of::<(ZoneId, ZoneInfo)>() + 1);
        let by_no = self.by_no.capacity() * size_of::<Option<ZoneId>>() + self.room.capacity();
        (by_id + by_no + self.changed.len() * 8) as u64 + self.relocations.ram_bytes()
    }

    /// Ids below this may be given without another manifest.
    pub fn ids_reserved(&self) -> u64 {
        self.ids_reserved
    }

    /// Whether a manifest has to reserve ids before more zones are opened; if so, it reserves up to the number given.
    pub fn reserve_ids(&mut self) -> bool {
        if self.next_id + IDS_RESERVED_AT_ONCE / 2 < self.ids_reserved {
            return false;
        }
        self.ids_reserved = self.next_id + IDS_RESERVED_AT_ONCE;
        true
    }

    /// An id that was never given.
    pub fn new_id(&mut self) -> ZoneId {
        assert!(
            self.next_id < self.ids_reserved,
            "ids are reserved before zones are opened"
        );
        self.next_id += 1;
        ZoneId(self.next_id - 1)
    }

    /// Takes a free place that is ready, other than the one kept for the journal. `None`: there is none.
    pub fn choose_free(&mut self) -> Option<ZoneNo> {
        let is_ready = |no: &ZoneNo| self.room[no.0 as usize] == Room::Kept;
        let no = self
            .free_places()
            .find(|no| is_ready(no) && self.next_journal != Some(*no))?;
        self.cursor = (no.0 + 1) % self.by_no.len() as u32;
        Some(no)
    }

    /// Keeps a free place for the journal: its zone header or the manifest names it. Returns `None` where no place is
    /// ready.
    pub fn choose_next_journal(&mut self) -> Option<ZoneNo> {
        self.next_journal = None;
        self.next_journal = Some(self.choose_free()?);
        self.next_journal
    }

    /// The place that is kept for the journal.
    pub fn next_journal(&self) -> Option<ZoneNo> {
        self.next_journal
    }

    /// A place is filled from now on.
    pub fn insert(&mut self, id: ZoneId, no: ZoneNo, stream: Stream, pages_used: u32) {
        debug_assert!(self.at(no).is_none(), "a place has one filling");
        self.changed.insert(no);
        // Whatever is freed again has been written, and has its room.
        self.set_room(no, Room::Kept);
        self.ready -= 1;
        self.by_no[no.0 as usize] = Some(id);
        self.free -= 1;
        if self.next_journal == Some(no) {
            self.next_journal = None;
        }
        let info = ZoneInfo {
            no,
            stream,
            pages_used,
            // Filled just now: nothing of it is garbage yet.
            live_pages: u32::MAX,
            is_seen: true,
        };
        self.by_id.insert(id, info);
    }

    /// Notes how many pages of chunks live.
    pub fn set_live(&mut self, id: ZoneId, pages: u32) {
        if let Some(info) = self.by_id.get_mut(&id) {
            info.live_pages = pages;
            self.unseen -= u32::from(!std::mem::replace(&mut info.is_seen, true));
        }
    }

    /// Notes that the zone is full.
    pub fn seal(&mut self, id: ZoneId, pages_used: u32) {
        if let Some(info) = self.by_id.get_mut(&id) {
            info.pages_used = pages_used;
            self.changed.insert(info.no);
        }
    }

    /// The place may be filled anew. The caller sees to it that no manifest that could still be read names the filling.
    pub fn remove(&mut self, id: ZoneId) {
        if let Some(info) = self.by_id.remove(&id) {
            self.by_no[info.no.0 as usize] = None;
            self.changed.insert(info.no);
            self.unseen -= u32::from(!info.is_seen);
            self.free += 1;
            self.ready += 1;
        }
    }
}
