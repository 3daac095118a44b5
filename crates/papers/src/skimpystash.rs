//! `skimpystash`: a RAM directory of buckets whose keys are chained on flash (Debnath, Sengupta, Li 2011, as Lu's
//! dissertation §4.2.1 describes it).
//!
//! ```text
//! RAM    directory: per bucket a pointer to its newest page and a Bloom filter of a byte a key │ one write buffer
//! flash  log of record pages; each record leads to the page of the bucket's record before it
//! ```
//!
//! RAM a key: 1 + 4/l bytes with l keys a bucket. A lookup of a present key follows l/2 pages in the mean, since
//! neighbours of a bucket hardly ever share a page; of an absent one none, or all l pages where the filter errs.
//! Invariant: a record's link is the page of the newest record of its bucket in an earlier page, so the chain leads
//! from newer to older. The directory is made from the log at open. The log only grows; the paper's compaction is not
//! implemented.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::Dir;

use crate::filters::word;
use crate::flashlog::{FlashLog, Locate, Located, LogRecord, RECORDS, RecordPage, RecordPlace};
use crate::turns::{InTurns, OneCaller};
use onefold_index::strata::log::Said;
use onefold_index::{ContainerId, IndexStats, Location, Result};

const BATCH: usize = 256;

/// Options of a SkimpyStash, which may differ from opening to opening.
#[derive(Clone, Copy, Debug)]
pub struct SkimpyStashOptions {
    /// Number of keys for which the directory is made. More keys make longer chains and fuller filters.
    pub keys_expected: u64,
    /// Mean number of keys in a bucket, l: a key costs 1 + 4/l bytes.
    pub bucket_keys: u32,
}

/// The index `skimpystash`: a RAM directory of buckets whose keys are chained on flash.
pub struct SkimpyStash {
    log: FlashLog,
    buffer: RecordPage,
    /// For each bucket, the page of its newest record plus one, or 0.
    newest: Vec<u32>,
    /// Filters of all buckets, `filter_bytes` each.
    filters: Vec<u8>,
    filter_bytes: usize,
    entries: u64,
    stats: IndexStats,
}

impl InTurns<SkimpyStash> {
    /// Opens the store in `dir`, or begins one; reads the whole log once.
    ///
    /// # Errors
    /// [`Error::Held`](onefold_index::Error::Held) where another opener has the store open;
    /// [`Error::Damaged`](onefold_index::Error::Damaged) for a durable page that is not whole;
    /// [`Error::Io`](onefold_index::Error::Io).
    pub fn open(dir: Arc<dyn Dir>, options: SkimpyStashOptions) -> Result<InTurns<SkimpyStash>> {
        SkimpyStash::open_one(dir, options).map(InTurns::new)
    }
}

impl SkimpyStash {
    fn open_one(dir: Arc<dyn Dir>, options: SkimpyStashOptions) -> Result<SkimpyStash> {
        let log = FlashLog::open(dir, "skimpy")?;
        let filter_bytes = options.bucket_keys.max(1) as usize;
        let buckets = (options.keys_expected as usize)
            .div_ceil(filter_bytes)
            .max(1);
        let mut store = SkimpyStash {
            log,
            buffer: RecordPage::new(),
            newest: vec![0; buckets],
            filters: vec![0; buckets * filter_bytes],
            filter_bytes,
            entries: 0,
            stats: IndexStats::default(),
        };
        let mut until = 0;
        for number in store.log.range() {
            let page = store.log.read(number)?;
            until = page
                .records()
                .map(|record| record.seq)
                .fold(until, u64::max);
            store.enter(&page, number);
        }
        for page in 0..store.log.journal_pages() {
            let records = store.log.journaled(page)?.into_iter();
            for record in records.filter(|record| record.seq > until) {
                store.put(record)?;
            }
        }
        Ok(store)
    }

    fn bucket_of(&self, key: &Fingerprint) -> usize {
        ((u128::from(word(key, 0)) * self.newest.len() as u128) >> 64) as usize
    }

    /// The bits of a key in its bucket's filter: with 8 bits a key, 5 or 6 are best.
    fn bits(&self, key: &Fingerprint) -> impl Iterator<Item = usize> + use<> {
        let (start, step) = (word(key, 2), word(key, 3) | 1);
        let (bits, first) = (
            self.filter_bytes as u128 * 8,
            self.bucket_of(key) * self.filter_bytes * 8,
        );
        (0..5u64).map(move |i| {
            first + ((u128::from(start.wrapping_add(i.wrapping_mul(step))) * bits) >> 64) as usize
        })
    }

    fn may_hold(&self, key: &Fingerprint) -> bool {
        self.bits(key)
            .all(|bit| self.filters[bit / 8] >> (bit % 8) & 1 == 1)
    }

    /// Enters the records of a page into the directory.
    fn enter(&mut self, page: &RecordPage, number: u32) {
        for record in page.records() {
            let bucket = self.bucket_of(&record.key);
            self.newest[bucket] = number + 1;
            for bit in self.bits(&record.key) {
                self.filters[bit / 8] |= 1 << (bit % 8);
            }
            self.entries += 1;
        }
    }

    fn put(&mut self, record: LogRecord) -> Result<()> {
        // the buffer is still full where it could not be written before
        self.write_if_full()?;
        let link = self.newest[self.bucket_of(&record.key)];
        self.buffer.put(LogRecord { link, ..record });
        self.write_if_full()
    }

    fn write_if_full(&mut self) -> Result<()> {
        if self.buffer.is_full() {
            let number = self.log.append(&mut self.buffer, 0)?;
            let page = std::mem::replace(&mut self.buffer, RecordPage::new());
            self.enter(&page, number);
            self.buffer = page;
            self.buffer.clear();
        }
        Ok(())
    }

    fn follow(
        &mut self,
        keys: &[Fingerprint],
        found: &mut [Located],
        mut searches: Vec<(usize, u32)>,
    ) -> Result<()> {
        loop {
            searches.retain(|(place, link)| found[*place].is_none() && *link > 0);
            if searches.is_empty() {
                return Ok(());
            }
            let pages: Vec<u32> = searches.iter().map(|(_, link)| link - 1).collect();
            self.stats.lookup_reads += pages.len() as u64;
            for ((place, link), page) in searches.iter_mut().zip(self.log.read_many(&pages)?) {
                let key = &keys[*place];
                if let Some(said) = page.find(key) {
                    found[*place] = Some((RecordPlace::Page(*link - 1), said));
                    continue;
                }
                self.stats.false_reads += 1;
                let bucket = self.bucket_of(key);
                // all records of a bucket in one page lead to the same page, an older one
                let before = page
                    .records()
                    .find(|record| self.bucket_of(&record.key) == bucket)
                    .map_or(0, |record| record.link);
                *link = before.min(*link - 1);
            }
        }
    }
}

impl Locate for SkimpyStash {
    fn parts(&mut self) -> (&FlashLog, &mut IndexStats) {
        (&self.log, &mut self.stats)
    }

    /// Looks up the newest record of each key. The chains of a batch of keys are followed together, a page of each at a
    /// time.
    fn locate(&mut self, keys: &[Fingerprint]) -> Result<Vec<Located>> {
        let mut found: Vec<Located> = keys
            .iter()
            .map(|key| {
                self.buffer
                    .find(key)
                    .map(|said| (RecordPlace::Buffer, said))
            })
            .collect();
        let mut searches: Vec<(usize, u32)> = (0..keys.len())
            .filter(|place| found[*place].is_none() && self.may_hold(&keys[*place]))
            .map(|place| (place, self.newest[self.bucket_of(&keys[place])]))
            .collect();
        for searches in searches.chunks_mut(BATCH) {
            self.follow(keys, &mut found, searches.to_vec())?;
        }
        Ok(found)
    }
}

impl OneCaller for SkimpyStash {
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
        self.log.checkpoint(std::iter::once(&self.buffer))
    }

    fn iterate(
        &mut self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        self.visit_page(&self.buffer.clone(), RecordPlace::Buffer, visit)?;
        self.visit_log(visit)
    }

    fn ram_bytes(&self) -> usize {
        size_of::<SkimpyStash>()
            + self.buffer.ram_bytes()
            + self.newest.capacity() * 4
            + self.filters.capacity()
            + self.log.ram_bytes()
    }

    fn stats(&self) -> IndexStats {
        IndexStats {
            entries: self.entries + self.buffer.len().min(RECORDS) as u64,
            disk_bytes: self.log.disk_bytes(),
            bytes_written: self.log.bytes_written,
            ..self.stats
        }
    }
}
