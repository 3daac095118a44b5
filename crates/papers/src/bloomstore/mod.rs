//! `bloomstore`: chains of Bloom filters on flash instead of pointers in RAM (Lu's dissertation, §4.4).
//!
//! ```text
//! RAM    a partition: write buffer of a page, active filter │ pool of filters not yet on flash │ pre-filter
//! flash  log of record pages, 64 keys each │ a chain of filters a partition, one filter a page, bit-sliced
//! ```
//!
//! RAM a key: 4096/(64·M) for write buffers, δ/(64·M) for active filters, and the pool and pre-filter as configured:
//! 0.5 bytes at M = 128, 0.67 at 96. A lookup that RAM does not answer reads a page of the chain and then the pages
//! that the chain names, newest first; each step of a whole batch of keys is one batch of reads, so that the chain
//! reads of many keys are in flight at once (which §4.4.1 leaves as future work).
//!
//! Invariant: a partition's pages and filters are in the order of writing, so the newest answer is found first; a
//! filter is in the pool or on flash, never in both. A chain longer than M grows another unit, and a lookup of an
//! absent key reads a page of each. The shape (partitions, M, δ, slices) is fixed when the store is made. Source of
//! truth are log and journal ([`crate::flashlog`]): chains that a crash lost are made again.

mod chain;
mod collect;
mod recover;
mod units;

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::Dir;

use self::chain::{POINTER_BYTES, Shape, UnitHead, pointer_of};
use self::units::{Place, Units};
use crate::filters::{BlockedBloom, word};
use crate::flashlog::{
    FlashLog, Locate, Located, LogRecord, RECORDS, RecordPage, RecordPlace, UnreadPages,
};
use crate::turns::{InTurns, OneCaller};
use onefold_index::strata::log::Said;
use onefold_index::{ContainerId, Filter, IndexStats, Location, Result};

/// Number of keys whose reads are in flight together: bounds the RAM of a lookup to some MiB.
const BATCH: usize = 256;

/// Options of a BloomStore. An existing store keeps its `partitions`, `chain_max`, `filter_bytes` and `sub_partitions`.
#[derive(Clone, Debug)]
pub struct BloomStoreOptions {
    /// Number of keys for which chains have at most `chain_max` filters; decides the number of partitions. More keys
    /// make longer chains.
    pub keys_expected: u64,
    /// Largest number of filters in a chain, M (§4.5.3: 96).
    pub chain_max: u32,
    /// Bytes of a filter, δ, its pointer of 4 bytes included (§4.5.3: 64, or 128 where most keys are present).
    pub filter_bytes: u32,
    /// Number of sub-partitions that share a write buffer, each with its own part of the chain; raised until each part
    /// fits into a page.
    pub sub_partitions: u32,
    /// Whether a lookup reads all pages of a chain's unit, ⌈filters·δ/4096⌉ as in §4.4.1, and not only that of the
    /// key's slice. The answer is the same: for comparisons.
    pub reads_whole_chains: bool,
    /// RAM in bytes for filters that are not yet on flash, shared by all partitions.
    pub pool_bytes: usize,
    /// RAM in bytes for the pre-filter, 0 for none (§4.4.3: 4 bits a key).
    pub prefilter_bytes: usize,
    /// Share of garbage among all records above which garbage is collected.
    pub garbage_max: f64,
    /// Milliseconds that an insertion may stay in a write buffer without being durable, ensured by a thread of the
    /// store (§4.4.1: a configurable timeout, such as 1 ms).
    pub flush_interval_ms: Option<u64>,
}

impl BloomStoreOptions {
    /// The dissertation's best options for `keys_expected` keys, M = 96 and δ = 64, within `ram_bytes`: RAM beside
    /// write buffers goes to the pre-filter (4 bits a key), and the rest to the pool.
    pub fn new(keys_expected: u64, ram_bytes: usize) -> BloomStoreOptions {
        let options = BloomStoreOptions {
            keys_expected,
            chain_max: 96,
            filter_bytes: 64,
            sub_partitions: 1,
            reads_whole_chains: false,
            pool_bytes: 0,
            prefilter_bytes: 0,
            garbage_max: 0.25,
            flush_interval_ms: None,
        };
        options.within(ram_bytes, 4.0)
    }

    /// These options within `ram_bytes`: RAM beside write buffers goes to a pre-filter of `prefilter_bits` bits a key,
    /// and the rest to the pool.
    pub fn within(self, ram_bytes: usize, prefilter_bits: f64) -> BloomStoreOptions {
        let buffers = self.partitions() as usize * (4096 + self.filter_bytes as usize);
        let rest = ram_bytes.saturating_sub(buffers);
        let wanted = (self.keys_expected as f64 * prefilter_bits / 8.0) as usize;
        BloomStoreOptions {
            prefilter_bytes: rest.min(wanted),
            pool_bytes: rest - rest.min(wanted),
            ..self
        }
    }

    /// The number of partitions, P.
    pub fn partitions(&self) -> u32 {
        let keys = RECORDS as u64 * u64::from(self.chain_max.max(1));
        self.keys_expected.div_ceil(keys).clamp(1, 1 << 24) as u32
    }
}

/// The index `bloomstore`: chains of Bloom filters on flash instead of pointers in RAM.
pub struct BloomStore {
    log: FlashLog,
    units: Units,
    shape: Shape,
    options: BloomStoreOptions,
    partitions: Vec<BloomPartition>,
    held_bytes: usize,
    prefilter: Option<BlockedBloom>,
    /// Estimated number of records that are superseded, removed or of retired containers.
    garbage: u64,
    last_container: Option<ContainerId>,
    containers: u64,
    entries: u64,
    is_dirty: bool,
    stats: IndexStats,
}

struct BloomPartition {
    buffer: RecordPage,
    active: Box<[u8]>,
    /// Filters that are not yet on flash, oldest first, `filter_bytes` each.
    held: Vec<u8>,
    /// Places of the chain's units, oldest first.
    units: Vec<Place>,
    /// Number of filters in the last unit.
    filters: u32,
    /// The last unit's position in the chain, plus one.
    ordinals: u32,
    /// The page behind that of the last filter in the units before the last, and in the last.
    since: (u32, u32),
}

/// The reads that a key still needs.
struct PendingReads {
    candidates: UnreadPages,
    /// Number of units that are still to be asked.
    units: usize,
}

impl InTurns<BloomStore> {
    /// Opens the store in `dir`, or begins one.
    ///
    /// # Errors
    /// [`Error::Held`](onefold_index::Error::Held) where another opener has the store open;
    /// [`Error::Damaged`](onefold_index::Error::Damaged) for a shape that is damaged or needs more than eight times the
    /// RAM, or a durable page that is not whole; [`Error::Budget`](onefold_index::Error::Budget) for a chain that fits
    /// no page, or a pre-filter of more than 8 GiB; [`Error::Io`](onefold_index::Error::Io).
    pub fn open(dir: Arc<dyn Dir>, options: BloomStoreOptions) -> Result<InTurns<BloomStore>> {
        let interval_ms = options.flush_interval_ms;
        let store = InTurns::new(BloomStore::open_one(dir, options)?);
        match interval_ms {
            Some(ms) => store.with_timer(ms, |store| store.flush_waiting().map(|_| ())),
            None => Ok(store),
        }
    }

    /// Makes the insertions in write buffers durable, as the timeout does (§4.4.1). Returns whether there were any.
    ///
    /// # Errors
    /// Errors of [`checkpoint`](onefold_index::ChunkIndex::checkpoint).
    pub fn flush_waiting(&self) -> Result<bool> {
        self.lock().flush_waiting()
    }

    /// RAM of write buffers, of active filters and the pool, and of the pre-filter, in bytes.
    pub fn ram_parts(&self) -> (usize, usize, usize) {
        self.lock().ram_parts()
    }

    /// Collects all present pages; durable after the next checkpoint.
    ///
    /// # Errors
    /// [`Error::Io`](onefold_index::Error::Io), or [`Error::Damaged`](onefold_index::Error::Damaged) for a page that is
    /// not what was written: this page and those behind it are not collected.
    pub fn collect_all(&mut self) -> Result<()> {
        self.lock().collect_all()
    }
}

impl BloomStore {
    fn open_one(dir: Arc<dyn Dir>, options: BloomStoreOptions) -> Result<BloomStore> {
        recover::open(dir, options)
    }

    /// Makes the insertions in write buffers durable; returns whether there were any.
    fn flush_waiting(&mut self) -> Result<bool> {
        let waits = self.is_dirty;
        if waits {
            self.checkpoint()?;
        }
        Ok(waits)
    }

    /// RAM of write buffers, of active filters and the pool, and of the pre-filter, in bytes.
    fn ram_parts(&self) -> (usize, usize, usize) {
        let of =
            |part: fn(&BloomPartition) -> usize| self.partitions.iter().map(part).sum::<usize>();
        (
            of(|partition| partition.buffer.ram_bytes()),
            of(|partition| {
                partition.active.len()
                    + partition.held.capacity()
                    + partition.units.capacity() * size_of::<Place>()
            }) + self.partitions.capacity() * size_of::<BloomPartition>(),
            self.prefilter.as_ref().map_or(0, Filter::ram_bytes),
        )
    }

    fn partition_of(&self, key: &Fingerprint) -> usize {
        ((u128::from(word(key, 0)) * self.partitions.len() as u128) >> 64) as usize
    }

    fn put(&mut self, key: &Fingerprint, said: Said) -> Result<()> {
        if let Some(container) = said.filter(|container| Some(*container) != self.last_container) {
            self.last_container = Some(container);
            self.containers += 1;
        }
        if let Some(prefilter) = &mut self.prefilter {
            prefilter.insert(std::slice::from_ref(key))?;
        }
        let record = self.log.next_record(key, said);
        self.is_dirty = true;
        self.put_record(record)
    }

    fn put_record(&mut self, record: LogRecord) -> Result<()> {
        let number = self.partition_of(&record.key);
        if self.partitions[number].buffer.is_full() {
            // the buffer is still full where it could not be written before
            self.seal(number)?;
        }
        let partition = &mut self.partitions[number];
        let before = partition.buffer.len();
        partition.buffer.put(record);
        self.entries += (partition.buffer.len() - before) as u64;
        self.shape.set(&mut partition.active, &record.key);
        if partition.buffer.is_full() {
            self.seal(number)?;
        }
        Ok(())
    }

    /// The pages that may hold the key by the filters not yet on flash, oldest first.
    fn held_candidates(&self, number: usize, key: &Fingerprint) -> Vec<u32> {
        let filters = &self.partitions[number].held;
        filters
            .chunks_exact(self.shape.filter_bytes as usize)
            .filter(|filter| self.shape.may_hold(filter, key))
            .map(pointer_of)
            .collect()
    }

    /// Writes the buffer as a page. Its filter goes to the pool; where that is full, filters of the fullest partition
    /// go to flash.
    fn seal(&mut self, number: usize) -> Result<()> {
        self.sample_superseded(number)?;
        let partition = &mut self.partitions[number];
        let page = self.log.append(&mut partition.buffer, number as u32)?;
        partition.buffer.clear();
        partition.active[..POINTER_BYTES].copy_from_slice(&page.to_le_bytes());
        partition.held.reserve_exact(partition.active.len());
        partition.held.extend_from_slice(&partition.active);
        partition.active.fill(0);
        self.held_bytes += self.shape.filter_bytes as usize;
        while self.held_bytes > self.options.pool_bytes {
            let fullest = (0..self.partitions.len())
                .max_by_key(|number| self.partitions[*number].held.len())
                .expect("a partition");
            self.flush_chain(fullest)?;
        }
        Ok(())
    }

    /// Appends a partition's filters in the pool to its chain. Filters that cannot be written stay in the pool.
    fn flush_chain(&mut self, number: usize) -> Result<()> {
        // after a crash, pages collected since the last checkpoint are live again
        let head = self.log.durable_head();
        let filter_bytes = self.shape.filter_bytes as usize;
        let held = std::mem::take(&mut self.partitions[number].held);
        self.held_bytes -= held.len();
        let live: Vec<&[u8]> = held
            .chunks_exact(filter_bytes)
            .filter(|filter| pointer_of(filter) >= head)
            .collect();
        let mut rest = &live[..];
        let written = self.append_to_chain(number, &mut rest);
        let partition = &mut self.partitions[number];
        rest.iter()
            .for_each(|filter| partition.held.extend_from_slice(filter));
        self.held_bytes += partition.held.len();
        written
    }

    /// Removes the written filters from `rest`.
    fn append_to_chain(&mut self, number: usize, rest: &mut &[&[u8]]) -> Result<()> {
        let partition = &mut self.partitions[number];
        while !rest.is_empty() {
            let is_new = partition.units.is_empty() || partition.filters == self.shape.chain_max;
            if is_new {
                partition.units.reserve_exact(1);
                partition.units.push(self.units.allocate());
                partition.filters = 0;
                partition.ordinals += 1;
                partition.since.0 = partition.since.1;
            }
            let room = (self.shape.chain_max - partition.filters) as usize;
            let (now, later) = rest.split_at(room.min(rest.len()));
            let unit_head = UnitHead {
                partition: number as u32,
                ordinal: partition.ordinals - 1,
                generation: 0,
                filters: partition.filters,
                since: partition.since.0,
            };
            let place = partition.units.last_mut().expect("a unit");
            // a new unit that could not be written has no filters
            let was_there = partition.filters > 0;
            *place = self.units.write(*place, was_there, unit_head, now)?;
            *rest = later;
            partition.filters += now.len() as u32;
            partition.since.1 = pointer_of(now[now.len() - 1]) + 1;
        }
        Ok(())
    }

    /// For all searches at once: reads candidate pages, then the next older unit of the chain, then its candidates.
    fn search(
        &mut self,
        keys: &[Fingerprint],
        found: &mut [Located],
        mut searches: Vec<&mut PendingReads>,
    ) -> Result<()> {
        loop {
            let candidates = searches.iter_mut().map(|search| &mut search.candidates);
            self.log
                .read_candidates(keys, found, candidates, &mut self.stats)?;
            searches.retain(|search| found[search.candidates.place].is_none() && search.units > 0);
            if searches.is_empty() {
                return Ok(());
            }
            self.read_chains(keys, &mut searches)?;
        }
    }

    fn read_chains(
        &mut self,
        keys: &[Fingerprint],
        searches: &mut [&mut PendingReads],
    ) -> Result<()> {
        let mut pages = Vec::with_capacity(searches.len());
        let mut beside = Vec::new();
        for search in searches.iter_mut() {
            search.units -= 1;
            let key = &keys[search.candidates.place];
            let partition = &self.partitions[self.partition_of(key)];
            let (unit, slice) = (partition.units[search.units], self.shape.slice_of(key));
            pages.push(self.units.page(unit, slice));
            if self.options.reads_whole_chains {
                let is_last = search.units + 1 == partition.units.len();
                let others = (0..self.shape.slices).filter(|other| *other != slice);
                let count = self.shape.pages_of(if is_last {
                    partition.filters
                } else {
                    self.shape.chain_max
                });
                beside.extend(
                    others
                        .take(count as usize - 1)
                        .map(|other| self.units.page(unit, other)),
                );
            }
        }
        self.stats.lookup_reads += (pages.len() + beside.len()) as u64;
        let searched = pages.len();
        pages.append(&mut beside);
        let mut slices = self.units.read(&pages)?;
        slices.truncate(searched);
        for (search, slice) in searches.iter_mut().zip(slices) {
            let UnreadPages { place, pages } = &mut search.candidates;
            pages.clear();
            slice.ask(&self.shape, &keys[*place], pages);
            pages.reverse();
        }
        Ok(())
    }
}

impl Locate for BloomStore {
    fn parts(&mut self) -> (&FlashLog, &mut IndexStats) {
        (&self.log, &mut self.stats)
    }

    fn locate(&mut self, keys: &[Fingerprint]) -> Result<Vec<Located>> {
        let mut found = vec![None; keys.len()];
        let mut present = vec![true; keys.len()];
        if let Some(prefilter) = &mut self.prefilter {
            prefilter.may_contain(keys, &mut present)?;
        }
        let mut searches = Vec::new();
        for (place, key) in keys.iter().enumerate().filter(|(place, _)| present[*place]) {
            let partition = &self.partitions[self.partition_of(key)];
            if self.shape.may_hold(&partition.active, key)
                && let Some(said) = partition.buffer.find(key)
            {
                found[place] = Some((RecordPlace::Buffer, said));
                continue;
            }
            let units = partition.units.len();
            let pages = self.held_candidates(self.partition_of(key), key);
            searches.push(PendingReads {
                candidates: UnreadPages { place, pages },
                units,
            });
        }
        for searches in searches.chunks_mut(BATCH) {
            self.search(keys, &mut found, searches.iter_mut().collect())?;
        }
        Ok(found)
    }
}

impl OneCaller for BloomStore {
    fn lookup(&mut self, keys: &[Fingerprint], found: &mut [Option<Location>]) -> Result<()> {
        self.answer(keys, found)
    }

    fn say(&mut self, key: &Fingerprint, said: Said) -> Result<()> {
        if said.is_none() {
            self.garbage += 2;
        }
        self.put(key, said)
    }

    fn retire(&mut self, containers: &[ContainerId]) -> Result<()> {
        let news = containers.iter().filter(|gone| !self.log.is_retired(gone));
        self.retired_garbage(news.count() as u64);
        self.is_dirty = true;
        self.log.retire(containers);
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.collect_garbage()?;
        self.units.sync()?;
        self.log.notes = [self.garbage, self.containers];
        self.log
            .checkpoint(self.partitions.iter().map(|partition| &partition.buffer))?;
        self.is_dirty = false;
        Ok(())
    }

    fn iterate(
        &mut self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        for number in 0..self.partitions.len() {
            let buffer = self.partitions[number].buffer.clone();
            self.visit_page(&buffer, RecordPlace::Buffer, visit)?;
        }
        self.visit_log(visit)
    }

    fn ram_bytes(&self) -> usize {
        let (buffers, filters, prefilter) = self.ram_parts();
        size_of::<BloomStore>() + buffers + filters + prefilter + self.log.ram_bytes()
    }

    fn stats(&self) -> IndexStats {
        IndexStats {
            entries: self.entries,
            disk_bytes: self.log.disk_bytes() + self.units.disk_bytes(),
            bytes_written: self.log.bytes_written + self.units.bytes_written,
            ..self.stats
        }
    }
}
