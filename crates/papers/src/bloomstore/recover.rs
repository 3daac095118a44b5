//! Opening a store: reads the shape and the whole chains, makes filters for pages that no chain covers, and applies the
//! journal to the write buffers.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_io::frame::FrameKind;

use super::chain::{POINTER_BYTES, Shape};
use super::units::{RecoveredUnit, Units};
use super::{BloomPartition, BloomStore, BloomStoreOptions};
use crate::filters::BlockedBloom;
use crate::flashlog::{FlashLog, RECORDS, RecordPage, read_or_write_shape};
use onefold_index::{Error, Filter, IndexStats, Result};

const SHAPE: &str = "bloom-shape";
const SHAPE_FRAME: FrameKind = FrameKind {
    magic: *b"OFBLOOMS",
    version: 2,
};
const PARTITIONS_MAX: u32 = 1 << 24;

pub(super) fn open(dir: Arc<dyn Dir>, options: BloomStoreOptions) -> Result<BloomStore> {
    let log = FlashLog::open(Arc::clone(&dir), "bloom")?;
    let (count, shape) = shape_of(&*dir, &options)?;
    let (units, found) = Units::open(&*dir, shape, log.range().end)?;
    dir.sync()?;
    let prefilter = match options.prefilter_bytes {
        0 => None,
        bytes => Some(BlockedBloom::with_bytes(bytes, options.keys_expected)?),
    };
    let [garbage, containers] = log.notes;
    let mut store = BloomStore {
        partitions: (0..count).map(|_| empty_partition(&shape)).collect(),
        log,
        units,
        shape,
        options,
        held_bytes: 0,
        prefilter,
        garbage,
        last_container: None,
        containers,
        entries: 0,
        is_dirty: false,
        stats: IndexStats::default(),
    };
    for (partition, found) in found {
        if partition < count {
            store.adopt(partition as usize, found);
        }
    }
    store.scan()?;
    Ok(store)
}

fn empty_partition(shape: &Shape) -> BloomPartition {
    BloomPartition {
        buffer: RecordPage::new(),
        active: vec![0; shape.filter_bytes as usize].into_boxed_slice(),
        held: Vec::new(),
        units: Vec::new(),
        filters: 0,
        ordinals: 0,
        since: (0, 0),
    }
}

impl BloomStore {
    /// Takes the units that cover all pages from the first on without a gap; units behind a gap are given up.
    fn adopt(&mut self, number: usize, found: Vec<RecoveredUnit>) {
        let head = self.log.range().start;
        let partition = &mut self.partitions[number];
        for unit in found {
            let follows = unit.head.since <= partition.since.1.max(head)
                && partition.filters.is_multiple_of(self.shape.chain_max)
                && (partition.units.is_empty() || unit.head.ordinal == partition.ordinals);
            if !follows {
                self.units.release(unit.place);
                continue;
            }
            partition.units.push(unit.place);
            partition.ordinals = unit.head.ordinal + 1;
            partition.filters = unit.head.filters;
            partition.since = (unit.head.since, unit.last + 1);
        }
        partition.units.shrink_to_fit();
    }

    /// Reads pages: all where a pre-filter must be filled, otherwise those from the first on for which some partition
    /// has no filter, and the last page of each partition; then applies the journal.
    fn scan(&mut self) -> Result<()> {
        let range = self.log.range();
        let mut until = vec![0u64; self.partitions.len()];
        let mut first = range.end;
        for (partition, until) in self.partitions.iter().zip(&mut until) {
            let behind = partition.since.1;
            first = first.min(behind.max(range.start));
            if behind > range.start {
                *until = newest(&self.log.read(behind - 1)?);
            }
        }
        if self.prefilter.is_some() {
            first = range.start;
        }
        self.entries = u64::from(range.end - range.start) * RECORDS as u64;
        for page_no in first..range.end {
            let page = self.log.read(page_no)?;
            let number = page.head().owner as usize;
            let keys: Vec<_> = page.records().map(|record| record.key).collect();
            if let Some(prefilter) = &mut self.prefilter {
                prefilter.insert(&keys)?;
            }
            let Some(partition) = self.partitions.get_mut(number) else {
                let what = format!("a page of partition {number}");
                return Err(Error::damaged("bloom-log", u64::from(page_no) * 4096, what));
            };
            if page_no < partition.since.1 {
                continue;
            }
            until[number] = newest(&page);
            let mut filter = vec![0; self.shape.filter_bytes as usize];
            filter[..POINTER_BYTES].copy_from_slice(&page_no.to_le_bytes());
            keys.iter().for_each(|key| self.shape.set(&mut filter, key));
            partition.held.reserve_exact(filter.len());
            partition.held.extend_from_slice(&filter);
            self.held_bytes += filter.len();
            if self.held_bytes > self.options.pool_bytes {
                self.flush_chain(number)?;
            }
        }
        for page in 0..self.log.journal_pages() {
            for record in self.log.journaled(page)? {
                if record.seq > until[self.partition_of(&record.key)] {
                    if let Some(prefilter) = &mut self.prefilter {
                        prefilter.insert(&[record.key])?;
                    }
                    self.put_record(record)?;
                }
            }
        }
        Ok(())
    }
}

fn newest(page: &RecordPage) -> u64 {
    page.records().map(|record| record.seq).max().unwrap_or(0)
}

/// Partitions that every store may have, a write buffer of 4 KiB each. An existing store may have eight times the
/// partitions of a store by `options`, or eight times this number. A store that claims more, because of far more RAM or
/// damage, must be made anew.
const LEAST_PARTITIONS: u32 = 256;

/// The number of partitions and the shape of the existing store, or those that `options` ask for.
fn shape_of(dir: &dyn Dir, options: &BloomStoreOptions) -> Result<(u32, Shape)> {
    let too_large = || Error::Budget {
        budget_bytes: 4096,
        what: format!(
            "a slice of {} filters of {} bytes",
            options.chain_max, options.filter_bytes
        ),
    };
    let fields = read_or_write_shape(dir, SHAPE, SHAPE_FRAME, || {
        let (max, bytes) = (options.chain_max, options.filter_bytes);
        let shape = Shape::new(max, bytes, RECORDS as u32, options.sub_partitions, None)
            .ok_or_else(too_large)?;
        Ok([options.partitions(), max, bytes, shape.slices, shape.hashes])
    })?;
    let [partitions, chain_max, filter_bytes, slices, hashes] = fields;
    let is_sane = (1..=PARTITIONS_MAX).contains(&partitions)
        && partitions <= options.partitions().max(LEAST_PARTITIONS).saturating_mul(8)
        && (1..4096).contains(&chain_max)
        && (5..=4096).contains(&filter_bytes)
        && (1..=64).contains(&hashes)
        // a unit is written from RAM, a page for each slice
        && slices <= options.sub_partitions.max(1024);
    let shape = || {
        Shape::new(
            chain_max,
            filter_bytes,
            RECORDS as u32,
            slices,
            Some(hashes),
        )
    };
    match is_sane.then(shape).flatten() {
        Some(shape) => Ok((partitions, shape)),
        None => {
            let what = format!(
                "a shape of {fields:?}: it is damaged, or was made with more than eight times the RAM"
            );
            Err(Error::damaged(SHAPE, 0, what))
        }
    }
}
