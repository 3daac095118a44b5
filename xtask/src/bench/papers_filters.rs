//! `cargo xtask bench papers --filters`: the filters on flash of the dissertation's chapter 3 beside its tables, as ratios.
//!
//! Tables 3.1 and 3.3 to 3.7 and figure 3.8. Sets, filters, buffers and page groups are all scaled by the same part, so that what fills when stays as in the papers. Times are modelled, as in
//! [`super::papers`]; a flush is the writing of a page group.

use std::collections::HashSet;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::Filter;
use onefold_index::filters::{
    Buffering, Chain, Forest, ForestOptions, PageShape, SingleLayer, Traverse,
};
use onefold_index::workload::{Workload, key_of};
use onefold_io::{Dir, FlashCounts, FlashDir, FlashModel, MemDir};

use super::report::Table;

type Error = Box<dyn std::error::Error>;

/// The false-positive rate of all of them (§3.4.4).
const RATE: f64 = 0.001;
/// Pages of a group of 1 MB.
const GROUP_PAGES: f64 = 256.0;
const CPU_US: f64 = 1.0;
/// The paper's 4 MB, and what keeps the forest at its two layers: here a layer is added when its fullest page is full.
const TABLE_3_7_MIB: f64 = 4.6;
/// 4.34 times as many pages as four a page, and the same allowance.
const TABLE_3_7_BRANCHING: u32 = 20;
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
    lab.table_3_1(&mut row)?;
    lab.table_3_5(&mut row)?;
    lab.table_3_7(&mut row)?;
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
        let bytes = (512.0 * 1048576.0 * self.scale) as u64 + (16 << 20);
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
        let mut filter = Forest::new(flash.create("filter")?, self.options(mib, traverse))?;
        self.drive(workload, &mut filter, &flash)
    }

    /// A 4-branching forest, of the best number of hashes.
    fn options(&self, mib: f64, traverse: Traverse) -> ForestOptions {
        ForestOptions {
            ram_bytes: self.bytes(mib),
            shape: PageShape::for_rate(RATE),
            grown: PageShape::for_rate(RATE),
            branching: 4,
            traverse,
            group_pages: self.group(),
            starts_in_flash: false,
        }
    }

    /// False positives, in percent of absent keys: a chain with 1 MB in RAM, one layer, and forests of two layers and one.
    fn table_3_1(&self, row: &mut dyn FnMut(&str, &str, &str, f64)) -> Result<(), Error> {
        let papers = [
            (
                "Linux",
                Workload::Fbf,
                2304,
                2.0,
                ["1.04", "0.07", "0.3", "0.07"],
            ),
            (
                "vx-20m",
                Workload::Vx20m,
                5632,
                4.0,
                ["1.82", "0.06", "0.3", "0.06"],
            ),
        ];
        for (set, workload, pages, mib, paper) in papers {
            let name = format!("table 3.1: false positives, {set}");
            let shape = PageShape::for_rate(RATE);
            let flash = self.flash();
            let mut chain = Chain::new(flash.create("chain")?, self.group(), shape);
            self.drive(workload, &mut chain, &flash)?;
            row(
                &name,
                "% linear-chaining",
                paper[0],
                false_percent(&mut chain)?,
            );
            let flash = self.flash();
            let keys = (f64::from(pages) * self.scale) as u64 * u64::from(shape.keys);
            let disk = flash.create("single")?;
            let mut single = SingleLayer::new(
                disk,
                keys,
                shape,
                Buffering::Pooled,
                self.bytes(mib),
                self.group(),
            )?;
            self.drive(workload, &mut single, &flash)?;
            row(
                &name,
                "% single-layer",
                paper[1],
                false_percent(&mut single)?,
            );
            let flash = self.flash();
            let options = self.options(mib, Traverse::BottomUp);
            let mut forest = Forest::new(flash.create("forest")?, options)?;
            self.drive(workload, &mut forest, &flash)?;
            let what = format!("% forest of {} layers", forest.height());
            row(&name, &what, paper[2], false_percent(&mut forest)?);
            let flash = self.flash();
            let options = ForestOptions {
                ram_bytes: self.bytes(f64::from(pages) * 1.15 * 4096.0 / 1048576.0),
                ..options
            };
            let mut one = Forest::new(flash.create("one")?, options)?;
            self.drive(workload, &mut one, &flash)?;
            let what = format!("% forest of {} layer", one.height());
            row(&name, &what, paper[3], false_percent(&mut one)?);
        }
        Ok(())
    }

    /// How many pages queries read, in percent of all queries: of keys that may be there and of others.
    fn table_3_5(&self, row: &mut dyn FnMut(&str, &str, &str, f64)) -> Result<(), Error> {
        let paper = [
            (
                Traverse::BottomUp,
                "bottom-up",
                [6.9, 14.0, 71.0],
                [4.1, 0.0, 4.0],
            ),
            (
                Traverse::TopDown,
                "top-down",
                [6.9, 71.0, 4.0],
                [4.1, 0.0, 14.0],
            ),
        ];
        for (traverse, order, present, absent) in paper {
            let flash = self.flash();
            let mut forest = Forest::new(flash.create("forest")?, self.options(4.0, traverse))?;
            self.drive(Workload::Fbf, &mut forest, &flash)?;
            let asked = forest.asked();
            let all: u64 = asked.present.iter().chain(&asked.absent).sum();
            let name = format!("table 3.5: queries by pages read, Linux, {order}");
            for (what, paper, here) in [
                ("present", present, asked.present),
                ("absent", absent, asked.absent),
            ] {
                for reads in 0..3 {
                    let share = here[reads] as f64 * 100.0 / all as f64;
                    row(
                        &name,
                        &format!("% {what}, {reads} read"),
                        &format!("{:.1}", paper[reads]),
                        share,
                    );
                }
            }
        }
        Ok(())
    }

    /// Two hashes in the layer that grows, in more pages for the same rate, against ten.
    fn table_3_7(&self, row: &mut dyn FnMut(&str, &str, &str, f64)) -> Result<(), Error> {
        let name = "table 3.7: 2 hashes / 10, vx-20m";
        let run = |hashes: u32, branching: u32| -> Result<(Cost, f64), Error> {
            let flash = self.flash();
            let options = ForestOptions {
                grown: PageShape::with_hashes(RATE, hashes),
                branching,
                // as many filters a group: the paper's are larger, ours more
                group_pages: self.group() * branching / 4,
                ..self.options(TABLE_3_7_MIB, Traverse::BottomUp)
            };
            let mut forest = Forest::new(flash.create("forest")?, options)?;
            let mut cost = self.drive(Workload::Vx20m, &mut forest, &flash)?;
            cost.flushes *= 4.0 / f64::from(branching);
            let asked = forest.asked();
            let sum = |of: &[u64]| (0..).zip(of).map(|(reads, keys)| reads * keys).sum::<u64>();
            let reads = sum(&asked.present) + sum(&asked.absent);
            let keys: u64 = asked.present.iter().chain(&asked.absent).sum();
            Ok((cost, reads as f64 / keys as f64))
        };
        let (ten, ten_reads) = run(10, 4)?;
        let (two, two_reads) = run(2, TABLE_3_7_BRANCHING)?;
        row(name, "pages a query", "0.82", two_reads / ten_reads);
        row(name, "flushes", "0.21", two.flushes / ten.flushes);
        row(name, "ops/s", "1.25", two.ops / ten.ops);
        Ok(())
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

/// How many of 100,000 keys that were never inserted may be there, in percent.
fn false_percent(filter: &mut dyn Filter) -> Result<f64, Error> {
    let keys: Vec<Fingerprint> = (1u64 << 40..(1 << 40) + 100_000).map(key_of).collect();
    let mut present = vec![false; keys.len()];
    filter.may_contain(&keys, &mut present)?;
    Ok(present.iter().filter(|is| **is).count() as f64 / 1000.0)
}
