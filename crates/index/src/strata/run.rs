//! A run: records sorted by hash in an immutable file. A run is divided into partitions of the hash range, each with
//! its own pages and filter.
//!
//! Hashes are uniform, so the page of a hash is computed, not searched: `(hash - first) × pages / range` within its
//! partition, and no RAM is spent to find it. Invariant: a partition holds the hashes of its own range only, so that
//! each is written, filtered and read by itself; a merge needs RAM for one partition at any size of the run.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::Disk;
use onefold_io::frame::{FrameKind, crc64, read_frame};
use onefold_io::varint::ByteReader;

use super::manifest::FileId;
use super::page::{FOOTER_BYTES_MAX, PAGE_BYTES, check_length, read_pages};
use super::ribbon::{Question, Ribbon, RibbonShape};
use super::run_filters::{FilterShare, PartitionFilter, RunFilters};
use super::run_page::{PAGE_RECORDS_MAX, RunPage, RunRecord};
use crate::{Error, Result};

/// Bits of a fingerprint that a run is sorted by. Two of 50 million chunks share all 56 with a probability of 2 %, and
/// then one of them is stored twice: a record has 72 bits more, which prove every hit.
pub const HASH_BITS: u32 = 56;
/// The footer of a run.
pub const RUN_FRAME: FrameKind = FrameKind {
    magic: *b"OFSTRRUN",
    version: 3,
};
const PARTITIONS_LOG2_MAX: u8 = 24;

/// The hash of a fingerprint, by which runs are sorted: its first `HASH_BITS` bits.
#[inline]
pub fn hash_of(key: &Fingerprint) -> u64 {
    key.prefix() >> (64 - HASH_BITS)
}

/// A part of a run: one range of hashes.
#[derive(Clone, Debug)]
pub struct Partition {
    /// Number of the partition's first page in the file.
    pub first_page: u32,
    /// Number of pages that hashes are spread over.
    pub home_pages: u32,
    /// Number of all pages: `home_pages`, and some for records that overflowed at the end.
    pub pages: u32,
    /// Number of records.
    pub records: u32,
    /// Shape of the filter, which is stored behind the pages.
    pub filter: Option<RibbonShape>,
    /// Checksum of the filter's blocks.
    pub filter_crc64: u64,
}

impl Partition {
    fn filter_at(&self) -> u64 {
        (u64::from(self.first_page) + u64::from(self.pages)) * PAGE_BYTES as u64
    }

    /// Bytes of the stored filter, without the zeros behind it.
    fn filter_bytes(&self) -> usize {
        self.filter.and_then(|shape| shape.bytes()).unwrap_or(0)
    }

    fn filter_pages(&self) -> usize {
        self.filter_bytes().div_ceil(PAGE_BYTES)
    }
}

/// An open run. Clones share the file and the filters.
#[derive(Clone)]
pub struct Run {
    /// The open file.
    pub disk: Arc<dyn Disk>,
    /// Name of the file.
    pub path: String,
    /// Mark of the file in its pages' checksums.
    mark: u64,
    /// Number of partitions, as a power of two.
    pub partitions_log2: u8,
    /// The partitions, in the order of hashes.
    pub partitions: Vec<Partition>,
    /// Filters in RAM; without them the run answers "maybe" for every key.
    pub filters: Option<Arc<RunFilters>>,
    /// Log pages, counted as in the records, with a record that a record elsewhere supersedes. A cached copy of such a
    /// page must not be believed without asking the runs.
    pub dead_pages: Vec<u32>,
}

impl Run {
    /// Opens a run whose footer stands at `footer_at`, without its filters.
    pub fn open(disk: Arc<dyn Disk>, id: FileId, footer_at: u64, file_bytes: u64) -> Result<Run> {
        let path = &id.run_name()[..];
        check_length(&*disk, path, file_bytes)?;
        let payload = read_frame(&*disk, RUN_FRAME, footer_at, FOOTER_BYTES_MAX, path)?;
        let mut fields = ByteReader::new(&payload, path, footer_at);
        let records = fields.u64()?;
        let partitions_log2 = fields.u8()?;
        if partitions_log2 > PARTITIONS_LOG2_MAX {
            return Err(fields
                .damaged(format!("2^{partitions_log2} partitions"))
                .into());
        }
        let mut partitions = Vec::new();
        for _ in 0..1u32 << partitions_log2 {
            let partition = decode_partition(&mut fields)?;
            let end = partition.filter_at() + partition.filter_bytes() as u64;
            if end > footer_at
                || partition.home_pages > partition.pages
                || u64::from(partition.records) > u64::from(partition.pages) * PAGE_RECORDS_MAX
                || (partition.records > 0 && partition.home_pages == 0)
            {
                return Err(fields
                    .damaged(format!(
                        "partition {} ends at {end} of {footer_at}",
                        partitions.len()
                    ))
                    .into());
            }
            partitions.push(partition);
        }
        let dead = fields.u32()?;
        let dead_pages = (0..dead)
            .map(|_| fields.u32())
            .collect::<onefold_io::Result<Vec<u32>>>()?;
        fields.end()?;
        let sum: u64 = partitions
            .iter()
            .map(|partition| u64::from(partition.records))
            .sum();
        if sum != records {
            return Err(fields
                .damaged(format!("{records} records, {sum} in partitions"))
                .into());
        }
        if !dead_pages.is_sorted_by(|before, page| before < page) {
            return Err(fields.damaged("dead pages out of order".to_string()).into());
        }
        Ok(Run {
            disk,
            path: path.to_string(),
            mark: id.mark(),
            partitions_log2,
            partitions,
            filters: None,
            dead_pages,
        })
    }

    /// Returns the run if it holds as many records as the manifest says, and fails as damaged otherwise.
    pub fn of_records(self, records: u64) -> Result<Run> {
        let found: u64 = self
            .partitions
            .iter()
            .map(|partition| u64::from(partition.records))
            .sum();
        if found != records {
            let what = format!("{found} records, expected {records}");
            return Err(Error::damaged(&self.path, 0, what));
        }
        Ok(self)
    }

    /// Reads the filters, with no more bits than `share` says, as many at once as `at_once` pages hold. A damaged
    /// filter is built again from its pages.
    pub fn load_filters(&mut self, share: FilterShare, at_once: usize) -> Result<()> {
        let count = self.partitions.len();
        let shape = |(number, partition): (usize, &Partition)| {
            let bits = share.bits_of(number, count);
            let shape = partition
                .filter
                .filter(|_| partition.records > 0 && bits > 0)?;
            Some(shape.narrowed(bits))
        };
        let shapes: Vec<_> = self.partitions.iter().enumerate().map(shape).collect();
        let mut filters = RunFilters::with_room(&shapes, share);
        let wanted = self.partitions.iter().zip(&shapes).enumerate();
        let wanted: Vec<(usize, &Partition, &RibbonShape)> = wanted
            .filter_map(|(number, (partition, shape))| Some((number, partition, shape.as_ref()?)))
            .collect();
        let (mut end, mut buf, mut rest) = (0, Vec::new(), &wanted[..]);
        while !rest.is_empty() {
            let mut pages = 0;
            let fits = |(_, partition, _): &&(usize, &Partition, &RibbonShape)| {
                pages += partition.filter_pages();
                pages <= at_once
            };
            let (some, others) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            rest = others;
            let reads = some.iter().map(|(_, partition, _)| {
                let page = partition.first_page.saturating_add(partition.pages);
                (&*self.disk, page, partition.filter_pages())
            });
            let mut bytes = read_pages(reads, &mut buf).ok().map(|bytes| &bytes[..]);
            for (number, partition, shape) in some {
                let read = bytes.map(|bytes| bytes.split_at(partition.filter_pages() * PAGE_BYTES));
                bytes = read.map(|(_, others)| others);
                let stored = read.map(|(own, _)| &own[..partition.filter_bytes()]);
                let stored = stored.filter(|own| crc64(own) == partition.filter_crc64);
                end = match (&partition.filter, stored) {
                    (Some(of), Some(stored)) => filters.place(*number, end, (of, stored), shape),
                    _ => {
                        let (made, blocks) = self.filter_from_pages(*number, shape.bits)?;
                        filters.place(*number, end, (&made, &blocks), &made)
                    }
                };
            }
        }
        self.filters = Some(Arc::new(filters));
        Ok(())
    }

    /// A copy of this run without filters, which are to be read again.
    pub fn without_filters(&self) -> Run {
        Run {
            filters: None,
            ..self.clone()
        }
    }

    /// This run with filters of fewer bits; `None` where it has none, or another holder keeps them.
    pub fn narrowed(mut self, share: FilterShare) -> Option<Run> {
        let filters = Arc::into_inner(self.filters.take()?)?;
        self.filters = (share.bits > 0).then(|| Arc::new(filters.narrowed(share)));
        self.filters.is_some().then_some(self)
    }

    /// The bits with which the filters were read; `None` where the run has none in RAM.
    pub fn share(&self) -> Option<FilterShare> {
        self.filters.as_ref().map(|filters| filters.share)
    }

    /// RAM of the run and its filters, in bytes.
    pub fn ram_bytes(&self) -> usize {
        let filters = self
            .filters
            .as_ref()
            .map_or(0, |filters| filters.ram_bytes());
        let directory = self.partitions.capacity() * size_of::<Partition>();
        filters + directory + self.dead_pages.capacity() * 4 + size_of::<Run>()
    }

    /// Whether the run may hold `hash`. For many keys, call [`Run::seek`] for all before [`Run::near`] and
    /// [`Run::far`], so that memory is waited for once.
    pub fn may_contain(&self, hash: u64) -> bool {
        let question = Question::new(hash);
        let start = self.seek(&question);
        self.near(&question, start) && self.far(&question, start)
    }

    /// The slot in its partition's filter where the question begins. Tells the processor to fetch what [`Run::near`]
    /// reads.
    #[inline]
    pub fn seek(&self, question: &Question) -> u32 {
        self.filter_of(question).map_or(0, |filter| {
            let start = filter.shape.start(question);
            filter.shape.prefetch_near(filter.blocks, start);
            start
        })
    }

    /// Whether the first columns of the filter allow the key of `question`, for which `seek` returned `start`.
    #[inline]
    pub fn near(&self, question: &Question, start: u32) -> bool {
        match self.filter_of(question) {
            Some(filter) => filter.shape.near(filter.blocks, question, start),
            None => self.partitions[self.partition_of(question.key())].records > 0,
        }
    }

    /// Tells the processor to fetch what [`Run::far`] reads.
    #[inline]
    pub fn prefetch_far(&self, question: &Question, start: u32) {
        if let Some(filter) = self.filter_of(question) {
            filter.shape.prefetch_far(filter.blocks, start);
        }
    }

    /// Like [`Run::near`], for the other columns; to be called where `near` returned `true`.
    #[inline]
    pub fn far(&self, question: &Question, start: u32) -> bool {
        self.filter_of(question)
            .is_none_or(|filter| filter.shape.far(filter.blocks, question, start))
    }

    #[inline]
    fn filter_of(&self, question: &Question) -> Option<PartitionFilter<'_>> {
        let filters = self.filters.as_ref()?;
        filters.of(self.partition_of(question.key()))
    }

    /// The page of the file where `hash` would be, and the last page of its partition.
    pub fn page_of(&self, hash: u64) -> (u32, u32) {
        let partition = &self.partitions[self.partition_of(hash)];
        let home = home_page(hash, self.partitions_log2, partition.home_pages);
        (
            partition.first_page + home,
            partition.first_page + partition.pages.saturating_sub(1),
        )
    }

    #[inline]
    fn partition_of(&self, hash: u64) -> usize {
        (hash >> (HASH_BITS - u32::from(self.partitions_log2))) as usize
    }

    fn filter_from_pages(&self, number: usize, bits: u8) -> Result<(RibbonShape, Vec<u8>)> {
        let mut hashes = Vec::new();
        self.read_partition(number, |record| hashes.push(record.hash))?;
        Ok(Ribbon::build(&hashes, bits).map_or_else(Default::default, Ribbon::into_parts))
    }

    fn read_partition(&self, number: usize, mut visit: impl FnMut(RunRecord)) -> Result<()> {
        let partition = &self.partitions[number];
        let mut buf = vec![0; PAGE_BYTES];
        for page in partition.first_page..partition.first_page + partition.pages {
            self.read_page(page, &mut buf)?;
            let page = self.check_page(&buf, page)?;
            (0..page.len()).for_each(|i| visit(page.record(i)));
        }
        Ok(())
    }

    /// Checks `bytes`, which were read as page `page` of this run.
    pub fn check_page<'a>(&self, bytes: &'a [u8], page: u32) -> Result<RunPage<'a>> {
        RunPage::check(bytes, self.mark, &self.path, page)
    }

    fn read_page(&self, page: u32, buf: &mut [u8]) -> Result<()> {
        let at = u64::from(page) * PAGE_BYTES as u64;
        self.disk
            .read_at(buf, at)
            .map_err(|error| Error::from_read(error, &self.path))
    }
}

/// The number of the page of `hash` among the `home_pages` of its partition.
#[inline]
pub fn home_page(hash: u64, partitions_log2: u8, home_pages: u32) -> u32 {
    let range_log2 = HASH_BITS - u32::from(partitions_log2);
    let within = hash & ((1 << range_log2) - 1);
    ((u128::from(within) * u128::from(home_pages)) >> range_log2) as u32
}

/// Appends the footer's entry of a partition to `out`.
pub fn encode_partition(partition: &Partition, out: &mut Vec<u8>) {
    for number in [
        partition.first_page,
        partition.home_pages,
        partition.pages,
        partition.records,
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    let shape = partition.filter.unwrap_or_default();
    out.push(shape.bits);
    out.extend_from_slice(&shape.blocks.to_le_bytes());
    out.extend_from_slice(&shape.seed.to_le_bytes());
    out.extend_from_slice(&partition.filter_crc64.to_le_bytes());
}

fn decode_partition(fields: &mut ByteReader<'_>) -> Result<Partition> {
    let [first_page, home_pages, pages, records] =
        [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
    let shape = RibbonShape {
        bits: fields.u8()?,
        blocks: fields.u32()?,
        seed: fields.u64()?,
    };
    let filter = (shape.bits > 0).then_some(shape);
    if filter.is_some_and(|shape| shape.bytes().is_none()) {
        return Err(fields.damaged(format!("filter shape {shape:?}")).into());
    }
    Ok(Partition {
        first_page,
        home_pages,
        pages,
        records,
        filter,
        filter_crc64: fields.u64()?,
    })
}

/// Reads all records of a run in the order of their hashes, some pages at a time.
pub struct RunReader {
    run: Arc<Run>,
    read_pages: u32,
    partition: usize,
    page: u32,
    /// Bytes of pages that were read. Records of those before `decoded` are in `records` or were returned.
    buf: Vec<u8>,
    decoded: usize,
    first: u32,
    records: Vec<RunRecord>,
    given: usize,
}

/// Largest number of pages that [`RunReader`] reads at once: 64 KiB.
const READ_PAGES_MAX: usize = 16;

impl RunReader {
    /// A reader from the first hash on that reads `read_pages` pages at once, but at least one and at most
    /// [`READ_PAGES_MAX`].
    pub fn new(run: Arc<Run>, read_pages: usize) -> RunReader {
        RunReader {
            run,
            read_pages: read_pages.clamp(1, READ_PAGES_MAX) as u32,
            partition: 0,
            page: 0,
            buf: Vec::new(),
            decoded: 0,
            first: 0,
            records: Vec::new(),
            given: 0,
        }
    }

    /// Returns the next record, `None` after the last.
    pub fn next(&mut self) -> Result<Option<RunRecord>> {
        loop {
            if let Some(record) = self.records.get(self.given) {
                self.given += 1;
                return Ok(Some(*record));
            }
            if self.decoded < self.buf.len() {
                self.decode_page()?;
                continue;
            }
            let Some(partition) = self.run.partitions.get(self.partition) else {
                return Ok(None);
            };
            if self.page == partition.pages {
                self.partition += 1;
                self.page = 0;
                continue;
            }
            let pages = self.read_pages.min(partition.pages - self.page);
            self.first = partition.first_page + self.page;
            self.page += pages;
            self.buf.resize(pages as usize * PAGE_BYTES, 0);
            self.decoded = 0;
            self.run.read_page(self.first, &mut self.buf)?;
        }
    }

    fn decode_page(&mut self) -> Result<()> {
        let number = self.first + (self.decoded / PAGE_BYTES) as u32;
        let bytes = &self.buf[self.decoded..self.decoded + PAGE_BYTES];
        let page = self.run.check_page(bytes, number)?;
        self.records.clear();
        self.records.extend((0..page.len()).map(|i| page.record(i)));
        self.given = 0;
        self.decoded += PAGE_BYTES;
        Ok(())
    }
}
