//! `bufferhash`: hash tables on flash, one filter for each of them in RAM (Anand and others 2010, as Lu's dissertation
//! §4.2.1 describes it).
//!
//! ```text
//! RAM    a partition: a hash table that fills │ a Bloom filter for each of its tables
//! flash  full tables, each written once, in order
//! ```
//!
//! A table has pages of 64 slots, and a key two slots in it, by two hashes (cuckoo hashing, [`table`]): a key that
//! finds both taken moves another key to its other slot, which moves a third. A table is full when no such way ends in
//! an empty slot: with two slots a key this happens at about half of its slots, as in the paper. RAM a key: with C
//! tables a partition, 65/(0.5·C) bytes for the table in RAM, and the filters: 10 at C = 16 and 16 bits a key, ten
//! times the other indexes'. A lookup reads one page for most present keys, and seldom any for absent ones.
//!
//! Invariant: a partition's tables are searched from the newest; a table on flash never changes. More keys than
//! expected make more tables and more filters; where these exceed the budget, the oldest table of all is dropped, as in
//! the paper, and keys in it alone are forgotten. Tables are dropped first-in, first-out, so a forgotten record is
//! older than all remaining ones of its key. Filters are made from the log at open.

mod table;

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::Dir;
use onefold_io::frame::FrameKind;

use self::table::SlotTable;
use crate::filters::{BlockedBloom, word};
use crate::flashlog::{
    FlashLog, Locate, Located, LogRecord, RECORDS, RecordPage, RecordPlace, UnreadPages,
    read_or_write_shape,
};
use crate::turns::{InTurns, OneCaller};
use onefold_index::strata::log::Said;
use onefold_index::strata::page::PAGE_BYTES;
use onefold_index::{ContainerId, Error, Filter, IndexStats, Location, Result};

const BATCH: usize = 256;
const PARTITIONS_MAX: u32 = 1 << 20;
const TABLE_PAGES: usize = 32;
/// Pages in RAM that every store may have. An existing store may take eight times the pages of a store by the options,
/// or eight times this number.
const LEAST_PAGES: u64 = 256;
const SHAPE: &str = "bufferhash-shape";
const SHAPE_FRAME: FrameKind = FrameKind {
    magic: *b"OFBUFFRS",
    version: 1,
};

/// Options of a BufferHash. An existing store keeps its number of partitions and the size of its tables.
#[derive(Clone, Copy, Debug)]
pub struct BufferHashOptions {
    /// Number of keys for which a partition has `tables` tables.
    pub keys_expected: u64,
    /// Pages of a table.
    pub table_pages: u32,
    /// Tables of a partition, C.
    pub tables: u32,
    /// Bits of a filter for each key.
    pub filter_bits: u32,
    /// RAM in bytes that is kept by dropping the oldest tables. One table in RAM and a filter of each partition may
    /// exceed it.
    pub ram_budget_bytes: usize,
}

impl BufferHashOptions {
    /// The paper's options: 16 tables a partition, of 32 pages here, and 16 bits a key; no table is dropped.
    pub fn new(keys_expected: u64) -> BufferHashOptions {
        BufferHashOptions {
            keys_expected,
            table_pages: TABLE_PAGES as u32,
            tables: 16,
            filter_bits: 16,
            ram_budget_bytes: usize::MAX,
        }
    }

    /// Options for a budget in bytes: 78 % of it for tables in RAM, the rest beside filters of 16 tables a partition.
    pub fn within(ram_budget_bytes: usize) -> BufferHashOptions {
        let pages = ram_budget_bytes / 100 * 78 / PAGE_BYTES;
        let table_pages = pages.clamp(1, TABLE_PAGES);
        let table_keys = table_pages * RECORDS / 2;
        BufferHashOptions {
            keys_expected: (pages / table_pages).max(1) as u64 * 16 * table_keys as u64,
            table_pages: table_pages as u32,
            ram_budget_bytes,
            ..BufferHashOptions::new(0)
        }
    }

    fn table_keys(&self) -> u64 {
        u64::from(self.table_pages.max(1)) * RECORDS as u64 / 2
    }

    fn partitions(&self) -> u64 {
        let keys = self.table_keys() * u64::from(self.tables.max(1));
        self.keys_expected
            .div_ceil(keys)
            .clamp(1, PARTITIONS_MAX.into())
    }
}

/// The index `bufferhash`: hash tables on flash, one filter for each of them in RAM.
pub struct BufferHash {
    log: FlashLog,
    options: BufferHashOptions,
    partitions: Vec<BufferPartition>,
    entries: u64,
    stats: IndexStats,
}

struct BufferPartition {
    table: SlotTable,
    /// First page and filter of each full table, oldest first.
    tables: Vec<(u32, BlockedBloom)>,
}

impl BufferPartition {
    fn filters_bytes(&self) -> usize {
        let filters = self.tables.iter().map(|(_, filter)| filter.ram_bytes());
        self.tables.capacity() * size_of::<(u32, BlockedBloom)>() + filters.sum::<usize>()
    }
}

/// The number of partitions and of pages in a table: those of the existing store, or those that `options` ask for.
fn shape_of(dir: &dyn Dir, options: &BufferHashOptions) -> Result<[u32; 2]> {
    let shape = read_or_write_shape(dir, SHAPE, SHAPE_FRAME, || {
        Ok([options.partitions() as u32, options.table_pages.max(1)])
    })?;
    let [partitions, table_pages] = shape;
    // A larger shape is that of a store made with far more RAM, or damage: the store must be made anew.
    let asked = options.partitions() * u64::from(options.table_pages.max(1));
    let is_sane = (1..=PARTITIONS_MAX).contains(&partitions)
        && (1..=1 << 16).contains(&table_pages)
        && u64::from(partitions) * u64::from(table_pages) <= asked.max(LEAST_PAGES) * 8;
    if !is_sane {
        let what = format!(
            "a shape of {shape:?}: it is damaged, or was made with more than eight times the RAM"
        );
        return Err(Error::damaged(SHAPE, 0, what));
    }
    let tables = partitions as usize * table_pages as usize * PAGE_BYTES;
    if tables
        > options
            .ram_budget_bytes
            .max(LEAST_PAGES as usize * PAGE_BYTES)
    {
        return Err(Error::Budget {
            budget_bytes: options.ram_budget_bytes,
            what: format!("the index was made with tables of {tables} bytes in RAM"),
        });
    }
    Ok(shape)
}

impl InTurns<BufferHash> {
    /// Opens the store in `dir`, or begins one; reads the whole log once.
    ///
    /// # Errors
    /// [`Error::Held`] where another opener has the store open; [`Error::Damaged`] for a shape that is damaged or needs
    /// more than eight times the RAM, or a durable page that is not whole; [`Error::Budget`] where its tables take more
    /// than the budget; [`Error::Io`].
    pub fn open(dir: Arc<dyn Dir>, options: BufferHashOptions) -> Result<InTurns<BufferHash>> {
        BufferHash::open_one(dir, options).map(InTurns::new)
    }
}

impl BufferHash {
    fn open_one(dir: Arc<dyn Dir>, options: BufferHashOptions) -> Result<BufferHash> {
        let log = FlashLog::open(Arc::clone(&dir), "bufferhash")?;
        let [partitions, table_pages] = shape_of(&*dir, &options)?;
        let options = BufferHashOptions {
            table_pages,
            ..options
        };
        let empty = || BufferPartition {
            table: SlotTable::new(table_pages as usize),
            tables: Vec::new(),
        };
        let mut store = BufferHash {
            partitions: (0..partitions).map(|_| empty()).collect(),
            log,
            options,
            entries: 0,
            stats: IndexStats::default(),
        };
        let mut until = vec![0u64; store.partitions.len()];
        let range = store.log.range();
        // a table that a crash left half written does not count: its records are in the journal, or were not
        // acknowledged
        for first in range.step_by(table_pages as usize) {
            let numbers: Vec<u32> = (first..first + table_pages)
                .filter(|number| *number < store.log.range().end)
                .collect();
            let pages = store.log.read_many(&numbers)?;
            let owner = pages[0].head().owner as usize;
            if owner >= store.partitions.len() {
                let what = format!("a page of partition {owner}");
                return Err(Error::damaged(
                    "bufferhash-log",
                    u64::from(first) * 4096,
                    what,
                ));
            }
            if pages.len() < table_pages as usize {
                store.log.truncate(first)?;
                break;
            }
            until[owner] = pages
                .iter()
                .flat_map(RecordPage::records)
                .map(|record| record.seq)
                .fold(until[owner], u64::max);
            store.enter(owner, &pages, first)?;
            store.keep_budget();
        }
        for page in 0..store.log.journal_pages() {
            for record in store.log.journaled(page)? {
                if record.seq > until[store.partition_of(&record.key)] {
                    store.put(record)?;
                }
            }
        }
        Ok(store)
    }

    /// The partition of a key, by another word than filters use for blocks: each partition's keys should use all
    /// blocks.
    fn partition_of(&self, key: &Fingerprint) -> usize {
        ((u128::from(word(key, 3)) * self.partitions.len() as u128) >> 64) as usize
    }

    /// Adds a table's filter to its partition.
    fn enter(&mut self, owner: usize, pages: &[RecordPage], first: u32) -> Result<()> {
        let keys: Vec<Fingerprint> = pages
            .iter()
            .flat_map(RecordPage::records)
            .map(|record| record.key)
            .collect();
        let most = self.options.table_keys();
        let bytes = (most * u64::from(self.options.filter_bits) / 8) as usize;
        let mut filter = BlockedBloom::with_bytes(bytes, most)?;
        filter.insert(&keys)?;
        self.entries += keys.len() as u64;
        let tables = &mut self.partitions[owner].tables;
        tables.reserve_exact(1);
        tables.push((first, filter));
        Ok(())
    }

    /// Drops the oldest tables, except one, until all tables in RAM and the filters fit into the budget.
    fn keep_budget(&mut self) {
        let pages = SlotTable::bytes_of(self.options.table_pages as usize);
        let fixed = size_of::<BufferHash>()
            + self.log.ram_bytes()
            + self.partitions.len() * (size_of::<BufferPartition>() + pages);
        let filters: usize = self
            .partitions
            .iter()
            .map(BufferPartition::filters_bytes)
            .sum();
        let mut over = (fixed + filters).saturating_sub(self.options.ram_budget_bytes);
        while over > 0 {
            let Some(freed) = self.drop_oldest() else {
                return;
            };
            over = over.saturating_sub(freed);
        }
    }

    /// Drops the table at the head of the log, whose space is free after the next checkpoint. Returns the bytes of RAM
    /// that this frees.
    fn drop_oldest(&mut self) -> Option<usize> {
        let head = self.log.range().start;
        let next = head + self.options.table_pages;
        let oldest = self.partitions.iter_mut().find(|partition| {
            partition
                .tables
                .first()
                .is_some_and(|(first, _)| *first == head)
        });
        let partition = oldest.filter(|_| next < self.log.range().end)?;
        let before = partition.filters_bytes();
        partition.tables.remove(0);
        partition.tables.shrink_to_fit();
        let freed = before - partition.filters_bytes();
        self.entries = self.entries.saturating_sub(self.options.table_keys());
        self.log.advance_head(next);
        Some(freed)
    }

    fn put(&mut self, record: LogRecord) -> Result<()> {
        let number = self.partition_of(&record.key);
        while !self.partitions[number].table.put(record) {
            self.close_table(number)?;
        }
        Ok(())
    }

    /// Writes all pages of the table in RAM, and begins the next table.
    fn close_table(&mut self, number: usize) -> Result<()> {
        let empty = SlotTable::new(0);
        let mut table = std::mem::replace(&mut self.partitions[number].table, empty);
        let written = self.write_table(number, table.pages_mut());
        if written.is_ok() {
            table.clear();
        }
        self.partitions[number].table = table;
        self.keep_budget();
        written
    }

    fn write_table(&mut self, number: usize, pages: &mut [RecordPage]) -> Result<()> {
        let first = self.log.range().end;
        let appended = pages
            .iter_mut()
            .try_for_each(|page| self.log.append(page, number as u32).map(|_| ()));
        if appended.is_err() {
            // half a table does not count
            self.log.take_back(first);
        }
        appended?;
        self.enter(number, pages, first)
    }
}

impl Locate for BufferHash {
    fn parts(&mut self) -> (&FlashLog, &mut IndexStats) {
        (&self.log, &mut self.stats)
    }

    /// Looks up the newest record of each key; the reads of a batch of keys go out together.
    fn locate(&mut self, keys: &[Fingerprint]) -> Result<Vec<Located>> {
        let mut found = vec![None; keys.len()];
        let mut searches: Vec<UnreadPages> = Vec::new();
        for (place, key) in keys.iter().enumerate() {
            let number = self.partition_of(key);
            let choices = table::pages_of(key, self.options.table_pages as usize);
            let partition = &mut self.partitions[number];
            if let Some(said) = partition.table.find(key) {
                found[place] = Some((RecordPlace::Buffer, said));
                continue;
            }
            let mut pages = Vec::new();
            for (first, filter) in &mut partition.tables {
                let mut may = [true];
                filter.may_contain(std::slice::from_ref(key), &mut may)?;
                if may[0] {
                    pages.push(*first + choices[1] as u32);
                    if choices[0] != choices[1] {
                        pages.push(*first + choices[0] as u32);
                    }
                }
            }
            searches.push(UnreadPages { place, pages });
        }
        for searches in searches.chunks_mut(BATCH) {
            let searches = searches.iter_mut();
            self.log
                .read_candidates(keys, &mut found, searches, &mut self.stats)?;
        }
        Ok(found)
    }
}

impl OneCaller for BufferHash {
    fn lookup(&mut self, keys: &[Fingerprint], found: &mut [Option<Location>]) -> Result<()> {
        self.answer(keys, found)
    }

    fn say(&mut self, key: &Fingerprint, said: Said) -> Result<()> {
        let record = self.log.next_record(key, said);
        self.put(record)
    }

    fn retire(&mut self, containers: &[ContainerId]) -> Result<()> {
        self.log.retire(containers);
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        let tables = self.partitions.iter().map(|partition| &partition.table);
        self.log.checkpoint(tables.flat_map(SlotTable::pages))
    }

    fn iterate(
        &mut self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        for number in 0..self.partitions.len() {
            for place in 0..self.options.table_pages as usize {
                let page = self.partitions[number].table.pages()[place].clone();
                self.visit_page(&page, RecordPlace::Buffer, visit)?;
            }
        }
        self.visit_log(visit)
    }

    fn ram_bytes(&self) -> usize {
        let of = |partition: &BufferPartition| {
            size_of::<BufferPartition>() + partition.table.ram_bytes() + partition.filters_bytes()
        };
        size_of::<BufferHash>()
            + self.partitions.iter().map(of).sum::<usize>()
            + self.log.ram_bytes()
    }

    fn stats(&self) -> IndexStats {
        let tables = self.partitions.iter();
        let buffered: usize = tables.map(|partition| partition.table.len()).sum();
        IndexStats {
            entries: self.entries + buffered as u64,
            disk_bytes: self.log.disk_bytes(),
            bytes_written: self.log.bytes_written,
            ..self.stats
        }
    }
}
