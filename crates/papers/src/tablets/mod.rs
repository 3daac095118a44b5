//! `tablets`: the index cut into small tables in the order of the stream (Min, Yoon, Won: PRUNE, 2010, §3).
//!
//! ```text
//! RAM    the current tablet │ of each sealed one: filter, first fingerprint of each page, containers │ some tablets whole
//! disk   tablet-<number>: pages in the order of fingerprints        tablets-journal-<number>: the current one, as checkpoints saw it
//! ```
//!
//! Neighbours of the stream lie in one tablet, so a stream that comes again uses one tablet after the other. A tablet
//! is read whole (1.5 MB) after some hits in a row. The list of tablets is searched from the oldest on (`Linear`), from
//! the one that was last hit (`Lru`), or so that the successor in the list moves with that one, right behind it, and is
//! read ahead (`LruPrefetch`). PRUNE's "single" is the index [`BTree`](crate::BTree), without filter and prefetch.
//!
//! PRUNE has one Bloom filter before the list, and each search in the list costs a lookup in a BerkeleyDB, mostly in
//! the system's page cache. Here RAM is bounded, so each tablet has a filter of its own instead: a tablet that does not
//! hold the key costs no read.
//!
//! RAM therefore grows with the keys at any budget: a filter's bits and a page's first fingerprint, 2.3 bytes a key,
//! and 45 bytes for each key that several tablets have. The budget bounds the current tablet and the resident ones.
//!
//! Invariant: where several tablets have a fingerprint, the newest counts in any order of search: `moved` names it.
//! A sealed tablet is durable before the journal of its records is removed. One opener at a time.

mod list;
mod tablet;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::frame::FrameKind;
use onefold_io::{Dir, LockGuard, create_anew, hex_number};

use self::list::TabletList;
use self::tablet::{
    PAGE_RECORDS, RECORD_BYTES, TABLET_BYTES_MAX, Tablet, TabletEntry, TabletRecord, pages_of,
};
use crate::flashlog::open_or_create;
use crate::pagelog::PageLog;
use crate::retirements::Retirements;
use crate::turns::{InTurns, OneCaller};
use onefold_index::alone;
use onefold_index::strata::log::Said;
use onefold_index::strata::page::PAGE_BYTES;
use onefold_index::{ContainerId, Error, IndexStats, Location, Result};

const JOURNAL_FRAME: FrameKind = FrameKind {
    magic: *b"OFTABJRN",
    version: 1,
};
/// Records in a frame of the journal: 2.7 MB.
const FRAME_RECORDS: usize = 1 << 16;
const TMP: &str = "tablets-tmp";
/// The paper's best size of a tablet in bytes (§5.4).
const TABLET_BYTES: usize = 1536 << 10;

/// The order in which tablets are searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Search {
    /// The oldest tablet first.
    Linear,
    /// The tablet of the last hit first.
    Lru,
    /// The tablet of the last hit first, with its successor right behind it, read ahead.
    LruPrefetch,
}

/// Options of tablets, which may differ from opening to opening.
#[derive(Clone, Copy, Debug)]
pub struct TabletsOptions {
    /// The order in which tablets are searched.
    pub search: Search,
    /// Size in bytes at which a tablet is sealed: at least a page, at most 64 MiB.
    pub tablet_bytes: usize,
    /// Largest number of tablets that are held in RAM.
    pub cache_tablets: usize,
    /// Bits a key of the tablets' filters. With 16, one tablet in 1,500 is read for nothing.
    pub filter_bits: u32,
}

impl TabletsOptions {
    /// Options for a budget: tablets of 1.5 MB, or smaller ones, so that the current one and two others fit into half
    /// of it.
    pub fn new(search: Search, ram_budget_bytes: usize) -> TabletsOptions {
        let tablet_bytes = (ram_budget_bytes / 14).clamp(4 * PAGE_BYTES, TABLET_BYTES);
        TabletsOptions {
            search,
            tablet_bytes,
            cache_tablets: (ram_budget_bytes / 4 / tablet_bytes).max(2),
            filter_bits: 16,
        }
    }
}

/// The index `tablets`: small tables in the order of the stream.
pub struct Tablets {
    dir: Arc<dyn Dir>,
    options: TabletsOptions,
    list: TabletList,
    number: u32,
    current: HashMap<Fingerprint, TabletEntry>,
    journal: PageLog,
    /// Whether a sealed tablet may have the current one's number already: at the next opening the journal would count
    /// for nothing, so nothing more is appended to it.
    is_sealing: bool,
    /// Fingerprints changed since the last checkpoint.
    unsaid: Vec<Fingerprint>,
    /// Fingerprints in several tablets, with the number of the newest.
    moved: HashMap<Fingerprint, u32>,
    /// Fingerprints of the last lookup that no tablet has.
    absent: HashSet<Fingerprint>,
    retired: Retirements,
    bytes_written: u64,
    stats: IndexStats,
    _alone: Box<dyn LockGuard>,
}

/// The file name of a tablet.
fn name_of(number: u32) -> String {
    format!("tablet-{number:08x}")
}

fn journal_of(number: u32) -> String {
    format!("tablets-journal-{number:08x}")
}

/// The number in the name of a tablet or journal with this prefix.
pub(crate) fn number_of(name: &str, prefix: &str) -> Option<u32> {
    Some(hex_number(name.strip_prefix(prefix)?, 8)? as u32)
}

impl InTurns<Tablets> {
    /// Opens the index in `dir`, or begins one; reads all tablets once.
    ///
    /// # Errors
    /// [`Error::Held`] where another opener has the index open; [`Error::Damaged`] for a tablet, or a part of the
    /// journal, that is not what was written; [`Error::Io`].
    pub fn open(dir: Arc<dyn Dir>, options: TabletsOptions) -> Result<InTurns<Tablets>> {
        Tablets::open_one(dir, options).map(InTurns::new)
    }
}

impl Tablets {
    fn open_one(dir: Arc<dyn Dir>, options: TabletsOptions) -> Result<Tablets> {
        let options = TabletsOptions {
            tablet_bytes: options.tablet_bytes.clamp(PAGE_BYTES, TABLET_BYTES_MAX),
            ..options
        };
        let alone = alone(&*dir, "tablets")?;
        let numbers = |prefix: &str| -> Result<Vec<u32>> {
            let list = dir.list()?;
            let mut numbers = Vec::new();
            for entry in &list {
                match number_of(&entry.name, prefix) {
                    // Numbers are counted from 0, so this one is damage.
                    Some(u32::MAX) => {
                        let what = "a number behind which there is no other";
                        return Err(Error::damaged(&entry.name, 0, what));
                    }
                    number => numbers.extend(number),
                }
            }
            Ok(numbers)
        };
        let (sealed, journals) = (numbers("tablet-")?, numbers("tablets-journal-")?);
        let mut moved = HashMap::new();
        let mut tablets = Vec::new();
        for number in sealed {
            let disk = dir.open(&name_of(number))?;
            let mut older = |key| {
                moved.insert(key, number);
            };
            tablets.push(Tablet::open(disk, number, options.filter_bits, &mut older)?);
        }
        let after = tablets.last().map_or(0, |tablet| tablet.number + 1);
        let number = journals.iter().copied().fold(after, u32::max);
        let mut replay = Replay::default();
        for old in journals.iter().filter(|old| **old < number) {
            open_journal(&*dir, *old, &mut replay)?;
        }
        // the journal of a tablet sealed since counts only for retirements
        replay.current.clear();
        let journal = open_journal(&*dir, number, &mut replay)?;
        dir.sync()?;
        let mut index = Tablets {
            list: TabletList::new(tablets, &options),
            dir,
            options,
            number,
            current: replay.current,
            journal,
            is_sealing: false,
            unsaid: Vec::new(),
            moved,
            absent: HashSet::new(),
            retired: Retirements::of(replay.retired),
            bytes_written: 0,
            stats: IndexStats::default(),
            _alone: alone,
        };
        if journals.iter().any(|old| *old < number) {
            index.retired.unsay();
            index.checkpoint()?;
            for old in journals.iter().filter(|old| **old < number) {
                index.dir.remove(&journal_of(*old))?;
            }
        }
        Ok(index)
    }

    /// The container of `key` in the newest tablet that has it.
    fn find(&mut self, key: &Fingerprint) -> Result<Option<ContainerId>> {
        let said = match self.current.get(key) {
            Some(entry) => Some(entry.said),
            None => self.list.find(key, self.moved.get(key).copied())?,
        };
        if said.is_none() {
            self.absent.insert(*key);
        }
        Ok(said
            .flatten()
            .filter(|container| !self.retired.contains(container)))
    }

    /// Seals the current tablet if it is full, or if an earlier seal failed.
    fn seal_if_due(&mut self) -> Result<()> {
        let most = self.options.tablet_bytes / PAGE_BYTES * PAGE_RECORDS;
        if self.current.len() >= most || self.is_sealing {
            self.seal()?;
        }
        Ok(())
    }

    /// Seals the current tablet, durably, and begins another. A failure leaves it unchanged.
    fn seal(&mut self) -> Result<()> {
        let current = self.current.iter();
        let mut records: Vec<_> = current.map(|(key, entry)| (*key, *entry)).collect();
        records.sort_unstable_by_key(|(key, _)| key.0);
        let (pages, name) = (pages_of(&records), name_of(self.number));
        drop(records);
        let disk = create_anew(&*self.dir, TMP)?;
        disk.write_at(&pages, 0)?;
        disk.sync()?;
        self.is_sealing = true;
        self.dir.rename(TMP, &name)?;
        let journal = open_journal(&*self.dir, self.number + 1, &mut Replay::default())?;
        self.dir.sync()?;
        let (number, mut moved) = (self.number, Vec::new());
        let disk = self.dir.open(&name)?;
        let bits = self.options.filter_bits;
        let tablet = Tablet::open(disk, number, bits, &mut |key| moved.push(key))?;
        self.is_sealing = false;
        self.bytes_written += pages.len() as u64 + self.journal.bytes_written;
        self.moved
            .extend(moved.into_iter().map(|key| (key, number)));
        self.list.push(tablet);
        self.number += 1;
        self.current.clear();
        self.unsaid.clear();
        self.absent.clear();
        self.journal = journal;
        self.retired.unsay();
        self.checkpoint()?;
        Ok(self.dir.remove(&journal_of(number))?)
    }

    /// Appends records that the journal does not have yet.
    fn append_unsaid(&mut self) -> Result<()> {
        self.unsaid.sort_unstable_by_key(|key| key.0);
        self.unsaid.dedup();
        let gone = TabletEntry {
            said: None,
            has_older: false,
        };
        let entry = |key: &Fingerprint| self.current.get(key).copied().unwrap_or(gone);
        let said = self
            .unsaid
            .iter()
            .map(|key| TabletRecord::Of(*key, entry(key)));
        let retired = self.retired.unsaid().map(|(container, is_gone)| {
            if is_gone {
                TabletRecord::Retires(container)
            } else {
                TabletRecord::Returns(container)
            }
        });
        let mut records = said.chain(retired).peekable();
        let mut payload = Vec::new();
        while records.peek().is_some() {
            payload.clear();
            let of_frame = records.by_ref().take(FRAME_RECORDS);
            of_frame.for_each(|record| record.write(&mut payload));
            self.journal.append(&payload)?;
        }
        Ok(())
    }

    /// Removes tablets all of whose chunks are retired, and forgets containers that no record speaks of.
    fn remove_retired(&mut self) -> Result<()> {
        let retired = &self.retired;
        let is_gone = |tablet: &Tablet| {
            let mut containers = tablet.containers.iter();
            !tablet.has_removals && containers.all(|container| retired.contains(container))
        };
        for tablet in self.list.tablets.iter().filter(|tablet| is_gone(tablet)) {
            self.dir.remove(&name_of(tablet.number))?;
        }
        self.list.tablets.retain(|tablet| !is_gone(tablet));
        let sealed = self
            .list
            .tablets
            .iter()
            .flat_map(|tablet| &tablet.containers);
        let current = self
            .current
            .values()
            .filter_map(|entry| entry.said.as_ref());
        let spoken: HashSet<ContainerId> = sealed.chain(current).copied().collect();
        self.retired.retain(&spoken);
        Ok(())
    }
}

/// The content of journals, as replayed at open.
#[derive(Default)]
struct Replay {
    current: HashMap<Fingerprint, TabletEntry>,
    retired: HashSet<ContainerId>,
}

fn open_journal(dir: &dyn Dir, number: u32, replay: &mut Replay) -> Result<PageLog> {
    let path = journal_of(number);
    let disk = open_or_create(dir, &path)?;
    PageLog::open(disk, &path, JOURNAL_FRAME, &mut |extent, payload| {
        if !payload.len().is_multiple_of(RECORD_BYTES) {
            let what = format!("{} bytes of records", payload.len());
            return Err(Error::damaged(
                &path,
                u64::from(extent.page) * PAGE_BYTES as u64,
                what,
            ));
        }
        for record in payload.chunks_exact(RECORD_BYTES).map(TabletRecord::read) {
            match record {
                TabletRecord::Retires(container) => {
                    replay.retired.insert(container);
                }
                TabletRecord::Returns(container) => {
                    replay.retired.remove(&container);
                }
                TabletRecord::Of(
                    key,
                    TabletEntry {
                        said: None,
                        has_older: false,
                    },
                ) => {
                    replay.current.remove(&key);
                }
                TabletRecord::Of(key, entry) => {
                    replay.current.insert(key, entry);
                }
            }
        }
        Ok(())
    })
}

impl OneCaller for Tablets {
    fn lookup(&mut self, keys: &[Fingerprint], found: &mut [Option<Location>]) -> Result<()> {
        self.absent.clear();
        let (reads, false_reads) = (self.list.reads, self.list.false_reads);
        for (key, slot) in keys.iter().zip(found) {
            let container = self.find(key)?;
            *slot = container.map(|container| Location { container });
            self.stats.hits += u64::from(slot.is_some());
        }
        self.stats.lookups += keys.len() as u64;
        self.stats.lookup_reads += self.list.reads - reads;
        self.stats.false_reads += self.list.false_reads - false_reads;
        Ok(())
    }

    fn say(&mut self, key: &Fingerprint, said: Said) -> Result<()> {
        let has_older = match self.current.get(key) {
            Some(entry) => entry.has_older,
            None if self.moved.contains_key(key) => true,
            None => !self.absent.contains(key) && self.list.find(key, None)?.is_some(),
        };
        if said.is_some() || has_older {
            self.current.insert(*key, TabletEntry { said, has_older });
            self.unsaid.push(*key);
        } else if self.current.remove(key).is_some() {
            self.unsaid.push(*key);
        }
        if let Some(container) = said {
            self.retired.told(container);
        }
        self.seal_if_due()
    }

    fn retire(&mut self, containers: &[ContainerId]) -> Result<()> {
        self.retired.retire(containers);
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.seal_if_due()?;
        self.append_unsaid()?;
        self.journal.sync()?;
        self.unsaid.clear();
        if self.retired.unsaid_len() > 0 {
            self.retired.said();
            self.remove_retired()?;
        }
        Ok(())
    }

    fn iterate(
        &mut self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        for tablet in &self.list.tablets {
            for (key, entry) in tablet.all()? {
                let newest = self
                    .moved
                    .get(&key)
                    .is_none_or(|number| *number == tablet.number);
                let container = entry
                    .said
                    .filter(|_| newest && !self.current.contains_key(&key))
                    .filter(|container| !self.retired.contains(container));
                if let Some(container) = container {
                    visit(key, Location { container })?;
                }
            }
        }
        for (key, entry) in &self.current {
            if let Some(container) = entry.said
                && !self.retired.contains(&container)
            {
                visit(*key, Location { container })?;
            }
        }
        Ok(())
    }

    fn ram_bytes(&self) -> usize {
        // hashbrown: a control byte beside each slot, 8 slots in 7 used at most
        let slots = |capacity: usize, bytes: usize| capacity * 8 / 7 * (bytes + 1);
        size_of::<Tablets>()
            + slots(
                self.current.capacity(),
                size_of::<(Fingerprint, TabletEntry)>(),
            )
            + slots(self.moved.capacity(), size_of::<(Fingerprint, u32)>())
            + slots(self.absent.capacity(), 32)
            + self.retired.ram_bytes()
            + self.unsaid.capacity() * 32
            + self.list.ram_bytes()
    }

    fn stats(&self) -> IndexStats {
        let tablets = &self.list.tablets;
        let sealed: u64 = tablets.iter().map(|tablet| tablet.records).sum();
        let disk_bytes: u64 = tablets.iter().map(Tablet::disk_bytes).sum();
        IndexStats {
            entries: sealed + self.current.len() as u64,
            disk_bytes: disk_bytes + u64::from(self.journal.pages()) * PAGE_BYTES as u64,
            bytes_written: self.bytes_written + self.journal.bytes_written,
            ..self.stats
        }
    }
}
