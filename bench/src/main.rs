//! Benchmarks (`cargo xtask bench`): each prints machine, seed and versions beside its figures, and compares in one
//! run.
#![forbid(unsafe_code)]

mod backup;
mod child;
mod chunk;
mod disk_io;
mod fbc;
mod index;
mod mount;
mod ram;
mod report;
mod volume;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use peak_alloc::PeakAlloc;

/// Counts the bytes on the heap, for `bench index`; costs two atomic additions an allocation.
#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Benchmarks.
#[derive(Parser)]
#[command(name = "cargo xtask bench", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

/// The benchmark to run.
#[derive(Subcommand)]
enum Bench {
    /// Onefold and other backup programs on the same data: wall, CPU, peak RSS, repository size, stage by stage.
    Backup(backup::BackupArgs),
    /// Chunkers at equal real means, beside the `fastcdc` and `mothcdc` crates: speed, cost of an edit, sizes, dedup
    /// ratio on folders.
    Chunk(chunk::ChunkArgs),
    /// Frequency-Based Chunking on versions of a source tree, beside content-defined chunkers at equal average chunk
    /// size.
    Fbc(fbc::FbcArgs),
    /// The fingerprint index alone: the costs of a key and of a lookup, on a real disk.
    Index(index::IndexArgs),
    /// Snapshots as a folder: reading in order beside a restore, `find` over very many entries, peak RSS.
    Mount(mount::MountArgs),
    /// The papers' indexes under the papers' workloads, on a modelled flash: --scale, --seed, --workload, --index,
    /// --device, --filters, --disks.
    #[command(disable_help_flag = true)]
    Papers(OfPapers),
    /// The whole program on a repository of very many chunks: the peak RSS of every verb that opens one.
    Ram(ram::RamArgs),
    /// The duplicates that a sampled ChunkStash loses on backups of versions of real data.
    #[command(disable_help_flag = true)]
    Sampling(OfPapers),
    /// Block devices beside their peers: the costs of a transport; and the figures of the Dmdedup report.
    Volume(volume::VolumeArgs),
    /// Runs a command for a benchmark and writes its figures.
    #[command(hide = true)]
    Measured {
        /// The file for the figures.
        report: PathBuf,
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

/// A benchmark of the crate `papers`.
#[derive(clap::Args)]
struct OfPapers {
    /// Arguments of the benchmark.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

impl OfPapers {
    fn run(&self, name: &str) -> Result<(), String> {
        let mut all = vec![
            "bench",
            "--quiet",
            "--package",
            "onefold-papers",
            "--bench",
            "papers",
            "--",
            name,
        ];
        all.extend(self.args.iter().map(String::as_str));
        xtask::program::cargo(&all)
    }
}

impl Bench {
    fn run(self) -> Result<(), String> {
        match self {
            Bench::Backup(args) => backup::run(&args),
            Bench::Chunk(args) => chunk::run(&args),
            Bench::Fbc(args) => fbc::run(&args),
            Bench::Index(args) => index::run(&args).map_err(|error| error.to_string()),
            Bench::Mount(args) => mount::run(&args),
            Bench::Papers(args) => args.run("papers"),
            Bench::Ram(args) => ram::run(&args),
            Bench::Sampling(args) => args.run("sampling"),
            Bench::Volume(args) => volume::run(&args),
            Bench::Measured { report, command } => child::measured(&report, &command),
        }
    }
}

fn main() {
    if let Err(error) = Cli::parse().bench.run() {
        eprintln!("bench: {error}");
        std::process::exit(1);
    }
}
