//! Benchmarks: each prints machine, seed and versions beside its figures, and compares in one run.

use clap::Subcommand;

/// What to measure.
#[derive(Subcommand)]
pub enum Bench {}

impl Bench {
    /// Runs it.
    pub fn run(self) -> Result<(), String> {
        match self {}
    }
}
