//! `cargo xtask bench papers --filters`: the filters on flash of the dissertation's chapter 3 beside its tables, as ratios.
//!
//! Sets, filters, buffers and page groups are all scaled by the same part, so that what fills when stays as in the papers. Times are modelled, as in
//! [`super::papers`]; a flush is the writing of a page group.

use std::collections::HashSet;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::Filter;
use onefold_index::filters::{Buffering, Forest, ForestOptions, PageShape, SingleLayer, Traverse};
use onefold_index::workload::{Workload, key_of};
use onefold_io::{Dir, FlashCounts, FlashDir, FlashModel, MemDir};

use super::report::Table;

type Error = Box<dyn std::error::Error>;

/// The false-positive rate of all of them (§3.4.4).
const RATE: f64 = 0.001;
/// Pages of a group of 1 MB.
const GROUP_PAGES: f64 = 256.0;
const CPU_US: f64 = 1.0;
const SEGMENT: usize = 512;

/// What a run cost.
struct Cost {
    ops: f64,
    reads: f64,
    flushes: f64,
}

/// Runs all comparisons at `scale` and prints "paper | here".
pub fn run(scale: f64, seed: u64) -> Result<(), Error> {
    let lab = Lab { scale, seed };
    let mut table = Table {
        head: vec!["comparison", "what", "paper", "here"],
        words: 2,
        rows: Vec::new(),
    };
    let mut row = |name: &str, what: &str, paper: &str, here: f64| {
        let cells = [name, what, paper].map(str::to_string);
        table
            .rows
            .push([&cells[..], &[format!("{here:.2}")]].concat());
    };
    for (name, workload, pages, mib, ops, flushes) in [
        (
            "table 3.3: pooled / compartments, vx-20m",
            Workload::Vx20m,
            5632,
            4.0,
            "1.03",
            "0.52",
        ),
        (
            "table 3.4: pooled / compartments, Linux",
            Workload::Fbf,
            4096,
            1.0,
            "1.01",
            "0.27",
        ),
    ] {
        let equal = lab.single(workload, pages, mib, Buffering::Compartments)?;
        let pooled = lab.single(workload, pages, mib, Buffering::Pooled)?;
        row(name, "ops/s", ops, pooled.ops / equal.ops);
        row(name, "flushes", flushes, pooled.flushes / equal.flushes);
    }
    for mib in [1.0, 2.0, 4.0, 8.0, 16.0] {
        let name = format!("fig 3.8: vx-9m, {mib} MiB: forest / compartments");
        let equal = lab.single(Workload::Vx, 5120, mib, Buffering::Compartments)?;
        let pooled = lab.single(Workload::Vx, 5120, mib, Buffering::Pooled)?;
        let forest = lab.forest(Workload::Vx, mib, Traverse::BottomUp)?;
        row(&name, "ops/s", "up to 2", forest.ops / equal.ops);
        row(&name, "flushes", "0.5", forest.flushes / equal.flushes);
        row(
            &name,
            "ops/s of pooled",
            "up to 1.11",
            pooled.ops / equal.ops,
        );
        row(
            &name,
            "flushes of pooled",
            "0.5",
            pooled.flushes / equal.flushes,
        );
    }
    let top = lab.forest(Workload::Fbf, 4.0, Traverse::TopDown)?;
    let bottom = lab.forest(Workload::Fbf, 4.0, Traverse::BottomUp)?;
    let name = "table 3.6: top-down / bottom-up, Linux";
    row(name, "reads", "0.65", top.reads / bottom.reads);
    row(name, "ops/s", "1.15", top.ops / bottom.ops);
    println!("\nfilters on flash, × {scale}, seed {seed}, f = {RATE}");
    print!("{}", table.text());
    Ok(())
}

struct Lab {
    scale: f64,
    seed: u64,
}

impl Lab {
    fn bytes(&self, mib: f64) -> usize {
        (mib * 1048576.0 * self.scale) as usize
    }

    fn group(&self) -> u32 {
        (GROUP_PAGES * self.scale).ceil() as u32
    }

    fn flash(&self) -> FlashDir {
        let bytes = (256.0 * 1048576.0 * self.scale) as u64 + (16 << 20);
        FlashDir::new(Arc::new(MemDir::new()), FlashModel::with_capacity(bytes))
    }

    fn single(
        &self,
        workload: Workload,
        pages: u32,
        mib: f64,
        buffering: Buffering,
    ) -> Result<Cost, Error> {
        let (flash, shape) = (self.flash(), PageShape::for_rate(RATE));
        let keys = (f64::from(pages) * self.scale) as u64 * u64::from(shape.keys);
        let mut filter = SingleLayer::new(
            flash.create("filter")?,
            keys,
            shape,
            buffering,
            self.bytes(mib),
            self.group(),
        )?;
        self.drive(workload, &mut filter, &flash)
    }

    fn forest(&self, workload: Workload, mib: f64, traverse: Traverse) -> Result<Cost, Error> {
        let flash = self.flash();
        let options = ForestOptions {
            ram_bytes: self.bytes(mib),
            shape: PageShape::for_rate(RATE),
            branching: 4,
            traverse,
            group_pages: self.group(),
            starts_in_flash: false,
        };
        let mut filter = Forest::new(flash.create("filter")?, options)?;
        self.drive(workload, &mut filter, &flash)
    }

    /// Asks for each key and inserts those that are surely new.
    fn drive(
        &self,
        workload: Workload,
        filter: &mut dyn Filter,
        flash: &FlashDir,
    ) -> Result<Cost, Error> {
        let mut numbers = workload.numbers(self.scale, self.seed);
        let mut asked = 0;
        loop {
            let keys: Vec<Fingerprint> = numbers.by_ref().take(SEGMENT).map(key_of).collect();
            if keys.is_empty() {
                break;
            }
            let mut present = vec![false; keys.len()];
            filter.may_contain(&keys, &mut present)?;
            let mut seen = HashSet::new();
            let new: Vec<Fingerprint> = keys
                .iter()
                .zip(present)
                .filter(|(key, present)| !present && seen.insert(**key))
                .map(|(key, _)| *key)
                .collect();
            filter.insert(&new)?;
            asked += keys.len();
        }
        let FlashCounts {
            page_reads,
            page_writes,
            modelled_us,
            ..
        } = flash.counts();
        Ok(Cost {
            ops: asked as f64 * 1e6 / (modelled_us + asked as f64 * CPU_US),
            reads: page_reads as f64,
            flushes: page_writes as f64 / f64::from(self.group()),
        })
    }
}
