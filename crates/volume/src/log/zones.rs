//! Which zones hold what: places, fillings, free ones, and ids that may still be given.

use std::collections::HashMap;

use super::layout::{Layout, ZoneId, ZoneNo};
use super::manifest::ListedZone;
use super::zone::Stream;

/// Ids that a manifest reserves at once, so that most zones are opened without writing one.
const IDS_RESERVED_AT_ONCE: u64 = 1_000_000;

/// The zones of a depot. Always holds: each place has one filling at most, and an id is given once.
pub struct Zones {
    by_id: HashMap<ZoneId, ZoneInfo>,
    by_no: Vec<Option<ZoneId>>,
    free: u32,
    /// Where the search for a free zone begins: places are used in turn.
    cursor: u32,
    /// The place that the open zone's header names as the next one, or that the log begins at.
    next_journal: Option<ZoneNo>,
    next_id: u64,
    ids_reserved: u64,
}

/// One filling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneInfo {
    /// Its place.
    pub no: ZoneNo,
    /// Who fills it.
    pub stream: Stream,
    /// Pages behind the last one written, once it is full.
    pub pages_used: u32,
}

impl Zones {
    /// The zones that a manifest lists, and ids from `next_id` on.
    pub fn new(layout: &Layout, listed: &[ListedZone], next_id: u64) -> Self {
        let mut zones = Self {
            by_id: HashMap::new(),
            by_no: vec![None; layout.zones as usize],
            free: layout.zones,
            cursor: 0,
            next_journal: None,
            next_id,
            ids_reserved: next_id + IDS_RESERVED_AT_ONCE,
        };
        for zone in listed {
            zones.insert(zone.id, zone.no, zone.stream, zone.pages_used);
        }
        zones
    }

    /// The filling, if the depot holds it.
    pub fn get(&self, id: ZoneId) -> Option<&ZoneInfo> {
        self.by_id.get(&id)
    }

    /// The filling at a place.
    pub fn at(&self, no: ZoneNo) -> Option<ZoneId> {
        self.by_no[no.0 as usize]
    }

    /// Zones that hold nothing, the one that is kept for the journal included.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Every filling.
    pub fn iter(&self) -> impl Iterator<Item = (ZoneId, &ZoneInfo)> {
        self.by_id.iter().map(|(id, info)| (*id, info))
    }

    /// The list that a manifest holds, by place.
    pub fn listed(&self) -> Vec<ListedZone> {
        let mut listed: Vec<ListedZone> = (self.by_id.iter())
            .map(|(id, info)| ListedZone {
                no: info.no,
                id: *id,
                stream: info.stream,
                pages_used: info.pages_used,
            })
            .collect();
        listed.sort_by_key(|zone| zone.no);
        listed
    }

    /// Ids below this may be given without another manifest.
    pub fn ids_reserved(&self) -> u64 {
        self.ids_reserved
    }

    /// Whether a manifest has to reserve ids before more zones are opened; then it is to reserve up to the number given.
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

    /// Takes a free place, other than the one kept for the journal. `None`: there is none.
    pub fn choose_free(&mut self) -> Option<ZoneNo> {
        let count = self.by_no.len() as u32;
        let no = (0..count)
            .map(|ahead| ZoneNo((self.cursor + ahead) % count))
            .find(|no| self.at(*no).is_none() && self.next_journal != Some(*no))?;
        self.cursor = (no.0 + 1) % count;
        Some(no)
    }

    /// Keeps a free place for the journal: its zone header or the manifest names it. Returns `None` where no place is
    /// free.
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
        self.by_no[no.0 as usize] = Some(id);
        self.free -= 1;
        if self.next_journal == Some(no) {
            self.next_journal = None;
        }
        let info = ZoneInfo {
            no,
            stream,
            pages_used,
        };
        self.by_id.insert(id, info);
    }

    /// Notes that the zone is full.
    pub fn seal(&mut self, id: ZoneId, pages_used: u32) {
        if let Some(info) = self.by_id.get_mut(&id) {
            info.pages_used = pages_used;
        }
    }

    /// The place may be filled anew. The caller sees to it that no manifest that could still be read names the filling.
    pub fn remove(&mut self, id: ZoneId) {
        if let Some(info) = self.by_id.remove(&id) {
            self.by_no[info.no.0 as usize] = None;
            self.free += 1;
        }
    }
}
