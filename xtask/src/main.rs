//! Tasks of the project: `cargo xtask ci | test | tidy | bench`. One file a task.
#![forbid(unsafe_code)]

mod bench;
mod ci;
mod tidy;

use clap::{Parser, Subcommand};

/// Tasks of the project.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything that CI runs: format, clippy, tests, documentation, tidy, and cargo-deny where it is installed.
    Ci,
    /// Installs what the tests need (as root or with sudo) and runs everything that `ci` runs.
    Test,
    /// Layers, sizes of files, words: what no compiler checks.
    Tidy,
    /// Measures, beside peers, in one run.
    #[command(subcommand)]
    Bench(Box<bench::Bench>),
}

fn main() {
    let done = match Cli::parse().task {
        Task::Ci => ci::run(),
        Task::Test => ci::install().and_then(|()| ci::run()),
        Task::Tidy => tidy::run(),
        Task::Bench(bench) => bench.run(),
    };
    if let Err(error) = done {
        eprintln!("xtask: {error}");
        std::process::exit(1);
    }
}
