//! One store under the workload of `cargo xtask bench index`, which runs this and puts its figures beside those of
//! `strata`.
//!
//! `build` fills a store, `measure` asks it; each prints one JSON object a figure. Keys are 32 bytes, values 8. Every
//! store gets the same RAM: caches, filters and write buffers together take `--budget-mib`; what goes through the page
//! cache is limited by whoever starts this in a memory group. Where a choice was to be made, it was made in the other
//! store's favour: no write-ahead log where it can be left out, commits that are synced once at the end, B-trees filled
//! in the order of their keys, and as many asking threads as serve it best.

mod btrees;
mod lsm;
mod process;
mod run;
mod store;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Fills the store.
    Build(Build),
    /// Asks it for absent keys, present ones in stream order, and present ones at random; B-trees get keys inserted at
    /// the end.
    Measure(Measure),
}

#[derive(Args)]
struct What {
    /// Which store.
    #[arg(long)]
    store: Kind,
    /// Its folder.
    #[arg(long)]
    dir: PathBuf,
    /// Keys in it.
    #[arg(long)]
    keys: u64,
    /// RAM for caches, filters and write buffers, in MiB.
    #[arg(long)]
    budget_mib: usize,
    /// Seed of the keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct Build {
    #[command(flatten)]
    what: What,
    /// Stops filling after this, with as many keys as there are then.
    #[arg(long, default_value_t = u64::MAX)]
    seconds: u64,
}

#[derive(Args)]
struct Measure {
    #[command(flatten)]
    what: What,
    /// Seconds for each figure.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Threads that ask; may be given several times.
    #[arg(long, default_values_t = [1, 32])]
    threads: Vec<u64>,
}

/// The stores.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// RocksDB with levels, its default.
    Rocksdb,
    /// RocksDB with universal compaction, which writes less.
    RocksdbUniversal,
    /// fjall, levels.
    Fjall,
    /// redb, a copy-on-write B-tree.
    Redb,
    /// LMDB, a copy-on-write B-tree in a memory map.
    Lmdb,
}

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    match Cli::parse().verb {
        Verb::Build(build) => run::build(&build),
        Verb::Measure(measure) => run::measure(&measure),
    }
}
