//! The published indexes and filters beside their papers' figures: the program behind `cargo xtask bench papers` and
//! `cargo xtask bench sampling`.
#![forbid(unsafe_code)]

mod papers;
mod papers_disks;
mod papers_filters;
#[path = "../../../../bench/src/report.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "other benchmarks use the rest of it"
)]
mod report;
mod sampling;

use clap::Parser;

/// The benchmark to run.
#[derive(Parser)]
enum Bench {
    /// The papers' indexes under the papers' workloads, on a modelled flash.
    Papers(papers::PapersArgs),
    /// The duplicates that a sampled ChunkStash loses on backups of versions of real data.
    Sampling(sampling::SamplingArgs),
}

fn main() {
    // `cargo bench` passes this to every program that it runs
    let args = std::env::args_os().filter(|arg| arg != "--bench");
    let done = match Bench::parse_from(args) {
        Bench::Papers(args) => papers::run(&args),
        Bench::Sampling(args) => sampling::run(&args),
    };
    if let Err(error) = done {
        eprintln!("bench: {error}");
        std::process::exit(1);
    }
}
