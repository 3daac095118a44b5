//! `onefold estimate`: computes how well files deduplicate, by chunker and size, in one read of them.

mod read;
mod report;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use onefold_backup::backup::Tars;
use onefold_lab::{ChunkerChoice, Estimate, Tallies, Tally, columns, plot, saved};

use crate::cli::names;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::human;
use crate::leave_out::LeaveOut;
use crate::list_file;
use crate::out::Out;
use crate::progress::{Doing, Meter};

/// Tell what deduplication would save, without a repository
///
/// Reads the files once and counts their chunks for every chunker and size asked for. Counts are exact while the
/// fingerprints fit into --ram; beyond, shorter chunks are counted by a sketch, which takes 0.5 MiB for each chunker
/// and size, and the ratio gets an error bar (95 %, about 1 % at most). Nothing is stored and no password is needed.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files and folders to read
    #[arg(value_name = "PATH", required_unless_present_any = ["merge", "stdin"])]
    pub paths: Vec<OsString>,

    /// Read standard input as one file
    #[arg(long, conflicts_with = "paths")]
    pub stdin: bool,

    /// Its name, for chunkers that go by file types
    #[arg(long, value_name = "NAME", default_value = "stdin")]
    pub stdin_filename: OsString,

    /// Chunkers, by name: `onefold init --help` lists them
    #[arg(
        long,
        value_name = "NAME[,NAME…]",
        value_delimiter = ',',
        value_parser = names::chunkers(),
        hide_possible_values = true,
        default_value = "sieve-adaptive"
    )]
    pub chunkers: Vec<String>,

    /// Mean chunks
    #[arg(long, value_name = "SIZE[,SIZE…]", value_delimiter = ',', value_parser = human::parse_bytes, default_value = "4k,8k,16k,64k")]
    pub sizes: Vec<u64>,

    /// Take what begins as an old tar for one, too. A tar is cut at its members, as by `backup`; without this, only
    /// what begins as a POSIX or GNU tar is
    #[arg(long)]
    pub tar_aware: bool,

    /// Take nothing for a tar
    #[arg(long, conflicts_with = "tar_aware")]
    pub no_tar_aware: bool,

    /// Write the figures as CSV; here and below, - is standard output, without the table then
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write the figures as Parquet
    #[arg(long, value_name = "FILE")]
    pub parquet: Option<PathBuf>,

    /// Draw the ratio against the mean chunk: an SVG, or a page if the name ends in .html
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    /// Keep what was counted, for --merge
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// Add what other runs or hosts have kept; - is standard input
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub merge: Vec<PathBuf>,

    #[command(flatten)]
    pub leave_out: LeaveOut,
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    onefold_io::os::tune_heap();
    let choices = choices(args)?;
    let files = [&args.csv, &args.parquet, &args.plot, &args.save];
    let (to_stdout, files): (Vec<_>, Vec<_>) =
        files.into_iter().flatten().partition(|file| is_dash(file));
    if to_stdout.len() + usize::from(out.json) > 1 && !to_stdout.is_empty() {
        let what = "standard output takes one of --csv, --parquet, --plot, --save and --json";
        return Err(Error::Usage(what.into()));
    }
    let from_stdin = args.merge.iter().filter(|file| is_dash(file)).count();
    if from_stdin + usize::from(args.stdin) > 1 {
        let what = "standard input can be read once: by --stdin, or as one file of --merge";
        return Err(Error::Usage(what.into()));
    }
    files
        .into_iter()
        .try_for_each(|file| can_be_written(file))?;
    let meter = Meter::new(Doing::Estimate, out);
    let tars = match (args.tar_aware, args.no_tar_aware) {
        (true, _) => Some(Tars::Checksum),
        (_, true) => None,
        _ => Some(Tars::Magic),
    };
    let tallies = Tallies::new(&choices, global.ram).cutting(tars);
    let mut failed = 0;
    let mut counted = Vec::new();
    if args.stdin {
        meter.run(|| read::stdin(args, global, &tallies, &meter))?;
        counted = tallies.into_inner();
    } else if !args.paths.is_empty() {
        failed = meter.run(|| read::all(args, global, &tallies, &meter, out))?;
        counted = tallies.into_inner();
    }
    let ram = global.ram / choices.len().max(1) as u64;
    for file in &args.merge {
        saved::merge(&mut counted, load(file, ram)?);
    }
    if let Some(file) = &args.save {
        write(file, &saved::encode(&counted), out)?;
    }
    let estimates: Vec<(ChunkerChoice, Estimate)> = counted
        .iter()
        .map(|(choice, tally)| (choice.clone(), Estimate::of(tally)))
        .collect();
    if to_stdout.is_empty() {
        let is_read = args.stdin || !args.paths.is_empty();
        report::print(&estimates, is_read.then_some(&meter), out)?;
    }
    write_figures(args, &estimates, out)?;
    Ok(if failed > 0 {
        Exit::Incomplete
    } else {
        Exit::Ok
    })
}

/// Writes the figures into the files that were asked for.
fn write_figures(args: &Args, estimates: &[(ChunkerChoice, Estimate)], out: &Out) -> Result<()> {
    if let Some(file) = &args.csv {
        write(file, report::csv(estimates).as_bytes(), out)?;
    }
    if let Some(file) = &args.parquet {
        let mut bytes = Vec::new();
        columns::parquet(estimates, &mut bytes)
            .map_err(|error| Error::Failed(format!("make {}: {error}", file.display())))?;
        write(file, &bytes, out)?;
    }
    if let Some(file) = &args.plot {
        let is_page = file.extension().is_some_and(|name| name == "html");
        let draw = if is_page { plot::html } else { plot::svg };
        write(file, draw(estimates).as_bytes(), out)?;
    }
    Ok(())
}

/// Returns every chunker at every size, each once; `whole-file`, which has no size, once.
fn choices(args: &Args) -> Result<Vec<ChunkerChoice>> {
    let mut choices = Vec::new();
    for chunker in &args.chunkers {
        for size in &args.sizes {
            let mean = u32::try_from(*size)
                .map_err(|_| Error::Usage(format!("--sizes: {size} bytes is too large a chunk")))?;
            let choice = ChunkerChoice {
                chunker: chunker.clone(),
                mean,
            };
            let same = |known: &ChunkerChoice| {
                known.chunker == *chunker && (known.mean == mean || chunker == "whole-file")
            };
            if !choices.iter().any(same) {
                choices.push(choice);
            }
        }
    }
    Ok(choices)
}

fn load(file: &Path, ram_bytes: u64) -> Result<Vec<(ChunkerChoice, Tally)>> {
    let name = file.display().to_string();
    let bytes = list_file::read(file.as_os_str())?;
    saved::decode(&bytes, &name, ram_bytes)
        .map_err(|error| Error::Failed(format!("{name} holds no estimate: {error}")))
}

/// Checks that a file can be made, before all is read and not after.
fn can_be_written(file: &Path) -> Result<()> {
    let opened = std::fs::File::options()
        .append(true)
        .create(true)
        .open(file);
    opened.map_or_else(
        |error| Err(Error::io(format!("write {}", file.display()), error)),
        |_| Ok(()),
    )
}

/// Whether the name means standard output, or input.
fn is_dash(file: &Path) -> bool {
    file.as_os_str() == "-"
}

fn write(file: &Path, bytes: &[u8], out: &Out) -> Result<()> {
    if is_dash(file) {
        return out.bytes(bytes);
    }
    std::fs::write(file, bytes).map_err(|e| Error::io(format!("write {}", file.display()), e))
}
