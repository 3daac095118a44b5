//! `cargo xtask bench papers --filters`: the filters on flash of the dissertation's chapter 3 beside its tables.
//!
//! Tables 3.1 and 3.3 to 3.7 and figure 3.8, twice: as this code works and counts, and as, by the printed figures, the
//! papers' code did ([`Accounting::PRINTED`], [`Full::MeanPage`], [`Cpu::PRINTED`]). Sets, filters, buffers and page
//! groups are all scaled by the same factor, so that all fill at the same points as in the papers; counts are printed
//! as at full scale. Times are modelled, as in [`super::papers`]; a flush is the writing of a page group.

mod lab;

use onefold_papers::filters::{Accounting, Buffering, ForestOptions, Full, PageShape, Traverse};
use onefold_papers::workload::Workload;

use self::lab::{Cost, Cpu, Lab, RATE};
use super::report::Table;

type Error = Box<dyn std::error::Error>;

/// Number of children of a page with two hashes in place of ten: 4.34 times as many pages as four (table 3.7).
const TABLE_3_7_BRANCHING: u32 = 17;

/// A cell of a table: its table and name, the printed figure, and ours.
struct Cell {
    table: String,
    what: String,
    paper: f64,
    here: f64,
}

/// All cells of one lab.
#[derive(Default)]
struct Cells(Vec<Cell>);

impl Cells {
    fn put(&mut self, table: &str, what: &str, paper: f64, here: f64) {
        self.0.push(Cell {
            table: table.to_string(),
            what: what.to_string(),
            paper,
            here,
        });
    }
}

/// Runs all comparisons at `scale` whose name contains `only` and prints "paper | here | as printed".
pub fn run(scale: f64, seed: u64, only: &str) -> Result<(), Error> {
    let ours = Lab {
        scale,
        seed,
        accounting: Accounting::OURS,
        full: Full::FullestPage,
        cpu: Cpu::OURS,
    };
    let printed = Lab {
        accounting: Accounting::PRINTED,
        full: Full::MeanPage,
        cpu: Cpu::PRINTED,
        ..ours
    };
    let (here, as_printed) = std::thread::scope(|scope| {
        let ours = scope.spawn(|| cells(&ours, only).map_err(|error| error.to_string()));
        let printed = cells(&printed, only).map_err(|error| error.to_string());
        (ours.join().expect("a lab does not panic"), printed)
    });
    let rows = here?
        .0
        .into_iter()
        .zip(as_printed?.0)
        .map(|(ours, printed)| {
            let ratio = |here: f64| match ours.paper {
                0.0 => "–".to_string(),
                paper => format!("{:.2}", here / paper),
            };
            vec![
                ours.table,
                ours.what,
                figure(ours.paper),
                figure(ours.here),
                ratio(ours.here),
                figure(printed.here),
                ratio(printed.here),
            ]
        });
    let table = Table {
        head: vec![
            "table",
            "what",
            "paper",
            "here",
            "/ paper",
            "as printed",
            "/ paper",
        ],
        words: 2,
        rows: rows.collect(),
    };
    println!("\nfilters on flash, × {scale}, seed {seed}, f = {RATE}");
    print!("{}", table.text());
    Ok(())
}

fn figure(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn cells(lab: &Lab, only: &str) -> Result<Cells, Error> {
    let mut cells = Cells::default();
    type Compare = fn(&Lab, &mut Cells) -> Result<(), Error>;
    let all: [(&str, Compare); 6] = [
        ("3.1", table_3_1),
        ("3.3", table_3_3),
        ("3.4", table_3_4),
        ("3.6", tables_3_5_and_3_6),
        ("3.7", table_3_7),
        ("3.8", figure_3_8),
    ];
    for (name, compare) in all {
        if name.contains(only) {
            compare(lab, &mut cells)?;
        }
    }
    Ok(cells)
}

/// Table 3.1. The sizes of filters and layers are not printed; they follow from the rates of chains and single layers.
fn table_3_1(lab: &Lab, cells: &mut Cells) -> Result<(), Error> {
    for (set, workload, pages, paper) in [
        ("Linux", Workload::Fbf, (197, 2148), [1.04, 0.07, 0.3, 0.07]),
        (
            "vx-20m",
            Workload::Vx20m,
            (256, 5400),
            [1.82, 0.06, 0.3, 0.06],
        ),
    ] {
        let rates = lab.false_positives(workload, pages, 4.0)?;
        let names = ["chain", "single layer", "forest, 4 MB", "forest in RAM"];
        for ((name, paper), (count, rate)) in names.into_iter().zip(paper).zip(rates) {
            let table = format!("3.1 {set}");
            cells.put(&table, &format!("% false, {name}"), paper, rate);
            cells.put(
                &table,
                &format!("filters or layers, {name}"),
                0.0,
                count as f64,
            );
        }
    }
    Ok(())
}

/// Compartments and the pooled buffer: flushes of both, and ratios.
fn buffers(
    lab: &Lab,
    cells: &mut Cells,
    name: &str,
    [equal, pooled]: [&Cost; 2],
    paper: [[f64; 2]; 2],
) {
    let [[equal_flushes, pooled_flushes], [equal_ops, pooled_ops]] = paper;
    cells.put(name, "flushes, compartments", equal_flushes, equal.flushes);
    cells.put(name, "flushes, pooled", pooled_flushes, pooled.flushes);
    cells.put(
        name,
        "flushes, pooled ÷ compartments",
        pooled_flushes / equal_flushes,
        pooled.flushes / equal.flushes,
    );
    cells.put(name, "ops/s, compartments", equal_ops, equal.ops(lab.cpu));
    cells.put(name, "ops/s, pooled", pooled_ops, pooled.ops(lab.cpu));
    cells.put(
        name,
        "ops/s, pooled ÷ compartments",
        pooled_ops / equal_ops,
        pooled.ops(lab.cpu) / equal.ops(lab.cpu),
    );
}

fn table_3_3(lab: &Lab, cells: &mut Cells) -> Result<(), Error> {
    let run = |buffering| lab.single(Workload::Vx20m, 5632, 4.0, buffering);
    let (equal, pooled) = (run(Buffering::Compartments)?, run(Buffering::Pooled)?);
    let paper = [[2024.0, 1053.0], [8405.0, 8657.0]];
    buffers(lab, cells, "3.3 vx-20m, 4 MiB", [&equal, &pooled], paper);
    cells.put(
        "3.3 vx-20m, 4 MiB",
        "million reads, compartments",
        16.373,
        query_reads(lab, &equal),
    );
    cells.put(
        "3.3 vx-20m, 4 MiB",
        "million reads, pooled",
        15.815,
        query_reads(lab, &pooled),
    );
    Ok(())
}

/// Table 3.4, whose caption says 1 MB. Its flushes times their size leave 2.02 M of 46.5 M updates in the pooled
/// buffer, which are 4 MB, and 0.32 M in compartments, which is half of the content of 2 MB: so all three are run.
fn table_3_4(lab: &Lab, cells: &mut Cells) -> Result<(), Error> {
    let paper = [[1145.0, 312.0], [12_354.0, 12_510.0]];
    let run = |mib, buffering| lab.single(Workload::Fbf, 4096, mib, buffering);
    let one = [
        run(1.0, Buffering::Compartments)?,
        run(1.0, Buffering::Pooled)?,
    ];
    buffers(lab, cells, "3.4 Linux, 1 MiB", [&one[0], &one[1]], paper);
    let other = [
        run(2.0, Buffering::Compartments)?,
        run(4.0, Buffering::Pooled)?,
    ];
    buffers(
        lab,
        cells,
        "3.4 Linux, 2 and 4 MiB",
        [&other[0], &other[1]],
        paper,
    );
    Ok(())
}

/// Pages that queries read, without those of flushes, in millions.
fn query_reads(lab: &Lab, cost: &Cost) -> f64 {
    (cost.reads - cost.flushes * f64::from(lab.group()) / lab.scale) / 1e6
}

fn tables_3_5_and_3_6(lab: &Lab, cells: &mut Cells) -> Result<(), Error> {
    let run = |traverse| lab.forest(Workload::Fbf, lab.options(4.0, traverse));
    let (bottom, top) = (run(Traverse::BottomUp)?, run(Traverse::TopDown)?);
    // the columns of top-down's last row are exchanged in print: both orders find the same keys
    for (order, cost, present, absent) in [
        (
            "bottom-up",
            &bottom,
            [3.977, 8.049, 40.748],
            [2.337, 0.0, 2.305],
        ),
        (
            "top-down",
            &top,
            [3.977, 40.748, 8.048],
            [2.337, 0.0, 2.3048],
        ),
    ] {
        for (what, paper, here) in [
            ("present", present, cost.asked.present),
            ("absent", absent, cost.asked.absent),
        ] {
            for reads in 0..3 {
                cells.put(
                    &format!("3.5 Linux, {order}"),
                    &format!("million {what}, {reads} read"),
                    paper[reads],
                    here[reads] as f64 / lab.scale / 1e6,
                );
            }
        }
    }
    let (top_reads, bottom_reads) = (query_reads(lab, &top), query_reads(lab, &bottom));
    let name = "3.6 Linux";
    cells.put(name, "million reads, bottom-up", 94.153, bottom_reads);
    cells.put(name, "million reads, top-down", 61.454, top_reads);
    cells.put(
        name,
        "reads, top-down ÷ bottom-up",
        0.653,
        top_reads / bottom_reads,
    );
    let (top, bottom) = (top.ops(lab.cpu), bottom.ops(lab.cpu));
    cells.put(name, "ops/s, bottom-up", 8385.0, bottom);
    cells.put(name, "ops/s, top-down", 9621.0, top);
    cells.put(name, "ops/s, top-down ÷ bottom-up", 1.147, top / bottom);
    Ok(())
}

/// Two hashes in the layer that grows, in more pages for the same rate, against ten.
fn table_3_7(lab: &Lab, cells: &mut Cells) -> Result<(), Error> {
    // where the fullest page counts, 4 MB make three layers of it
    let mib = match lab.full {
        Full::FullestPage => 4.6,
        Full::MeanPage => 4.0,
    };
    let run = |hashes: u32, branching: u32| -> Result<(Cost, f64, f64), Error> {
        let options = ForestOptions {
            grown: PageShape::with_hashes(RATE, hashes),
            branching,
            // as many filters a group: the paper's are larger, ours more
            group_pages: lab.group() * branching / 4,
            ..lab.options(mib, Traverse::BottomUp)
        };
        let mut cost = lab.forest(Workload::Vx20m, options)?;
        cost.flushes *= 4.0 / f64::from(branching);
        let asked = &cost.asked;
        let sum = |of: &[u64]| (0..).zip(of).map(|(reads, keys)| reads * keys).sum::<u64>();
        let reads = (sum(&asked.present) + sum(&asked.absent)) as f64;
        let hits = asked.present[0] as f64 / lab.scale / 1e6;
        let reads = reads / lab.scale / cost.keys;
        Ok((cost, reads, hits))
    };
    let (ten, two) = (run(10, 4)?, run(2, TABLE_3_7_BRANCHING)?);
    against_compartments(lab, cells, &ten.0)?;
    let name = "3.7 vx-20m";
    let paper = [[604.0, 127.0], [1.152, 0.945], [7828.0, 9755.0]];
    cells.put(name, "flushes, 10 hashes", paper[0][0], ten.0.flushes);
    cells.put(name, "flushes, 2 hashes", paper[0][1], two.0.flushes);
    cells.put(
        name,
        "flushes, 2 ÷ 10",
        paper[0][1] / paper[0][0],
        two.0.flushes / ten.0.flushes,
    );
    cells.put(name, "pages a query, 10", paper[1][0], ten.1);
    cells.put(name, "pages a query, 2", paper[1][1], two.1);
    cells.put(
        name,
        "pages a query, 2 ÷ 10",
        paper[1][1] / paper[1][0],
        two.1 / ten.1,
    );
    cells.put(name, "million hits without a read, 10", 3.226, ten.2);
    cells.put(name, "million hits without a read, 2", 4.529, two.2);
    let (ten, two) = (ten.0.ops(lab.cpu), two.0.ops(lab.cpu));
    cells.put(name, "ops/s, 10", paper[2][0], ten);
    cells.put(name, "ops/s, 2", paper[2][1], two);
    cells.put(name, "ops/s, 2 ÷ 10", paper[2][1] / paper[2][0], two / ten);
    Ok(())
}

/// The forest of table 3.7 against the compartments of table 3.3, both with 4 MB under vx-20m: the meaning of "50 %
/// fewer flash writes" where counts are printed.
fn against_compartments(lab: &Lab, cells: &mut Cells, forest: &Cost) -> Result<(), Error> {
    let equal = lab.single(Workload::Vx20m, 5632, 4.0, Buffering::Compartments)?;
    let name = "3.7 ÷ 3.3 vx-20m";
    for (what, paper, here) in [
        (
            "flushes, forest ÷ compartments",
            604.0 / 2024.0,
            forest.flushes / equal.flushes,
        ),
        (
            "ops/s, forest ÷ compartments",
            7828.0 / 8405.0,
            forest.ops(lab.cpu) / equal.ops(lab.cpu),
        ),
    ] {
        cells.put(name, what, paper, here);
    }
    Ok(())
}

/// Forest, pooled and compartments by buffer size. The paper prints "up to 2 times faster", "uniformly 50 % fewer
/// writes", and of the pooled buffer "up to 11 %".
fn figure_3_8(lab: &Lab, cells: &mut Cells) -> Result<(), Error> {
    for mib in [1.0, 2.0, 4.0, 8.0, 16.0] {
        let run = |buffering| lab.single(Workload::Vx9m, 5120, mib, buffering);
        let (equal, pooled) = (run(Buffering::Compartments)?, run(Buffering::Pooled)?);
        let forest = lab.forest(Workload::Vx9m, lab.options(mib, Traverse::BottomUp))?;
        let name = format!("3.8 vx-9m, {mib} MiB");
        cells.put(&name, "flushes, compartments", 0.0, equal.flushes);
        cells.put(
            &name,
            "flushes, pooled ÷ compartments",
            0.5,
            pooled.flushes / equal.flushes,
        );
        cells.put(
            &name,
            "flushes, forest ÷ compartments",
            0.5,
            forest.flushes / equal.flushes,
        );
        for (what, paper, cost) in [("pooled", 1.11, &pooled), ("forest", 2.0, &forest)] {
            let what = format!("ops/s, {what} ÷ compartments (paper: up to)");
            cells.put(&name, &what, paper, cost.ops(lab.cpu) / equal.ops(lab.cpu));
        }
    }
    Ok(())
}
