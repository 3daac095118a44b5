//! Benchmarks: each prints machine, seed and versions beside its figures, and compares in one run.

mod backup;
mod child;
mod chunk;
mod disk_io;
mod fbc;
mod index;
mod papers;
mod papers_disks;
mod papers_filters;
mod ram;
mod report;
mod sampling;
mod volume;

pub use child::measured;
use clap::Subcommand;

/// What to measure.
#[derive(Subcommand)]
pub enum Bench {
    /// Onefold and other backup programs on the same data: wall, CPU, peak RSS, repository size, stage by stage.
    Backup(backup::BackupArgs),
    /// Chunkers at equal real means, beside the `fastcdc` and `mothcdc` crates: speed, cost of an edit, sizes, dedup
    /// ratio on folders.
    Chunk(chunk::ChunkArgs),
    /// Frequency-Based Chunking on versions of a source tree, beside content-defined chunkers at equal average chunk
    /// size.
    Fbc(fbc::FbcArgs),
    /// The fingerprint index alone: what a key and a lookup cost, on a real disk.
    Index(index::IndexArgs),
    /// The papers' indexes under the papers' workloads, on a modelled flash.
    Papers(papers::PapersArgs),
    /// The whole program on a repository of very many chunks: the peak RSS of every verb that opens one.
    Ram(ram::RamArgs),
    /// What a sampled ChunkStash loses on backups of versions of real data.
    Sampling(sampling::SamplingArgs),
    /// Block devices beside their peers: what a transport costs.
    Volume(volume::VolumeArgs),
}

impl Bench {
    /// Runs it, in a program that is compiled as those that are released are.
    pub fn run(self) -> Result<(), String> {
        if cfg!(debug_assertions) {
            return crate::ci::run_released();
        }
        match self {
            Bench::Backup(args) => backup::run(&args),
            Bench::Chunk(args) => chunk::run(&args),
            Bench::Fbc(args) => fbc::run(&args),
            Bench::Index(args) => index::run(&args).map_err(|error| error.to_string()),
            Bench::Papers(args) => papers::run(&args).map_err(|error| error.to_string()),
            Bench::Ram(args) => ram::run(&args),
            Bench::Sampling(args) => sampling::run(&args).map_err(|error| error.to_string()),
            Bench::Volume(args) => volume::run(&args),
        }
    }
}
