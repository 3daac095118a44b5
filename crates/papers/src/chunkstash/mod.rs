//! `chunkstash`: a RAM table of compact signatures over a log on flash (Debnath, Sengupta, Li: "ChunkStash", 2010).
//!
//! ```text
//! RAM    cuckoo table: 2-byte signature, 4-byte log page, 16 candidate slots a key │ write buffer │ prefetch cache
//!        which log pages hold a container's metadata
//! flash  log: fingerprints in the order of the stream, with their containers
//! ```
//!
//! A lookup of a present key costs one read, of its container's metadata: the stream's next fingerprints come with it.
//! Most absent keys cost none (a signature is a part of the hash that gives the slot, so one lies in 16 slots by chance
//! with a probability of 16/65,536). The table costs 6 bytes of RAM a key at up to 90 % load, which `strata` was made
//! to avoid. With `sample` = n only every n-th key of a container has a slot, the first key always, and the others are
//! found by prefetch, or not at all. A full table is made anew from the log, without retired containers and, where that
//! leaves it nearly full, with `sample` doubled: more keys than the budget is for cost duplicates that are not
//! recognised, never a failure. The reads of a batch of keys go out together.
//!
//! Invariant: the table is made from the log at open, so only the log must be durable. A torn end of the log is cut
//! off; a damaged page before a good one is damage. Pages have the form of strata's log (FORMAT.md §5), with containers
//! as runs of records instead of the paper's 1023 records of 64 bytes. One opener at a time.

mod containers;
mod fetch;
mod retired;
mod table;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::{Dir, Disk, LockGuard};

use self::containers::LogContainers;
use self::retired::{read_retired, write_retired};
use self::table::CuckooTable;
use crate::flashlog::open_or_create;
use crate::turns::{InTurns, OneCaller};
use onefold_index::alone;
use onefold_index::strata::cache::PageCache;
use onefold_index::strata::hash_of;
use onefold_index::strata::log::{LogPacker, LogPage, Said, read_pages};
use onefold_index::strata::page::PAGE_BYTES;
use onefold_index::{ContainerId, Error, IndexStats, Location, Result};

/// Smallest number of records of a page that a stretch of keys is assumed to use.
const RECORDS_A_PAGE_LEAST: usize = 4;
/// Records in the write buffer: the paper's container.
const BUFFER_RECORDS: usize = 1023;
const LOG: &str = "stash-log";
/// Mark of the log's pages: 0, because there is no other log in the folder.
const UNMARKED: u64 = 0;

/// Options of a ChunkStash.
#[derive(Clone, Debug)]
pub struct ChunkStashOptions {
    /// All RAM in bytes: 80 % for the table, 15 % for the prefetch cache.
    pub ram_budget_bytes: usize,
    /// Bytes of a prefetch cache beside the budget, in place of the 15 %: where few keys are sampled, the budget is too
    /// small for one.
    pub cache_bytes: Option<usize>,
    /// Every n-th key of each container has a slot; 1 for all. Doubles whenever the table is full.
    pub sample: u32,
}

/// The index `chunkstash`: a RAM table of compact signatures over a log on flash.
pub struct ChunkStash {
    dir: Arc<dyn Dir>,
    disk: Arc<dyn Disk>,
    options: ChunkStashOptions,
    table: CuckooTable,
    pages: u32,
    order: Vec<Fingerprint>,
    buffer: HashMap<Fingerprint, Said>,
    cache: PageCache,
    containers: LogContainers,
    retired: HashSet<ContainerId>,
    /// Whether retired containers have come back since their file was written.
    returns: bool,
    inserted: u64,
    stats: IndexStats,
    _alone: Box<dyn LockGuard>,
}

impl InTurns<ChunkStash> {
    /// Opens the index in `dir`, or begins an empty one; reads the whole log once.
    ///
    /// # Errors
    /// [`Error::Held`] where another opener has the index open; [`Error::Damaged`] for a damaged page before a whole
    /// one, or a damaged file of retired containers; [`Error::Io`].
    pub fn open(dir: Arc<dyn Dir>, options: ChunkStashOptions) -> Result<InTurns<ChunkStash>> {
        ChunkStash::open_one(dir, options).map(InTurns::new)
    }
}

impl ChunkStash {
    fn open_one(dir: Arc<dyn Dir>, options: ChunkStashOptions) -> Result<ChunkStash> {
        let alone = alone(&*dir, "stash")?;
        let disk = open_or_create(&*dir, LOG)?;
        dir.sync()?;
        let slots = (options.ram_budget_bytes / 100 * 80 / 6).max(64);
        let mut stash = ChunkStash {
            table: CuckooTable::new(slots),
            cache: PageCache::new(
                options
                    .cache_bytes
                    .unwrap_or(options.ram_budget_bytes / 100 * 15),
            ),
            containers: LogContainers::default(),
            retired: read_retired(&*dir)?,
            returns: false,
            disk,
            dir,
            options,
            pages: 0,
            order: Vec::new(),
            buffer: HashMap::new(),
            inserted: 0,
            stats: IndexStats::default(),
            _alone: alone,
        };
        stash.recover()?;
        Ok(stash)
    }

    /// Finds the end of the log, and makes the table from the pages before it.
    fn recover(&mut self) -> Result<()> {
        let there = (self.disk.len()? / PAGE_BYTES as u64).min(u64::from(u32::MAX - 1)) as u32;
        let mut buf = vec![0; PAGE_BYTES];
        let (mut broken, mut fits) = (None, true);
        for page in 0..there {
            self.disk
                .read_at(&mut buf, u64::from(page) * PAGE_BYTES as u64)?;
            match (LogPage::check(&buf, UNMARKED, LOG, page), &broken) {
                (Ok(good), None) => {
                    self.pages = page + 1;
                    fits = fits && self.enter_page(&good, page)?;
                }
                (Ok(_), Some(first)) => {
                    return Err(Error::damaged(
                        LOG,
                        u64::from(*first) * PAGE_BYTES as u64,
                        format!("a damaged page before page {page}, which is whole"),
                    ));
                }
                (Err(_), _) => broken = broken.or(Some(page)),
            }
        }
        self.disk
            .set_len(u64::from(self.pages) * PAGE_BYTES as u64)?;
        if fits { Ok(()) } else { self.make_room() }
    }

    fn answer(&mut self, said: Said) -> Option<Location> {
        let container = said.filter(|container| !self.retired.contains(container));
        container.map(|container| Location { container })
    }

    /// The last page that the table names for the key, or for another key with the same signature.
    fn newest(&self, key: &Fingerprint) -> Option<u32> {
        let slots = self.table.matches(key);
        slots.map(|slot| self.table.pages[slot] - 1).max()
    }

    /// The record of `key` on a cached page, if the table names no later page.
    fn cached(&mut self, key: &Fingerprint) -> Option<Said> {
        let newest = self.newest(key);
        let (page, said) = self.cache.get(key, hash_of(key))?;
        debug_assert!(page < self.pages);
        newest.is_none_or(|newest| newest <= page).then_some(said)
    }

    fn find(&mut self, key: &Fingerprint) -> Result<Said> {
        if let Some(said) = self.buffer.get(key) {
            return Ok(*said);
        }
        let newest = self.newest(key);
        if let Some(said) = self.cached(key) {
            return Ok(said);
        }
        match self.slot_of(key)? {
            Some(slot) => Ok(self
                .cache
                .page_of(self.table.pages[slot] - 1)
                .and_then(|page| page.find(key))
                .flatten()),
            None => {
                self.stats.false_reads += u64::from(newest.is_some());
                Ok(None)
            }
        }
    }

    /// Appends the write buffer to the log, durable after the next sync.
    fn write_buffer(&mut self) -> Result<()> {
        let mut packer = LogPacker::default();
        packer.first = self.pages;
        self.order
            .iter()
            .for_each(|key| packer.push(key, self.buffer[key]));
        packer.close_page();
        self.disk
            .write_at(&packer.pages, u64::from(self.pages) * PAGE_BYTES as u64)?;
        self.stats.bytes_written += packer.pages.len() as u64;
        self.order.clear();
        self.buffer.clear();
        let first = self.pages;
        self.pages += (packer.pages.len() / PAGE_BYTES) as u32;
        for (page, bytes) in (first..).zip(packer.pages.chunks_exact(PAGE_BYTES)) {
            if !self.enter_page(&LogPage::checked(bytes), page)? {
                // together with the pages behind this one
                return self.make_room();
            }
        }
        Ok(())
    }
}

impl OneCaller for ChunkStash {
    fn lookup(&mut self, keys: &[Fingerprint], found: &mut [Option<Location>]) -> Result<()> {
        // stretches that fit into the cache, so that the pages of a batch are still there when needed
        let most = self.cache.capacity() / 2 * RECORDS_A_PAGE_LEAST;
        for (keys, found) in keys.chunks(most.max(1)).zip(found.chunks_mut(most.max(1))) {
            self.prefetch(keys)?;
            for (key, slot) in keys.iter().zip(&mut *found) {
                let said = self.find(key)?;
                *slot = self.answer(said);
            }
            if self.options.sample > 1 {
                // keys before a run's first sampled key, whose container came only with it
                for (key, slot) in keys
                    .iter()
                    .zip(&mut *found)
                    .filter(|(_, slot)| slot.is_none())
                {
                    if self.buffer.contains_key(key) {
                        continue;
                    }
                    let said = self.cached(key).flatten();
                    *slot = self.answer(said);
                }
            }
            self.stats.hits += found.iter().flatten().count() as u64;
        }
        self.stats.lookups += keys.len() as u64;
        Ok(())
    }

    fn say(&mut self, key: &Fingerprint, said: Said) -> Result<()> {
        if let Some(container) = said {
            self.returns |= !self.retired.is_empty() && self.retired.remove(&container);
        }
        if self.options.sample > 1 && said.is_some() && self.buffer.get(key) == Some(&None) {
            // a removal needs a record of its own: the new record may get no slot
            self.write_buffer()?;
        }
        if self.buffer.insert(*key, said).is_none() {
            self.order.push(*key);
        }
        if self.order.len() >= BUFFER_RECORDS {
            self.write_buffer()
        } else {
            Ok(())
        }
    }

    fn retire(&mut self, containers: &[ContainerId]) -> Result<()> {
        self.retired.extend(containers);
        write_retired(&*self.dir, &self.retired)?;
        self.returns = false;
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.write_buffer()?;
        self.disk.sync()?;
        if self.returns {
            write_retired(&*self.dir, &self.retired)?;
            self.returns = false;
        }
        Ok(())
    }

    fn iterate(
        &mut self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        self.write_buffer()?;
        let mut buf = Vec::new();
        for page in 0..self.pages {
            read_pages(&*self.disk, (LOG, UNMARKED), page, 1, &mut buf)?;
            for (key, said) in LogPage::checked(&buf).records() {
                let is_newest = self
                    .table
                    .matches(&key)
                    .any(|slot| self.table.pages[slot] == page + 1);
                if let Some(container) =
                    said.filter(|container| is_newest && !self.retired.contains(container))
                {
                    visit(key, Location { container })?;
                }
            }
        }
        Ok(())
    }

    fn ram_bytes(&self) -> usize {
        // hashbrown: a control byte beside each slot, 8 slots in 7 used at most
        let slots = |capacity: usize, bytes: usize| capacity * 8 / 7 * (bytes + 1);
        size_of::<ChunkStash>()
            + self.table.pages.len() * 6
            + self.cache.ram_bytes()
            + slots(self.buffer.capacity(), size_of::<(Fingerprint, Said)>())
            + self.order.capacity() * 32
            + self.containers.ram_bytes()
            + slots(self.retired.capacity(), 8)
    }

    fn stats(&self) -> IndexStats {
        IndexStats {
            entries: self.inserted,
            disk_bytes: u64::from(self.pages) * PAGE_BYTES as u64,
            ..self.stats
        }
    }
}
