//! Writes a run, a file of records sorted by hash, partition by partition.
//!
//! Invariant: pushed records rise strictly by hash, and RAM holds the records of one partition and the building of
//! its filter, no more.

use std::sync::Arc;

use onefold_io::Disk;
use onefold_io::frame::{crc64, encode_frame};

use super::bits;
use super::manifest::FileId;
use super::page::PAGE_BYTES;
use super::ribbon::Ribbon;
use super::run::{HASH_BITS, Partition, RUN_FRAME, encode_partition, home_page};
use super::run_page::{RecordPacking, RunRecord, value_bits};
use crate::Result;

/// Bytes of a run and its filter for each record.
pub const RUN_RECORD_BYTES: u64 = 21;
/// Filling of pages in percent: at 94 % one key in some hundred overflows onto the next page.
const FILL_PERCENT: usize = 94;

/// The figures of a finished run file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FinishedRun {
    /// Number of records.
    pub records: u64,
    /// Offset of the footer in bytes.
    pub footer_at: u64,
    /// Length of the whole file in bytes.
    pub file_bytes: u64,
}

/// Writes a run, partition by partition, in the order of its hashes.
pub struct RunWriter {
    disk: Arc<dyn Disk>,
    mark: u64,
    partitions_log2: u8,
    value_bits: u32,
    filter_bits: u8,
    partitions: Vec<Partition>,
    pending: Vec<RunRecord>,
    pages: u32,
    records: u64,
}

impl RunWriter {
    /// A writer of the run `id`, of at most `records` records on log pages below `log_pages`, with partitions of at
    /// most about `partition_records` and filters of `filter_bits` bits a slot (0: none).
    pub fn new(
        disk: Arc<dyn Disk>,
        id: FileId,
        records: u64,
        log_pages: u32,
        partition_records: usize,
        filter_bits: u8,
    ) -> RunWriter {
        let partitions = records
            .div_ceil(partition_records.max(1) as u64)
            .max(1)
            .next_power_of_two();
        let mean = (records / partitions) as usize;
        RunWriter {
            disk,
            mark: id.mark(),
            partitions_log2: partitions.trailing_zeros() as u8,
            value_bits: value_bits(log_pages),
            filter_bits,
            partitions: Vec::new(),
            // a partition seldom has more records: hashes are uniform
            pending: Vec::with_capacity(mean + mean.isqrt() * 4 + 16),
            pages: 0,
            records: 0,
        }
    }

    /// Adds a record; its hash must be above that of the record before.
    pub fn push(&mut self, record: RunRecord) -> Result<()> {
        let number = (record.hash >> (HASH_BITS - u32::from(self.partitions_log2))) as usize;
        while self.partitions.len() < number {
            self.close_partition()?;
        }
        self.pending.push(record);
        Ok(())
    }

    /// Writes the remaining records and the footer, and syncs. `dead_pages`: see [`Run`](super::run::Run).
    pub fn finish(mut self, dead_pages: &[u32]) -> Result<FinishedRun> {
        while self.partitions.len() < 1 << self.partitions_log2 {
            self.close_partition()?;
        }
        let footer_at = u64::from(self.pages) * PAGE_BYTES as u64;
        let mut payload = self.records.to_le_bytes().to_vec();
        payload.push(self.partitions_log2);
        self.partitions
            .iter()
            .for_each(|partition| encode_partition(partition, &mut payload));
        payload.extend_from_slice(&(dead_pages.len() as u32).to_le_bytes());
        dead_pages
            .iter()
            .for_each(|page| payload.extend_from_slice(&page.to_le_bytes()));
        let footer = encode_frame(RUN_FRAME, &payload);
        self.disk.write_at(&footer, footer_at)?;
        self.disk.sync()?;
        Ok(FinishedRun {
            records: self.records,
            footer_at,
            file_bytes: footer_at + footer.len() as u64,
        })
    }

    fn close_partition(&mut self) -> Result<()> {
        let records = std::mem::take(&mut self.pending);
        let (packing, home_pages) = self.plan(records.len());
        let filter = self.filter(&records);
        let filter_bytes = filter.as_ref().map_or(0, |filter| filter.blocks().len());
        let mut bytes = Vec::with_capacity((home_pages as usize + 2) * PAGE_BYTES + filter_bytes);
        self.pack(&records, packing, home_pages, &mut bytes);
        let pages = (bytes.len() / PAGE_BYTES) as u32;
        let filter_crc64 = filter.as_ref().map_or(0, |filter| crc64(filter.blocks()));
        bytes.extend_from_slice(filter.as_ref().map_or(&[], |filter| filter.blocks()));
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
        self.disk
            .write_at(&bytes, u64::from(self.pages) * PAGE_BYTES as u64)?;
        let filter = filter.map(|filter| filter.shape());
        self.partitions.push(Partition {
            first_page: self.pages,
            home_pages,
            pages,
            records: records.len() as u32,
            filter,
            filter_crc64,
        });
        self.pages += (bytes.len() / PAGE_BYTES) as u32;
        self.records += records.len() as u64;
        self.pending = records;
        self.pending.clear();
        Ok(())
    }

    fn filter(&self, records: &[RunRecord]) -> Option<Ribbon> {
        if self.filter_bits == 0 || records.is_empty() {
            return None;
        }
        let hashes: Vec<u64> = records.iter().map(|record| record.hash).collect();
        Ribbon::build(&hashes, self.filter_bits)
    }

    /// Decides how records are packed and over how many pages they are spread. More pages need fewer bits a record, so
    /// the numbers settle in some rounds.
    fn plan(&self, records: usize) -> (RecordPacking, u32) {
        let range_log2 = HASH_BITS - u32::from(self.partitions_log2);
        let mut pages = usize::from(records > 0);
        loop {
            let rest_bits = (bits::width_of((1 << range_log2) / pages.max(1) as u64) + 1)
                .min(range_log2)
                .max(1);
            let packing = RecordPacking {
                rest_bits,
                value_bits: self.value_bits,
            };
            let room = packing.records_a_page();
            if records <= room * pages.min(1) || records * 100 <= room * FILL_PERCENT * pages {
                return (packing, pages as u32);
            }
            pages = (records * 100).div_ceil(room * FILL_PERCENT).max(pages + 1);
        }
    }

    fn pack(
        &self,
        records: &[RunRecord],
        packing: RecordPacking,
        home_pages: u32,
        out: &mut Vec<u8>,
    ) {
        let room = packing.records_a_page();
        let mut start = 0;
        let mut page = 0;
        while start < records.len() || page < home_pages {
            let belongs = |record: &&RunRecord| {
                home_page(record.hash, self.partitions_log2, home_pages) <= page
            };
            let fits = |record: &&RunRecord| packing.reaches(records[start].hash, record.hash);
            let len = records[start..]
                .iter()
                .take(room)
                .take_while(belongs)
                .take_while(fits)
                .count();
            let overflow = records.get(start + len).as_ref().is_some_and(belongs);
            packing.write(
                &records[start..start + len],
                overflow,
                (self.mark, self.pages + page),
                out,
            );
            start += len;
            page += 1;
        }
    }
}
