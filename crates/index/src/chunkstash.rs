//! `chunkstash`: a RAM table of compact signatures over a log on flash (Debnath, Sengupta, Li: "ChunkStash", 2010).
//!
//! ```text
//! RAM    cuckoo table: 2-byte signature, 4-byte log page, 16 candidate slots a key │ write buffer │ prefetch cache
//! flash  log: fingerprints in the order of the stream, with their containers
//! ```
//!
//! One read of 64 KiB a positive lookup, and the stream's next fingerprints come with it; none for most absent keys (a signature lies in 16
//! slots by chance with a probability of 16/65,536). Costs 6 bytes of RAM a key at up to 90 % load, which is what `strata` was made to
//! avoid. With `sample` = n only every n-th key has a slot and the others are found by prefetch, or not at all. A table that is full is made
//! anew from the log, without retired containers and, where that leaves it nearly full, with `sample` doubled: more keys than the budget
//! is for cost duplicates that are not recognised, never a failure. The reads of a segment of keys are one batch.
//!
//! Always holds: the table is made from the log at open, so only the log must be durable. A torn end of the log is cut off; a damaged
//! page before a good one is damage. Pages have the form of strata's log (FORMAT.md §5), with containers as runs of
//! records instead of the paper's 1023 records of 64 bytes. One opener at a time.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::frame::{FrameKind, decode_frame, encode_frame};
use onefold_io::{Dir, Disk, ErrorKind, LockGuard, ReadAt};

use crate::alone::alone;
use crate::flashlog::{open_or_create, replace_file};
use crate::strata::cache::PageCache;
use crate::strata::log::{LogPacker, LogPage, Said, read_pages};
use crate::strata::page::PAGE_BYTES;
use crate::strata::run::hash_of;
use crate::{ChunkIndex, ContainerId, Error, IndexStats, Location, Result};

/// Candidate slots of a key, from two hashes.
const CANDIDATES: u64 = 16;
/// Keys that move to make room for one before the table counts as full.
const MOVES_MAX: usize = 64;
/// A table that was made anew is to have this share of its slots free, so that it is not made anew again soon.
const FREE_SHARE: f64 = 0.2;
/// Pages that a hit prefetches: 64 KiB.
const WINDOW_PAGES: u32 = 16;
/// Records of a page that a stretch of keys is thought to use, at the least.
const RECORDS_A_PAGE_LEAST: usize = 4;
/// Records in the write buffer: the paper's container.
const BUFFER_RECORDS: usize = 1023;
const LOG: &str = "stash-log";
const RETIRED: &str = "stash-retired";
const RETIRED_FRAME: FrameKind = FrameKind {
    magic: *b"OFSTASHR",
    version: 1,
};

/// How a ChunkStash works.
#[derive(Clone, Debug)]
pub struct ChunkStashOptions {
    /// All RAM: 80 % for the table, 15 % for the prefetch cache.
    pub ram_budget_bytes: usize,
    /// A prefetch cache of this many bytes beside the budget, in place of the 15 %: where few keys are sampled, the budget is too small for one.
    pub cache_bytes: Option<usize>,
    /// Every n-th inserted key has a slot; 1 for all. Doubles whenever the table is full.
    pub sample: u32,
}

/// See the module.
pub struct ChunkStash {
    dir: Arc<dyn Dir>,
    disk: Arc<dyn Disk>,
    options: ChunkStashOptions,
    table: Table,
    pages: u32,
    order: Vec<Fingerprint>,
    buffer: HashMap<Fingerprint, Said>,
    cache: PageCache,
    retired: HashSet<ContainerId>,
    inserted: u64,
    stats: IndexStats,
    _alone: Box<dyn LockGuard>,
}

/// The cuckoo table: signatures, and log pages plus one; 0 is an empty slot.
struct Table {
    signatures: Vec<u16>,
    pages: Vec<u32>,
}

impl Table {
    fn candidates(&self, key: &Fingerprint) -> impl Iterator<Item = usize> + use<> {
        let word =
            |at: usize| u64::from_le_bytes(key.0[at..at + 8].try_into().expect("eight bytes"));
        let (start, step, slots) = (word(8), word(16) | 1, self.pages.len() as u128);
        (0..CANDIDATES).map(move |i| {
            ((u128::from(start.wrapping_add(i.wrapping_mul(step))) * slots) >> 64) as usize
        })
    }

    fn signature(key: &Fingerprint) -> u16 {
        u16::from_le_bytes([key.0[24], key.0[25]])
    }

    /// Slots that may be the key's.
    fn matches(&self, key: &Fingerprint) -> impl Iterator<Item = usize> {
        let signature = Table::signature(key);
        self.candidates(key)
            .filter(move |slot| self.pages[*slot] > 0 && self.signatures[*slot] == signature)
    }

    fn put(&mut self, slot: usize, key: &Fingerprint, page: u32) {
        self.signatures[slot] = Table::signature(key);
        self.pages[slot] = page + 1;
    }
}

impl ChunkStash {
    /// Opens the index in `dir`, or begins an empty one; reads the whole log once.
    pub fn open(dir: Arc<dyn Dir>, options: ChunkStashOptions) -> Result<ChunkStash> {
        let alone = alone(&*dir, "stash")?;
        let disk = open_or_create(&*dir, LOG)?;
        dir.sync()?;
        let slots = (options.ram_budget_bytes / 100 * 80 / 6).max(64);
        let mut stash = ChunkStash {
            table: Table {
                signatures: vec![0; slots],
                pages: vec![0; slots],
            },
            cache: PageCache::new(
                options
                    .cache_bytes
                    .unwrap_or(options.ram_budget_bytes / 100 * 15),
            ),
            retired: read_retired(&*dir)?,
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

    /// Finds the end of the log, and makes the table of what is before it.
    fn recover(&mut self) -> Result<()> {
        let there = (self.disk.len()? / PAGE_BYTES as u64).min(u64::from(u32::MAX - 1)) as u32;
        let mut buf = vec![0; PAGE_BYTES];
        let (mut broken, mut fits) = (None, true);
        for page in 0..there {
            self.disk
                .read_at(&mut buf, u64::from(page) * PAGE_BYTES as u64)?;
            match (LogPage::check(&buf, LOG, page), &broken) {
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

    /// Makes the table anew where it is full: without what is retired, and of the rest with every second key as often as it takes.
    fn make_room(&mut self) -> Result<()> {
        // Without retirements the same keys would fill it again.
        let mut is_roomy = !self.retired.is_empty() && self.make_table()?;
        while !is_roomy {
            self.options.sample = self.options.sample.max(1).saturating_mul(2);
            tracing::warn!(
                "index chunkstash is full: every {}th chunk has a place in its {} bytes of RAM from now on, and some duplicates are stored again; more RAM avoids that",
                self.options.sample,
                self.options.ram_budget_bytes
            );
            is_roomy = self.make_table()? || self.options.sample == u32::MAX;
        }
        Ok(())
    }

    /// The table of all of the log; whether that fits, and leaves some of it free.
    fn make_table(&mut self) -> Result<bool> {
        self.table.pages.fill(0);
        self.inserted = 0;
        let mut buf = Vec::new();
        for page in 0..self.pages {
            read_pages(&*self.disk, LOG, page, 1, &mut buf)?;
            if !self.enter_page(&LogPage::checked(&buf), page)? {
                return Ok(false);
            }
        }
        let free = self.table.pages.iter().filter(|page| **page == 0).count();
        Ok(free as f64 >= self.table.pages.len() as f64 * FREE_SHARE)
    }

    /// Enters what page `page` says; whether there was room.
    fn enter_page(&mut self, records: &LogPage<'_>, page: u32) -> Result<bool> {
        for (key, said) in records.records() {
            if !self.enter(&key, said, page)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives the key a slot that names `page`, in place of the one it has. False where the table has no room: then another key lost its slot.
    fn enter(&mut self, key: &Fingerprint, said: Said, page: u32) -> Result<bool> {
        let own = self.slot_of(key)?;
        let is_gone = said.is_none_or(|container| self.retired.contains(&container));
        if own.is_none() && is_gone {
            return Ok(true);
        }
        self.inserted += 1;
        let is_sampled = self
            .inserted
            .is_multiple_of(u64::from(self.options.sample.max(1)));
        if own.is_none() && !is_sampled {
            return Ok(true);
        }
        if let Some(slot) = own.or_else(|| self.free_slot(key)) {
            self.table.put(slot, key, page);
            return Ok(true);
        }
        let (mut key, mut page) = (*key, page);
        for turn in 0..MOVES_MAX {
            if let Some(free) = self.free_slot(&key) {
                self.table.put(free, &key, page);
                return Ok(true);
            }
            let slot = self
                .table
                .candidates(&key)
                .nth(turn % CANDIDATES as usize)
                .expect("a candidate");
            let out = self.table.pages[slot] - 1;
            let moved = self.key_in(slot, out)?;
            self.table.put(slot, &key, page);
            (key, page) = (moved, out);
        }
        Ok(false)
    }

    fn free_slot(&self, key: &Fingerprint) -> Option<usize> {
        let mut candidates = self.table.candidates(key);
        candidates.find(|slot| self.table.pages[*slot] == 0)
    }

    /// The key of a slot, from the log: RAM holds its signature only.
    fn key_in(&mut self, slot: usize, page: u32) -> Result<Fingerprint> {
        let signature = self.table.signatures[slot];
        self.fetch(page)?;
        let keys: Vec<Fingerprint> = self.cache.page_of(page).map_or(Vec::new(), |page| {
            page.records().map(|(key, _)| key).collect()
        });
        let own = |key: &&Fingerprint| {
            Table::signature(key) == signature
                && self.table.candidates(key).any(|other| other == slot)
        };
        keys.iter().find(own).copied().ok_or_else(|| {
            Error::damaged(
                LOG,
                u64::from(page) * PAGE_BYTES as u64,
                "no record for a slot of the table",
            )
        })
    }

    /// The slot that the key has, proven.
    fn slot_of(&mut self, key: &Fingerprint) -> Result<Option<usize>> {
        for slot in self.table.matches(key).collect::<Vec<_>>() {
            let page = self.table.pages[slot] - 1;
            self.fetch(page)?;
            if self
                .cache
                .page_of(page)
                .is_some_and(|page| page.find(key).is_some())
            {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    /// Brings log page `page`, and those around it, into the cache.
    fn fetch(&mut self, page: u32) -> Result<()> {
        if self.cache.holds(page) {
            return Ok(());
        }
        self.fetch_all(&[page])
    }

    /// The pages that come with `page`: those behind it, which the stream will ask for next; or, where keys are sampled, the container
    /// that it is in, since the keys before the sampled one have no slots of their own.
    fn window_of(&self, page: u32) -> Range<u32> {
        let first = match self.options.sample {
            0 | 1 => page,
            _ => page / WINDOW_PAGES * WINDOW_PAGES,
        };
        first..(first + WINDOW_PAGES).min(self.pages).max(page + 1)
    }

    /// Brings the windows of `pages`, which are not in the cache, in one batch of reads.
    fn fetch_all(&mut self, pages: &[u32]) -> Result<()> {
        let mut windows: Vec<(u32, Range<u32>)> = Vec::new();
        for page in pages {
            if !windows.iter().any(|(_, window)| window.contains(page)) {
                windows.push((*page, self.window_of(*page)));
            }
        }
        let mut bytes: Vec<Vec<u8>> = windows
            .iter()
            .map(|(_, window)| vec![0; window.len() * PAGE_BYTES])
            .collect();
        let mut reads: Vec<ReadAt<'_>> = Vec::with_capacity(windows.len());
        for ((_, window), buf) in windows.iter().zip(&mut bytes) {
            let offset = u64::from(window.start) * PAGE_BYTES as u64;
            reads.push(ReadAt { offset, buf });
        }
        self.disk
            .read_many_at(&mut reads)
            .map_err(|error| Error::from_read(error, LOG))?;
        self.stats.lookup_reads += windows.len() as u64;
        for ((asked, window), bytes) in windows.into_iter().zip(&bytes) {
            let page_of = |number: u32| {
                let at = (number - window.start) as usize * PAGE_BYTES;
                &bytes[at..at + PAGE_BYTES]
            };
            // the one that was asked for last, so that a small cache still has it
            let last = std::iter::once(asked);
            for number in window
                .clone()
                .rev()
                .filter(|page| *page != asked)
                .chain(last)
            {
                LogPage::check(page_of(number), LOG, number)?;
                self.cache.insert(number, page_of(number));
            }
        }
        Ok(())
    }

    /// Brings what the table says of `keys` into the cache, as far as half of it goes, in one batch of reads. Where that is less than two windows
    /// it would push out what the first of the keys need: they are then read one by one.
    fn prefetch(&mut self, keys: &[Fingerprint]) -> Result<()> {
        let most = self.cache.capacity() / 2 / WINDOW_PAGES as usize;
        if most < 2 {
            return Ok(());
        }
        let mut pages: Vec<u32> = Vec::new();
        for key in keys.iter().filter(|key| !self.buffer.contains_key(key)) {
            let newest = self
                .table
                .matches(key)
                .map(|slot| self.table.pages[slot] - 1);
            if let Some(page) = newest.max().filter(|page| !self.cache.holds(*page))
                && !pages
                    .iter()
                    .any(|there| self.window_of(*there).contains(&page))
            {
                pages.push(page);
                if pages.len() == most {
                    break;
                }
            }
        }
        self.fetch_all(&pages)
    }

    fn answer(&mut self, said: Said) -> Option<Location> {
        let container = said.filter(|container| !self.retired.contains(container));
        container.map(|container| Location { container })
    }

    fn find(&mut self, key: &Fingerprint) -> Result<Said> {
        if let Some(said) = self.buffer.get(key) {
            return Ok(*said);
        }
        let newest = self
            .table
            .matches(key)
            .map(|slot| self.table.pages[slot] - 1)
            .max();
        if let Some((page, said)) = self
            .cache
            .get(key, hash_of(key))
            .filter(|(page, _)| newest.is_none_or(|newest| newest <= *page))
        {
            debug_assert!(page < self.pages);
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

    fn say(&mut self, key: &Fingerprint, said: Said) -> Result<()> {
        if self.buffer.insert(*key, said).is_none() {
            self.order.push(*key);
        }
        if self.order.len() >= BUFFER_RECORDS {
            self.write_buffer()
        } else {
            Ok(())
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
                // with the pages behind this one
                return self.make_room();
            }
        }
        Ok(())
    }

    fn write_retired(&self) -> Result<()> {
        let mut containers: Vec<ContainerId> = self.retired.iter().copied().collect();
        containers.sort_unstable();
        let payload: Vec<u8> = containers
            .iter()
            .flat_map(|container| container.0.to_le_bytes())
            .collect();
        let bytes = encode_frame(RETIRED_FRAME, 0, &payload);
        replace_file(&*self.dir, RETIRED, &bytes)
    }
}

fn read_retired(dir: &dyn Dir) -> Result<HashSet<ContainerId>> {
    let disk = match dir.open(RETIRED) {
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(HashSet::new()),
        other => other?,
    };
    let mut bytes = vec![0; disk.len()? as usize];
    disk.read_at(&mut bytes, 0)?;
    let frame = decode_frame(RETIRED_FRAME, &bytes, RETIRED, 0)?;
    Ok(frame
        .payload
        .chunks_exact(8)
        .map(|eight| ContainerId(u64::from_le_bytes(eight.try_into().expect("eight bytes"))))
        .collect())
}

impl ChunkIndex for ChunkStash {
    fn lookup(&mut self, keys: &[Fingerprint], found: &mut [Option<Location>]) -> Result<()> {
        // stretches that the cache has room for, so that what a batch brings is still there when it is asked for
        let most = self.cache.capacity() / 2 * RECORDS_A_PAGE_LEAST;
        for (keys, found) in keys.chunks(most.max(1)).zip(found.chunks_mut(most.max(1))) {
            self.prefetch(keys)?;
            for (key, slot) in keys.iter().zip(&mut *found) {
                let said = self.find(key)?;
                *slot = self.answer(said);
            }
            if self.options.sample > 1 {
                // before a run's first sampled key stand others, whose container came only with it
                for (key, slot) in keys
                    .iter()
                    .zip(&mut *found)
                    .filter(|(_, slot)| slot.is_none())
                {
                    let said = self.cache.get(key, hash_of(key)).and_then(|(_, said)| said);
                    *slot = self.answer(said);
                }
            }
            self.stats.hits += found.iter().flatten().count() as u64;
        }
        self.stats.lookups += keys.len() as u64;
        Ok(())
    }

    fn insert(&mut self, entries: &[(Fingerprint, Location)]) -> Result<()> {
        entries
            .iter()
            .try_for_each(|(key, location)| self.say(key, Some(location.container)))
    }

    fn remove(&mut self, keys: &[Fingerprint]) -> Result<()> {
        keys.iter().try_for_each(|key| self.say(key, None))
    }

    fn retire(&mut self, containers: &[ContainerId]) -> Result<()> {
        self.retired.extend(containers);
        self.write_retired()
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.write_buffer()?;
        Ok(self.disk.sync()?)
    }

    fn iterate(
        &mut self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        self.write_buffer()?;
        let mut buf = Vec::new();
        for page in 0..self.pages {
            read_pages(&*self.disk, LOG, page, 1, &mut buf)?;
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
        let buffer = self.buffer.capacity() * (size_of::<(Fingerprint, Said)>() + 1)
            + self.order.capacity() * 32;
        self.table.pages.len() * 6 + self.cache.ram_bytes() + buffer + self.retired.capacity() * 9
    }

    fn stats(&self) -> IndexStats {
        IndexStats {
            entries: self.inserted,
            disk_bytes: u64::from(self.pages) * PAGE_BYTES as u64,
            ..self.stats
        }
    }
}
