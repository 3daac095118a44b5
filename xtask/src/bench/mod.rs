//! Benchmarks: each prints machine, seed and versions beside its figures, and compares in one run.

mod backup;
mod chunk;
mod index;
mod report;

use clap::Subcommand;

/// What to measure.
#[derive(Subcommand)]
pub enum Bench {
    /// Onefold and other backup programs on the same data: wall, CPU, peak RSS, repository size, stage by stage.
    Backup(backup::BackupArgs),
    /// Chunkers: speed on random data beside the `fastcdc` crate, dedup ratio on folders that are given.
    Chunk(chunk::ChunkArgs),
    /// The fingerprint index alone: what a key and a lookup cost, on a real disk.
    Index(index::IndexArgs),
}

impl Bench {
    /// Runs it.
    pub fn run(self) -> Result<(), String> {
        match self {
            Bench::Backup(args) => backup::run(&args),
            Bench::Chunk(args) => chunk::run(&args),
            Bench::Index(args) => index::run(&args).map_err(|error| error.to_string()),
        }
    }
}
