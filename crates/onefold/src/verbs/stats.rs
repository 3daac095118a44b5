//! `onefold stats`: how much there is, and how much of it is stored.

use std::ffi::OsString;
use std::time::Duration;

use clap::ValueEnum;
use onefold_backup::list::{Adder, Sizes};
use onefold_backup::roots::SnapshotRoots;
use onefold_backup::snapshots;
use onefold_backup::tree::Tree;
use onefold_store::{Repository, SessionKind, SweepOptions, SweepReport};
use serde_json::json;

use crate::cli::Global;
use crate::error::Result;
use crate::exit::Exit;
use crate::human::{bytes, count, many, percent, ratio};
use crate::out::Out;
use crate::repository;
use crate::select::{self, FilterArgs};
use crate::sweeping::Watch;

/// Show sizes: of what can be restored, of what is stored
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Beginnings of ids, or "latest"; all snapshots without
    #[arg(value_name = "SNAPSHOT")]
    pub snapshots: Vec<OsString>,

    #[command(flatten)]
    pub filter: FilterArgs,

    /// What to count
    #[arg(long, value_name = "MODE", default_value = "restore-size")]
    pub mode: Mode,
}

/// What to count.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// What restoring each snapshot would write
    RestoreSize,
    /// Different chunks, and what the repository takes on disk
    RawData,
    /// Files of different contents, wherever they are
    FilesByContents,
    /// Different chunks of each file, over its versions
    BlobsPerFile,
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let repository = repository::open(global, "statistics")?;
    let session = repository.session(SessionKind::Read)?;
    let chosen = select::many(&repository, &args.snapshots, &args.filter.filter()?, out)?;
    let mut reader = session.reader()?;
    let mut adder = match args.mode {
        Mode::RestoreSize | Mode::RawData => Adder::default(),
        Mode::FilesByContents | Mode::BlobsPerFile => Adder::of_versions(),
    };
    for named in &chosen {
        let Some(named) = snapshots::load_if_there(&repository, named.id)? else {
            continue;
        };
        adder.add(&Tree::open(&named.snapshot, &mut reader)?, &mut reader)?;
    }
    session.finish()?;
    match args.mode {
        Mode::RestoreSize => restore_size(&adder.sizes(), out)?,
        Mode::RawData => raw_data(&repository, &adder.sizes(), out)?,
        Mode::FilesByContents => by_contents(&adder.sizes(), out)?,
        Mode::BlobsPerFile => per_file(&adder.sizes(), out)?,
    }
    Ok(Exit::Ok)
}

fn restore_size(sizes: &Sizes, out: &Out) -> Result<()> {
    if out.json {
        return out.json(&json!({
            "total_size": sizes.total_size,
            "total_file_count": sizes.total_file_count,
            "snapshots_count": sizes.snapshots_count,
            "is_exact": sizes.is_exact,
        }));
    }
    out.line(format_args!("snapshots  {}", count(sizes.snapshots_count)))?;
    out.line(format_args!("files      {}", count(sizes.total_file_count)))?;
    out.line(format_args!(
        "other      {} folders, links and devices",
        count(sizes.total_other_count)
    ))?;
    out.line(format_args!("to restore {}", bytes(sizes.total_size)))?;
    out.line(format_args!(
        "different  {}{} in {} chunks",
        about(sizes),
        bytes(sizes.total_uncompressed_size),
        count(sizes.total_blob_count)
    ))
}

/// Said before figures that come from a sample.
fn about(sizes: &Sizes) -> &'static str {
    if sizes.is_exact { "" } else { "about " }
}

fn by_contents(sizes: &Sizes, out: &Out) -> Result<()> {
    if out.json {
        return out.json(&json!({
            "total_size": sizes.contents_size,
            "total_file_count": sizes.contents_count,
            "snapshots_count": sizes.snapshots_count,
            "is_exact": sizes.is_exact,
        }));
    }
    out.line(format_args!("snapshots  {}", count(sizes.snapshots_count)))?;
    out.line(format_args!(
        "different  {}{} in {} of {}",
        about(sizes),
        bytes(sizes.contents_size),
        many(sizes.contents_count, "file"),
        count(sizes.total_file_count)
    ))
}

fn per_file(sizes: &Sizes, out: &Out) -> Result<()> {
    if out.json {
        return out.json(&json!({
            "total_size": sizes.versions_size,
            "total_file_count": sizes.versions_count,
            "total_blob_count": sizes.versions_blob_count,
            "snapshots_count": sizes.snapshots_count,
            "is_exact": sizes.is_exact,
        }));
    }
    out.line(format_args!("snapshots  {}", count(sizes.snapshots_count)))?;
    out.line(format_args!(
        "versions   {}{} of files",
        about(sizes),
        count(sizes.versions_count)
    ))?;
    out.line(format_args!(
        "different  {}{} in {} chunks, each file by itself",
        about(sizes),
        bytes(sizes.versions_size),
        count(sizes.versions_blob_count)
    ))
}

fn raw_data(repository: &Repository, sizes: &Sizes, out: &Out) -> Result<()> {
    let look = SweepOptions {
        dry_run: true,
        ..SweepOptions::default()
    };
    let report = repository.sweep(&SnapshotRoots, &look, &mut Watch::new(out, Duration::ZERO))?;
    let unused = report.dead_bytes + report.compacted_dead_bytes + report.unused_bytes_left;
    let (index_ram, index_disk) = repository.index_bytes()?;
    if out.json {
        return out.json(&json!({
            "total_size": report.stored_bytes,
            "total_uncompressed_size": sizes.total_uncompressed_size,
            "compression_ratio": as_ratio(sizes.total_uncompressed_size, report.stored_bytes),
            "compression_progress": 100,
            "compression_space_saving": saving(sizes.total_uncompressed_size, report.stored_bytes),
            "total_blob_count": sizes.total_blob_count,
            "snapshots_count": sizes.snapshots_count,
            "is_exact": sizes.is_exact,
            "restore_size": sizes.total_size,
            "containers": report.containers,
            "unused_bytes": unused,
            "index": repository.config().index,
            "index_ram_bytes": index_ram,
            "index_disk_bytes": index_disk,
        }));
    }
    out.line(format_args!("snapshots  {}", count(sizes.snapshots_count)))?;
    out.line(format_args!("to restore {}", bytes(sizes.total_size)))?;
    out.line(format_args!(
        "different  {}{} in {} chunks (stored once: {})",
        about(sizes),
        bytes(sizes.total_uncompressed_size),
        count(sizes.total_blob_count),
        ratio(sizes.total_size, sizes.total_uncompressed_size)
    ))?;
    out.line(format_args!(
        "stored     {} in {} containers, metadata included (compressed: {})",
        bytes(report.stored_bytes),
        count(report.containers),
        ratio(sizes.total_uncompressed_size, report.stored_bytes)
    ))?;
    out.line(format_args!(
        "fill       {:.1} % in use, {} not",
        fill(&report, unused),
        bytes(unused)
    ))?;
    out.line(format_args!(
        "index      {}: {} on disk, {} of RAM",
        repository.config().index,
        bytes(index_disk),
        bytes(index_ram as u64)
    ))
}

fn fill(report: &SweepReport, unused: u64) -> f64 {
    if report.stored_bytes == 0 {
        100.0
    } else {
        100.0 - percent(unused.min(report.stored_bytes), report.stored_bytes)
    }
}

/// What compression saves, in percent.
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
