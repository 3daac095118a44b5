//! The cost of one filter under one workload, at one scale, with one accounting.

use std::sync::Arc;

use onefold_index::Filter;
use onefold_io::{Dir, Disk, FlashDir, FlashModel, MemDir};
use onefold_papers::filters::{
    Accounting, BufferOptions, Buffering, Chain, Forest, ForestOptions, Full, PageShape,
    ReadCounts, SingleLayer, Traverse,
};
use onefold_papers::workload::{Workload, key_of};

type Error = Box<dyn std::error::Error>;

/// The false-positive rate of all filters (§3.4.4).
pub const RATE: f64 = 0.001;
/// Pages of a group of 1 MB.
const GROUP_PAGES: f64 = 256.0;
/// Number of keys that are inserted at once where no query comes in between.
const BATCH: usize = 512;

/// CPU times of operations.
#[derive(Clone, Copy)]
pub struct Cpu {
    /// CPU time of a query, in microseconds.
    pub query_us: f64,
    /// CPU time of each bit of a key that goes into a buffer of updates, in microseconds.
    pub bit_us: f64,
}

impl Cpu {
    /// A microsecond a key for any operation.
    pub const OURS: Cpu = Cpu {
        query_us: 1.0,
        bit_us: 0.0,
    };

    /// CPU times that tables 3.3 and 3.4 leave beside the device. Four speeds, in microseconds an operation, less 27 a
    /// page read (table 3.6: 880 s between its two rows for 32.7 M reads) and 70 ms a flush (256 pages of 25 and 200, 8
    /// blocks of 1500), are 46.6 a query and 76.9 an inserted key of ten bits. The program was in Python.
    pub const PRINTED: Cpu = Cpu {
        query_us: 46.6,
        bit_us: 7.69,
    };
}

/// The costs of a run, at full scale.
#[derive(Clone, Default)]
pub struct Cost {
    /// Number of keys that were asked for.
    pub keys: f64,
    /// Number of bits that went into the buffer.
    pub bits: f64,
    /// Number of pages read by queries and flushes.
    pub reads: f64,
    /// Number of page groups written.
    pub flushes: f64,
    /// Time of the device, in microseconds.
    pub device_us: f64,
    /// Queries of a forest by the number of pages that they read.
    pub asked: ReadCounts,
}

impl Cost {
    /// Queries a second.
    pub fn ops(&self, cpu: Cpu) -> f64 {
        let all = self.device_us + self.keys * cpu.query_us + self.bits * cpu.bit_us;
        self.keys * 1e6 / all
    }
}

/// The parameters of all runs: sizes and accounting.
#[derive(Clone, Copy)]
pub struct Lab {
    /// Share of the papers' sets, filters, buffers and page groups.
    pub scale: f64,
    /// Seed of the workloads.
    pub seed: u64,
    /// The accounting of updates.
    pub accounting: Accounting,
    /// The rule by which a layer or a filter of a chain is full.
    pub full: Full,
    /// CPU times of operations.
    pub cpu: Cpu,
}

impl Lab {
    fn bytes(&self, mib: f64) -> usize {
        (mib * 1048576.0 * self.scale) as usize
    }

    /// The number of pages in a group.
    pub fn group(&self) -> u32 {
        (GROUP_PAGES * self.scale).ceil() as u32
    }

    fn flash(&self) -> Result<(FlashDir, Arc<dyn Disk>), Error> {
        let bytes = (512.0 * 1048576.0 * self.scale) as u64 + (16 << 20);
        let dir = FlashDir::new(Arc::new(MemDir::new()), FlashModel::with_capacity(bytes));
        let disk = dir.create("filter")?;
        Ok((dir, disk))
    }

    /// A single layer of `pages` pages.
    fn layer(
        &self,
        disk: Arc<dyn Disk>,
        pages: u32,
        mib: f64,
        buffering: Buffering,
    ) -> Result<SingleLayer, Error> {
        let shape = PageShape::for_rate(RATE);
        let keys = (f64::from(pages) * self.scale) as u64 * u64::from(shape.keys);
        let buffer = BufferOptions {
            buffering,
            bytes: self.bytes(mib),
            accounting: self.accounting,
        };
        Ok(SingleLayer::new(disk, keys, shape, buffer, self.group())?)
    }

    /// Runs a single layer under a workload.
    pub fn single(
        &self,
        workload: Workload,
        pages: u32,
        mib: f64,
        buffering: Buffering,
    ) -> Result<Cost, Error> {
        let (flash, disk) = self.flash()?;
        let mut filter = self.layer(disk, pages, mib, buffering)?;
        self.drive(workload, &mut filter, (10, false), &flash)
    }

    /// Runs a forest under a workload.
    pub fn forest(&self, workload: Workload, options: ForestOptions) -> Result<Cost, Error> {
        let (flash, disk) = self.flash()?;
        let mut filter = Forest::new(disk, options)?;
        let cost = self.drive(workload, &mut filter, (options.grown.hashes, true), &flash)?;
        let asked = *filter.asked();
        Ok(Cost { asked, ..cost })
    }

    /// Options of a 4-branching forest with the best number of hashes.
    pub fn options(&self, mib: f64, traverse: Traverse) -> ForestOptions {
        ForestOptions {
            ram_bytes: self.bytes(mib),
            shape: PageShape::for_rate(RATE),
            grown: PageShape::for_rate(RATE),
            branching: 4,
            traverse,
            group_pages: self.group(),
            starts_in_flash: false,
            full: self.full,
            accounting: self.accounting,
        }
    }

    /// False positives, in percent of absent keys, once the workload's unique keys are inserted: for a chain of filters
    /// of `chain_pages`, a single layer of `pages`, a forest of `mib`, and one that stays in RAM; with the number of
    /// filters or layers of each.
    pub fn false_positives(
        &self,
        workload: Workload,
        (chain_pages, pages): (u32, u32),
        mib: f64,
    ) -> Result<[(u64, f64); 4], Error> {
        let unique = (workload.counts().1 as f64 * self.scale) as u64;
        let shape = PageShape::for_rate(RATE);
        let mut chain = Chain::new(
            self.flash()?.1,
            (f64::from(chain_pages) * self.scale) as u32,
            shape,
        )
        .closing_when(self.full);
        let of_chain = false_percent(&mut chain, unique)?;
        let mut single = self.layer(self.flash()?.1, pages, mib, Buffering::Pooled)?;
        let of_single = false_percent(&mut single, unique)?;
        let mut forest = Forest::new(self.flash()?.1, self.options(mib, Traverse::BottomUp))?;
        let of_forest = false_percent(&mut forest, unique)?;
        // as many pages as the keys need, and room for the fullest page beyond the mean
        let mib = unique as f64 / self.scale / f64::from(shape.keys) * 1.1 * 4096.0 / 1048576.0;
        let mut one = Forest::new(self.flash()?.1, self.options(mib, Traverse::BottomUp))?;
        let of_one = false_percent(&mut one, unique)?;
        Ok([
            (chain.filters(), of_chain),
            (1, of_single),
            (forest.height() as u64, of_forest),
            (one.height() as u64, of_one),
        ])
    }

    /// Asks for each key, one after the other as in the papers, and inserts it if it is surely new. `hashes` are those
    /// of a buffered key; with `begins_in_ram` nothing is buffered until something was written.
    fn drive(
        &self,
        workload: Workload,
        filter: &mut dyn Filter,
        (hashes, begins_in_ram): (u32, bool),
        flash: &FlashDir,
    ) -> Result<Cost, Error> {
        let (mut asked, mut buffered) = (0u64, 0u64);
        for number in workload.numbers(self.scale, self.seed) {
            let (key, mut present) = ([key_of(number)], [false]);
            filter.may_contain(&key, &mut present)?;
            if !present[0] {
                filter.insert(&key)?;
                buffered += u64::from(!begins_in_ram || flash.counts().page_writes > 0);
            }
            asked += 1;
        }
        let counts = flash.counts();
        let whole = |part: f64| part / self.scale;
        Ok(Cost {
            keys: whole(asked as f64),
            bits: whole(buffered as f64 * f64::from(hashes)),
            reads: whole(counts.page_reads as f64),
            flushes: counts.page_writes as f64 / f64::from(self.group()),
            device_us: whole(counts.modelled_us),
            asked: ReadCounts::default(),
        })
    }
}

/// The percentage of 200,000 keys that were never inserted for which the filter says "maybe", beside `unique` inserted
/// keys.
fn false_percent(filter: &mut dyn Filter, unique: u64) -> Result<f64, Error> {
    for first in (0..unique).step_by(BATCH) {
        let keys: Vec<_> = (first..unique.min(first + BATCH as u64))
            .map(key_of)
            .collect();
        filter.insert(&keys)?;
    }
    let mut wrong = 0;
    for first in (0..200_000u64).step_by(BATCH) {
        let keys: Vec<_> = (first..first + BATCH as u64)
            .map(|i| key_of(i | 1 << 40))
            .collect();
        let mut present = vec![false; keys.len()];
        filter.may_contain(&keys, &mut present)?;
        wrong += present.iter().filter(|is| **is).count();
    }
    Ok(wrong as f64 / 2000.0)
}
