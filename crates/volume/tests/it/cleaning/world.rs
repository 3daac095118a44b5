//! The world: a device of small zones, the engine's state in RAM, and what every head should hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use onefold_io::Random;

pub const PAGES: usize = 4;
/// Chunks of a packed page at most.
pub const SLOTS: usize = 3;
pub const GROUPS: usize = 3;
pub const ZONES: usize = 26;
pub const LBNS: usize = 12;
const CONTENTS: u64 = 40;
pub const HEADS_MAX: usize = 5;

pub type ZoneId = u32;
pub type Content = u8;
/// Zone, page, and slot in the page.
pub type Address = (ZoneId, usize, usize);
/// Chunks of a page: one that is not packed has its page's first slot.
pub type Page = [Option<Content>; SLOTS];
/// Contents of a head, by LBN.
pub type Contents = [Option<Content>; LBNS];
/// Entries of a memtable or run by LBN: nothing, a hole, or an address.
pub type Entries = [Option<Target>; LBNS];
pub type HeadNo = u32;

/// Faults that must be caught.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Chunks in victims are still taken for known.
    HitInACondemnedZone,
    /// The mark begins without a checkpoint.
    NoCheckpointBeforeTheMark,
    /// A checkpoint's manifest names data that is not synced.
    NoSyncBeforeACheckpoint,
    /// A cleaning's manifest names copies that are not synced.
    NoSyncBeforeACleaning,
    /// After a crash zone ids are given that were given before.
    IdsGivenAgain,
    /// Relocations lead to zones that were moved on.
    ChainedRelocations,
    /// A reader takes what is at the place that it had resolved, whatever zone that is by now.
    ReaderTrustsAReusedZone,
    /// A chunk of a packed page that was moved is looked for in the page's first slot.
    RelocationsForgetSlots,
}

impl Fault {
    pub const ALL: [Self; 8] = [
        Self::HitInACondemnedZone,
        Self::NoCheckpointBeforeTheMark,
        Self::NoSyncBeforeACheckpoint,
        Self::NoSyncBeforeACleaning,
        Self::IdsGivenAgain,
        Self::ChainedRelocations,
        Self::ReaderTrustsAReusedZone,
        Self::RelocationsForgetSlots,
    ];
}

/// How something was lost.
#[derive(Clone, Debug)]
pub struct Lost(pub String);

pub type Kept<T> = Result<T, Lost>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Hole,
    At(Address),
}

/// One filling of a place on the device.
#[derive(Clone, Debug)]
pub struct Zone {
    pub id: ZoneId,
    /// The zone of the log before it.
    pub previous: Option<ZoneId>,
    /// Where the log goes on.
    pub next: usize,
    /// `None`: it did not survive a crash.
    pub groups: Vec<Option<Rc<Group>>>,
    /// `None`: torn.
    pub pages: Vec<Option<Page>>,
}

#[derive(Debug)]
pub struct Group {
    pub sequence: u64,
    pub entries: Vec<(HeadNo, usize, Target)>,
    pub pages: Vec<(usize, Page)>,
}

/// Where the pages of a freed zone are now: in page order from `first` on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moved {
    pub to: ZoneId,
    pub first: usize,
    pub pages: BTreeSet<usize>,
}

#[derive(Clone)]
pub struct Head {
    /// The newest first.
    pub runs: Vec<Rc<Entries>>,
    pub memory: Entries,
    pub is_writable: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Position {
    /// The log begins in a zone that has no header yet.
    Begin(usize, ZoneId),
    /// Behind so many groups of a zone.
    Behind(ZoneId, usize),
}

#[derive(Clone)]
pub struct Manifest {
    pub heads: BTreeMap<HeadNo, Head>,
    pub zones: Vec<(usize, ZoneId)>,
    pub moved: BTreeMap<ZoneId, Moved>,
    pub position: Position,
    pub sequence: u64,
    pub ids_reserved: ZoneId,
    pub next_head: HeadNo,
}

/// A read that has resolved its address and not read yet.
pub struct Reader {
    pub head: HeadNo,
    pub lbn: usize,
    pub place: Option<(Address, usize)>,
    /// Contents of the LBN since the read began.
    pub possible: Vec<Option<Content>>,
}

#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub hits: u64,
    pub freed: u64,
    pub moved: u64,
    pub composed: u64,
    pub crashes: u64,
    pub full: u64,
    pub resolved_again: u64,
}

pub struct World {
    pub random: Random,
    pub fault: Option<Fault>,
    pub device: Vec<Option<Zone>>,
    /// The device as it was synced last.
    pub synced: Vec<Option<Zone>>,
    /// Zones that the index was ever told of, by content: it may answer with any of them.
    pub said: HashMap<Content, Vec<ZoneId>>,
    pub manifest: Manifest,
    pub heads: BTreeMap<HeadNo, Head>,
    pub next_head: HeadNo,
    pub live: BTreeMap<ZoneId, usize>,
    /// Chunks of each zone, by page and slot.
    pub rows: HashMap<ZoneId, BTreeMap<(usize, usize), Content>>,
    pub moved: BTreeMap<ZoneId, Moved>,
    pub condemned: BTreeSet<ZoneId>,
    pub current: Option<ZoneId>,
    /// Where the log begins, until a zone is opened there.
    pub begin: Option<(usize, ZoneId)>,
    pub next_id: ZoneId,
    pub sequence: u64,
    pub model: BTreeMap<HeadNo, Contents>,
    /// Contents that may be there after a crash: the model at the last flush, and after each group since.
    pub possible: Vec<BTreeMap<HeadNo, Contents>>,
    pub readers: Vec<Reader>,
    pub counts: Counts,
}

/// Rows of a page.
pub fn rows_of(page: usize, chunks: &Page) -> impl Iterator<Item = ((usize, usize), Content)> {
    let slots = chunks.iter().enumerate();
    slots.filter_map(move |(slot, content)| Some(((page, slot), (*content)?)))
}

impl World {
    pub fn new(random: Random, fault: Option<Fault>) -> Self {
        let head = Head {
            runs: Vec::new(),
            memory: [None; LBNS],
            is_writable: true,
        };
        let manifest = Manifest {
            heads: BTreeMap::from([(0, head)]),
            zones: Vec::new(),
            moved: BTreeMap::new(),
            position: Position::Begin(0, 1),
            sequence: 0,
            ids_reserved: 1000,
            next_head: 1,
        };
        let mut world = Self {
            random,
            fault,
            device: vec![None; ZONES],
            synced: vec![None; ZONES],
            said: HashMap::new(),
            heads: BTreeMap::new(),
            next_head: 1,
            live: BTreeMap::new(),
            rows: HashMap::new(),
            moved: BTreeMap::new(),
            condemned: BTreeSet::new(),
            current: None,
            begin: None,
            next_id: 1000,
            sequence: 0,
            model: BTreeMap::from([(0, [None; LBNS])]),
            possible: Vec::new(),
            readers: Vec::new(),
            counts: Counts::default(),
            manifest,
        };
        world.open().expect("nothing is there that could be lost");
        world.flush();
        world
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    pub fn pick(&mut self, count: usize) -> usize {
        self.random.below(count as u64) as usize
    }

    /// One thing that happens; then everything is read.
    pub fn step(&mut self) -> Kept<()> {
        match self.random.below(100) {
            0..42 => self.write_some(2),
            42..50 => self.flush(),
            50..55 => self.checkpoint(),
            55..63 => self.merge()?,
            63..80 => self.clean()?,
            80..83 => self.clone_or_delete(),
            83..85 => self.crash()?,
            85..97 => self.begin_read()?,
            _ => self.end_read()?,
        }
        self.check()
    }

    // Zones.

    pub fn free(&self) -> Vec<usize> {
        let next = self
            .current
            .map(|id| self.zone(id).next)
            .or(self.begin.map(|(no, _)| no));
        let used: BTreeSet<usize> = self.live.values().copied().chain(next).collect();
        (0..ZONES).filter(|no| !used.contains(no)).collect()
    }

    pub fn new_id(&mut self) -> ZoneId {
        self.next_id += 1;
        self.next_id
    }

    pub fn zone(&self, id: ZoneId) -> &Zone {
        self.device[self.live[&id]]
            .as_ref()
            .expect("a live zone is on the device")
    }

    fn zone_mut(&mut self, id: ZoneId) -> &mut Zone {
        self.device[self.live[&id]]
            .as_mut()
            .expect("a live zone is on the device")
    }

    /// Opens the place that was chosen ahead. `false`: none would be left for the next one.
    fn open_zone(&mut self) -> bool {
        let (no, previous) = match self.current {
            Some(id) => (self.zone(id).next, Some(id)),
            None => (
                self.begin
                    .expect("the log's beginning was chosen at recovery")
                    .0,
                None,
            ),
        };
        let free = self.free();
        if free.is_empty() {
            return false;
        }
        let next = free[self.pick(free.len())];
        let id = match self.begin.take() {
            Some((_, id)) => id,
            None => self.new_id(),
        };
        self.device[no] = Some(Zone {
            id,
            previous,
            next,
            groups: Vec::new(),
            pages: Vec::new(),
        });
        self.live.insert(id, no);
        self.rows.insert(id, BTreeMap::new());
        self.current = Some(id);
        true
    }

    // Writing.

    pub fn write_some(&mut self, groups_max: u64) {
        for _ in 0..1 + self.random.below(groups_max) {
            let writable: Vec<HeadNo> = self
                .heads
                .iter()
                .filter(|(_, head)| head.is_writable)
                .map(|(no, _)| *no)
                .collect();
            let mut writes = Vec::new();
            for _ in 0..1 + self.random.below(4) {
                let head = writable[self.pick(writable.len())];
                let content = if self.chance(20) {
                    None
                } else {
                    Some(self.random.below(CONTENTS) as Content)
                };
                writes.push((head, self.pick(LBNS), content));
            }
            if !self.write_group(&writes) {
                self.counts.full += 1;
                return;
            }
            self.possible.push(self.model.clone());
        }
    }

    /// Writes a group of as much as fits, packed or not. `false`: the device is full.
    fn write_group(&mut self, writes: &[(HeadNo, usize, Option<Content>)]) -> bool {
        let is_full = |zone: &Zone| zone.pages.len() >= PAGES || zone.groups.len() >= GROUPS;
        if self.current.is_none_or(|id| is_full(self.zone(id))) && !self.open_zone() {
            return false;
        }
        let id = self.current.expect("opened above");
        let first = self.zone(id).pages.len();
        let mut pages: Vec<(usize, Page)> = Vec::new();
        let mut entries = Vec::new();
        let is_packed = self.chance(60);
        for (head, lbn, content) in writes {
            let Some(content) = content else {
                entries.push((*head, *lbn, Target::Hole));
                continue;
            };
            let pending = (pages.iter())
                .flat_map(|(page, chunks)| rows_of(*page, chunks))
                .find(|(_, pending)| pending == content);
            let known = pending
                .map(|((page, slot), _)| (id, page, slot))
                .or_else(|| self.look_up(*content));
            self.counts.hits += u64::from(known.is_some());
            let has_room = |(_, chunks): &&mut (usize, Page)| is_packed && chunks.contains(&None);
            let next = first + pages.len();
            let open = pages.last_mut().filter(has_room);
            let address = match (known, open) {
                (Some(address), _) => address,
                (None, Some((page, chunks))) => {
                    let slot = chunks.iter().flatten().count();
                    chunks[slot] = Some(*content);
                    (id, *page, slot)
                }
                (None, None) if next >= PAGES => break,
                (None, None) => {
                    let mut chunks = [None; SLOTS];
                    chunks[0] = Some(*content);
                    pages.push((next, chunks));
                    (id, next, 0)
                }
            };
            entries.push((*head, *lbn, Target::At(address)));
        }
        self.sequence += 1;
        let group = Group {
            sequence: self.sequence,
            entries,
            pages,
        };
        for (page, chunks) in &group.pages {
            self.zone_mut(id).pages.push(Some(*chunks));
            let rows = self.rows.get_mut(&id).expect("an open zone has rows");
            for (place, content) in rows_of(*page, chunks) {
                rows.insert(place, content);
                self.said.entry(content).or_default().push(id);
            }
        }
        for ((head, lbn, target), (_, _, content)) in group.entries.iter().zip(writes) {
            self.heads.get_mut(head).expect("it is there").memory[*lbn] = Some(*target);
            self.model.get_mut(head).expect("it is there")[*lbn] = *content;
            let reading = self.readers.iter_mut();
            reading
                .filter(|reader| (reader.head, reader.lbn) == (*head, *lbn))
                .for_each(|reader| reader.possible.push(*content));
        }
        self.zone_mut(id).groups.push(Some(Rc::new(group)));
        true
    }

    /// Returns the index's answer, if the zone is there, is not condemned, and its rows have the content.
    fn look_up(&mut self, content: Content) -> Option<Address> {
        let said = self.said.get(&content)?.clone();
        let from = self.pick(said.len());
        let order = said[from..].iter().chain(&said[..from]);
        order.copied().find_map(|said| {
            let zone = if self.live.contains_key(&said) {
                said
            } else {
                self.moved.get(&said)?.to
            };
            let is_refused =
                self.condemned.contains(&zone) && !self.has(Fault::HitInACondemnedZone);
            let mut rows = self.rows.get(&zone).filter(|_| !is_refused)?.iter();
            let ((page, slot), _) = rows.find(|(_, row)| **row == content)?;
            Some((zone, *page, *slot))
        })
    }
}
