//! `cargo xtask bench chunk`: costs and dedup ratios of every chunker, beside the `fastcdc` and `mothcdc` crates, at
//! **equal real means**.
//!
//! Chunkers interpret their mean differently (masks of whole bits miss it by up to 40 %), and smaller chunks find more
//! and cost more. Each chunker is therefore given the parameter that makes its chunks as long as asked here, on the
//! very data that is measured: within 2 % for speed and edits, and by interpolation between two means around the target
//! for the dedup ratio.

mod contestant;
mod dedupbench;
mod edits;
mod known;
mod ratio;
mod speed;

use std::path::PathBuf;

use super::report;
use contestant::Contestant;

/// Options of the benchmark.
#[derive(clap::Args, Clone, Debug)]
pub struct ChunkArgs {
    /// Mean of the resulting chunks in bytes.
    #[arg(long, default_value_t = 8192)]
    pub mean: usize,
    /// Random data in MiB; many times more than the caches hold, so that every round reads memory.
    #[arg(long, default_value_t = 1024)]
    pub mib: usize,
    /// Rounds in alternation; the best of each contestant counts. 0 leaves the speed out.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Random one-byte insertions, each by itself, into 64 MiB of random data. 0 leaves them out.
    #[arg(long, default_value_t = 500)]
    pub edits: usize,
    /// Folders or files that are deduplicated together, every file a stream.
    #[arg(long)]
    pub data: Vec<PathBuf>,
    /// Largest number of MiB of their files.
    #[arg(long, default_value_t = 1024)]
    pub data_mib: usize,
    /// Only contestants whose name begins with one of these.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// The build folder of dedup-bench (github.com/UWASL/dedup-bench): its program is run on the same `--data`, too.
    #[arg(long)]
    pub dedupbench: Option<PathBuf>,
}

/// Runs the benchmark and prints its tables.
pub fn run(args: &ChunkArgs) -> Result<(), String> {
    println!("{}", report::machine_line(&report::machine()));
    let mut all = contestant::all();
    if !args.only.is_empty() {
        let wanted = |one: &Contestant| args.only.iter().any(|name| one.name.starts_with(name));
        all.retain(wanted);
    }
    if args.rounds > 0 {
        speed::run(args, &all)?;
        known::run(args);
    }
    all.retain(|one| one.distinct);
    if args.edits > 0 {
        edits::run(args, &all)?;
    }
    if !args.data.is_empty() {
        ratio::run(args, &all)?;
    }
    if let Some(folder) = &args.dedupbench {
        dedupbench::run(folder, &ratio::chosen(args)?)?;
    }
    Ok(())
}

/// Five quantiles of the lengths.
fn quantiles(lengths: &mut [u32]) -> String {
    lengths.sort_unstable();
    let Some(last) = lengths.len().checked_sub(1) else {
        return String::new();
    };
    let at = |share: f64| lengths[(last as f64 * share) as usize];
    format!(
        "{:>7} {:>7} {:>7} {:>7} {:>7}",
        at(0.0),
        at(0.1),
        at(0.5),
        at(0.9),
        at(1.0)
    )
}

const QUANTILES: &str = "    min     p10     p50     p90     max";
