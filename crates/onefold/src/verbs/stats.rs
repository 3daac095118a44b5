//! `onefold stats`: shows how much can be restored, and how much of it is stored.

use std::ffi::OsString;
use std::time::Duration;

use clap::ValueEnum;
use onefold_backup::list::{Adder, Sizes};
use onefold_backup::roots::SnapshotRoots;
use onefold_backup::snapshots;
use onefold_backup::tree::Tree;
use onefold_store::{Repository, SessionKind, SweepOptions, SweepReport};
use serde_json::{Value, json};

use crate::error::Result;
use crate::exit::Exit;
use crate::global::Global;
use crate::human::{bytes, count, many, percent, ratio};
use crate::out::Out;
use crate::repository;
use crate::select::{self, FilterArgs};
use crate::sweeping::SweepWatch;

/// Show sizes: of what can be restored, of what is stored
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Beginnings of ids, or "latest"; all snapshots without
    #[arg(value_name = "SNAPSHOT")]
    pub snapshots: Vec<OsString>,

    #[command(flatten)]
    pub filter: FilterArgs,

    /// The quantity to count
    #[arg(long, value_name = "MODE", default_value = "restore-size")]
    pub mode: Mode,
}

/// Kind of statistics.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Bytes and files that restoring each snapshot would write
    RestoreSize,
    /// Different chunks, and, of all snapshots, what the repository takes on disk
    RawData,
    /// Files of different contents, wherever they are
    FilesByContents,
    /// Different chunks of each file, over its versions
    BlobsPerFile,
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let repository = repository::open(global, "statistics")?;
    let session = repository.session(SessionKind::Read)?;
    let filter = args.filter.filter()?;
    let is_of_all = args.snapshots.is_empty() && filter.is_empty();
    let (chosen, mut unread) = select::many_or_not(&repository, &args.snapshots, &filter, out)?;
    let mut reader = session.reader()?;
    let mut adder = match args.mode {
        Mode::RestoreSize | Mode::RawData => Adder::default(),
        Mode::FilesByContents | Mode::BlobsPerFile => Adder::of_versions(),
    };
    for named in &chosen {
        let mut add = || match snapshots::load_if_there(&repository, named.id)? {
            Some(named) => adder.add(&Tree::open(&named.snapshot, &mut reader)?, &mut reader),
            None => Ok(()),
        };
        // The parts that were counted before the error stay in the sums.
        if let Err(error) = add() {
            unread.add_lost(named.id, error, out)?;
        }
    }
    session.finish()?;
    match args.mode {
        Mode::RestoreSize => restore_size(&adder.sizes(), out)?,
        Mode::RawData if is_of_all => raw_data(&repository, &adder.sizes(), out)?,
        Mode::RawData => raw_data_of_some(&adder.sizes(), out)?,
        Mode::FilesByContents => by_contents(&adder.sizes(), out)?,
        Mode::BlobsPerFile => per_file(&adder.sizes(), out)?,
    }
    unread.end()
}

fn restore_size(sizes: &Sizes, out: &Out) -> Result<()> {
    let figures = json!({
        "total_size": sizes.total_size,
        "total_file_count": sizes.total_file_count,
    });
    let lines = [
        format!("files      {}", count(sizes.total_file_count)),
        format!(
            "other      {} (folders, links and devices)",
            count(sizes.total_other_count)
        ),
        format!("to restore {}", bytes(sizes.total_size)),
        format!(
            "different  {}{} in {}",
            about(sizes),
            bytes(sizes.total_uncompressed_size),
            many(sizes.total_blob_count, "chunk")
        ),
    ];
    show(sizes, figures, &lines, out)
}

fn by_contents(sizes: &Sizes, out: &Out) -> Result<()> {
    let figures = json!({
        "total_size": sizes.contents_size,
        "total_file_count": sizes.contents_count,
    });
    let line = format!(
        "different  {}{} in {} of {}",
        about(sizes),
        bytes(sizes.contents_size),
        many(sizes.contents_count, "file"),
        count(sizes.total_file_count)
    );
    show(sizes, figures, &[line], out)
}

fn per_file(sizes: &Sizes, out: &Out) -> Result<()> {
    let figures = json!({
        "total_size": sizes.versions_size,
        "total_file_count": sizes.versions_count,
        "total_blob_count": sizes.versions_blob_count,
    });
    let lines = [
        format!(
            "versions   {}{} of files",
            about(sizes),
            count(sizes.versions_count)
        ),
        format!(
            "different  {}{} in {}, each file by itself",
            about(sizes),
            bytes(sizes.versions_size),
            many(sizes.versions_blob_count, "chunk")
        ),
    ];
    show(sizes, figures, &lines, out)
}

fn raw_data(repository: &Repository, sizes: &Sizes, out: &Out) -> Result<()> {
    let look = SweepOptions {
        dry_run: true,
        ..SweepOptions::default()
    };
    let report = repository.sweep(
        &SnapshotRoots,
        &look,
        &mut SweepWatch::new(out, Duration::ZERO),
    )?;
    let unused = report.dead_bytes + report.compacted_dead_bytes + report.unused_bytes_left;
    let (index_ram, index_disk) = repository.index_bytes()?;
    let (different, stored) = (sizes.total_uncompressed_size, report.stored_bytes);
    let figures = json!({
        "total_size": stored,
        "total_uncompressed_size": different,
        "compression_ratio": as_ratio(different, stored),
        "compression_progress": 100,
        "compression_space_saving": saving(different, stored),
        "total_blob_count": sizes.total_blob_count,
        "restore_size": sizes.total_size,
        "containers": report.containers,
        "unused_bytes": unused,
        "index": repository.config().index,
        "index_ram_bytes": index_ram,
        "index_disk_bytes": index_disk,
    });
    let [to_restore, different_chunks] = raw_lines(sizes);
    let lines = [
        to_restore,
        different_chunks,
        format!(
            "stored     {} in {}, metadata included (compressed: {})",
            bytes(stored),
            many(report.containers, "container"),
            ratio(different, stored)
        ),
        format!(
            "fill       {:.1} % in use, {} not",
            fill(&report, unused),
            bytes(unused)
        ),
        format!(
            "index      {}: {} on disk, {}",
            repository.config().index,
            bytes(index_disk),
            match index_ram {
                Some(ram) => format!("{} of RAM", bytes(ram as u64)),
                None => "RAM not known: it cannot be opened now".into(),
            }
        ),
    ];
    show(sizes, figures, &lines, out)
}

/// Prints raw data of some snapshots. The repository's size on disk is left out: chunks that snapshots share belong to
/// none alone, and are compressed with their neighbours.
fn raw_data_of_some(sizes: &Sizes, out: &Out) -> Result<()> {
    let figures = json!({
        "total_uncompressed_size": sizes.total_uncompressed_size,
        "total_blob_count": sizes.total_blob_count,
        "restore_size": sizes.total_size,
    });
    show(sizes, figures, &raw_lines(sizes), out)
}

fn raw_lines(sizes: &Sizes) -> [String; 2] {
    let different = sizes.total_uncompressed_size;
    [
        format!("to restore {}", bytes(sizes.total_size)),
        format!(
            "different  {}{} in {} (stored once: {})",
            about(sizes),
            bytes(different),
            many(sizes.total_blob_count, "chunk"),
            ratio(sizes.total_size, different)
        ),
    ]
}

/// Prints a mode's figures for programs, or its lines for people; both with the number of snapshots.
fn show(sizes: &Sizes, mut figures: Value, lines: &[String], out: &Out) -> Result<()> {
    if out.json {
        figures["snapshots_count"] = json!(sizes.snapshots_count);
        figures["is_exact"] = json!(sizes.is_exact);
        return out.json(&figures);
    }
    out.line(format_args!("snapshots  {}", count(sizes.snapshots_count)))?;
    lines.iter().try_for_each(|line| out.line(line))
}

/// Returns the word before figures that come from a sample.
fn about(sizes: &Sizes) -> &'static str {
    if sizes.is_exact { "" } else { "about " }
}

fn fill(report: &SweepReport, unused: u64) -> f64 {
    if report.stored_bytes == 0 {
        100.0
    } else {
        100.0 - percent(unused.min(report.stored_bytes), report.stored_bytes)
    }
}

/// Returns the share that compression saves, in percent.
fn saving(big: u64, small: u64) -> f64 {
    match big {
        0 => 0.0,
        _ => (1.0 - small as f64 / big as f64) * 100.0,
    }
}

fn as_ratio(big: u64, small: u64) -> f64 {
    if small == 0 {
        1.0
    } else {
        big as f64 / small as f64
    }
}
