//! The evaluation of the Dmdedup report (Mandal, FSL-15-03, 2015), figure by figure: the report's numbers, beside what
//! the same loads give here on models of the report's devices, or on a disk of this machine.
//!
//! ```text
//! cargo run -p onefold-volume --example evaluation -- --figure 4.1
//! ```

mod chunking;
mod extraction;
mod file_load;
mod file_server;
mod findings;
mod hints;
mod likeness;
mod loads;
mod micro;
mod paper;
mod plot;
mod real;
mod recorder;
#[path = "../../../../bench/src/report.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest of it")]
mod report;
mod setup;
mod traces;
mod trimmed_disk;

use std::path::{Path, PathBuf};

use clap::Parser;
use onefold_io::FlashModel;

use crate::findings::Findings;
use crate::likeness::{Likeness, MetadataDevice};
use crate::report::Table;
use crate::setup::REPORT_CHUNKS;

/// The error of a run.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Part of the report's device that is used where nobody asks for another.
const SCALE: f64 = 1.0 / 128.0;

/// Figures and tables to measure, and how.
#[derive(Parser, Clone, Debug)]
struct Args {
    /// Figures to measure, or `all`: those that need no root.
    #[arg(long)]
    figure: Vec<String>,
    /// Tables: 2.1, 4.1, 4.2.
    #[arg(long)]
    table: Vec<String>,
    /// Measure Figures 4.1 to 4.3 on the disk of `--folder` instead.
    #[arg(long)]
    real: bool,
    /// Part of the report's device of 146 GB; caches are parts of the metadata, so they shrink with it.
    #[arg(long, default_value_t = SCALE)]
    scale: f64,
    /// The report's sizes: hours, and 10 GB of RAM.
    #[arg(long)]
    full: bool,
    /// The setup of Figures 4.1 to 4.3 of this name, or all whose name contains it, beside the raw device.
    #[arg(long, default_value = "")]
    only: String,
    /// A folder of versions of a source tree, each a folder. Default: versions of this repository.
    #[arg(long)]
    trees: Option<PathBuf>,
    /// A folder for the figures as SVG files.
    #[arg(long)]
    plots: Option<PathBuf>,
    /// Print tables as Markdown.
    #[arg(long)]
    markdown: bool,
    /// The program, for Table 4.2.
    #[arg(long)]
    onefold: Option<PathBuf>,
    /// Files of the file server of Figure 6.4 and Table 2.1, and loops of its load.
    #[arg(long, default_value_t = 10_000)]
    files: u64,
    /// Traits of the report's metadata that `cbt` is given for Figures 6.1 to 6.4.
    #[arg(long, value_enum, value_delimiter = ',')]
    like: Vec<Likeness>,
    /// Folder on the disk to measure.
    #[arg(long, default_value = ".")]
    folder: PathBuf,
    /// Size of the device on that disk in MiB.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Seconds of each measurement there, at most.
    #[arg(long, default_value_t = 4)]
    seconds: u32,
    /// Rounds there, in alternation.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seed of places and contents.
    #[arg(long, default_value_t = 48)]
    seed: u64,
}

impl Args {
    /// Chunks of the data device.
    fn chunks(&self) -> u64 {
        let scale = if self.full { 1.0 } else { self.scale };
        (REPORT_CHUNKS * scale) as u64
    }

    /// The metadata device of the report's chapter on hints.
    fn hinted_device(&self) -> MetadataDevice<'_> {
        MetadataDevice {
            model: FlashModel::s3700,
            like: &self.like,
        }
    }
}

type Measure = fn(&Args) -> Result<Findings, Error>;

/// Figures and what measures them.
const FIGURES: [(&str, Measure); 11] = [
    ("2.2", chunking::fixed),
    ("2.4", chunking::variable),
    ("2.5", chunking::compared),
    ("4.1", micro::unique),
    ("4.2", micro::duplicate),
    ("4.3", micro::trees_in_tars),
    ("4.4", traces::replay),
    ("6.1", hints::nodedup),
    ("6.2", hints::prefetch),
    ("6.3", hints::prefetch_of_pairs),
    (AS_ROOT, file_server::throughput),
];

/// The figure for which a file system is mounted.
const AS_ROOT: &str = "6.4";

fn main() {
    if let Err(error) = run(&Args::parse()) {
        eprintln!("evaluation: {error}");
        std::process::exit(1);
    }
}

/// Measures what is asked for, and prints its tables.
fn run(args: &Args) -> Result<(), Error> {
    println!("{}", report::machine_line(&report::machine()));
    for name in &args.figure {
        if name != "all" && FIGURES.iter().all(|(known, _)| known != name) {
            let names = FIGURES.map(|(name, _)| name).join(", ");
            return Err(format!("no figure {name}: {names}, all").into());
        }
    }
    let is_named = |name: &str, one: &String| one == name || (one == "all" && name != AS_ROOT);
    let is_wanted = |name: &str| args.figure.iter().any(|one| is_named(name, one));
    for (name, measure) in FIGURES.iter().filter(|(name, _)| is_wanted(name)) {
        let found = measure(args).map_err(|error| format!("figure {name}: {error}"))?;
        print(
            args,
            &format!("Figure {name}. {}, seed {}", found.title, args.seed),
            &found.table(),
        );
        print(args, "The report's claims", &found.claims());
        if let Some(folder) = &args.plots {
            draw(&found, folder)?;
        }
    }
    args.table.iter().try_for_each(|name| table(args, name))
}

/// Measures a table, and prints it.
fn table(args: &Args, name: &str) -> Result<(), Error> {
    match name {
        "2.1" => {
            let (table, found) = file_server::unique_metadata(args)?;
            print(args, "Table 2.1, of chunks of metadata", &table);
            print(args, "The report's claims", &found.claims());
        }
        "4.1" => print(args, "Table 4.1, in GB", &traces::characteristics(args)),
        "4.2" => {
            let (table, found) = extraction::run(args)?;
            print(args, "Table 4.2", &table);
            print(args, "The report's claims", &found.claims());
        }
        _ => return Err(format!("no table {name}: 2.1, 4.1, 4.2").into()),
    }
    Ok(())
}

fn print(args: &Args, title: &str, table: &Table) {
    let text = if args.markdown {
        table.markdown()
    } else {
        table.text()
    };
    println!("\n{title}\n\n{text}");
}

fn draw(found: &Findings, folder: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(format!("figure-{}.svg", found.of));
    Ok(std::fs::write(path, plot::svg(&found.bars()))?)
}
