//! Tasks of the project: `cargo xtask ci | test | model | golden | fuzz | tidy | bench`. One file a task.
#![forbid(unsafe_code)]

mod ci;
mod examples;
mod golden;
mod package;
mod rigs;
mod sources;
mod suites;
mod tidy;

use std::ffi::OsString;

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
    /// Skipped checks are listed at the end.
    Ci,
    /// Installs the programs that the tests need (as root or with sudo) and runs everything that `ci` runs; a test then
    /// fails where a program is missing.
    Test {
        /// Runs rigs instead.
        #[command(subcommand)]
        rigs: Option<Rigs>,
    },
    /// Searches every state that sessions, sweeps and changes of roots can reach for a lost chunk.
    Model {
        /// Search the large casts, too, built for release: a quarter of an hour and 4 GB of RAM.
        #[arg(long)]
        all: bool,
    },
    /// Mutates the input of every decoder, seeded: --seconds for each target, --seed (by default the day), --only,
    /// --input FILE.
    #[command(disable_help_flag = true)]
    Fuzz {
        /// Arguments of onefold-fuzz.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Compares today's files with the golden files, and FORMAT.md's examples with their bytes.
    Golden {
        /// Write golden files and examples anew: for a new format version.
        #[arg(long)]
        bless: bool,
    },
    /// Makes a static program, and a Debian package with a nightly backup, in target/package.
    Package {
        /// Install it in a clean Debian made by debootstrap, as root, and run it there.
        #[arg(long = "try")]
        try_it: bool,
    },
    /// Checks layers, sizes of files, and words, which no compiler does.
    Tidy,
    /// Runs a benchmark, beside peers, in one run; without a name, lists them.
    #[command(disable_help_flag = true)]
    Bench {
        /// Arguments of onefold-bench.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

/// Rigs, which need more programs and time than tests may take.
#[derive(Subcommand)]
enum Rigs {
    /// The rigs of block devices.
    Volume(rigs::VolumeRig),
}

fn main() {
    let done = match Cli::parse().task {
        Task::Ci => ci::run(false),
        Task::Test { rigs: None } => ci::test(),
        Task::Test {
            rigs: Some(Rigs::Volume(rig)),
        } => rig.run(),
        Task::Model { all } => ci::model(all),
        Task::Fuzz { args } => ci::fuzz(&args),
        Task::Golden { bless } => golden::run(bless),
        Task::Package { try_it } => package::run(try_it),
        Task::Tidy => tidy::run(),
        Task::Bench { args } => ci::bench(&args),
    };
    if let Err(error) = done {
        eprintln!("xtask: {error}");
        std::process::exit(1);
    }
}
