//! Benchmarks: each prints machine, seed and versions beside its figures, and compares in one run.

mod index;

use clap::Subcommand;

/// What to measure.
#[derive(Subcommand)]
pub enum Bench {
    /// The fingerprint index alone: what a key and a lookup cost, on a real disk.
    Index(index::IndexArgs),
}

impl Bench {
    /// Runs it.
    pub fn run(self) -> Result<(), String> {
        match self {
            Bench::Index(args) => index::run(&args).map_err(|error| error.to_string()),
        }
    }
}
