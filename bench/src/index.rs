//! `cargo xtask bench index`: the costs of a key and of a lookup in each index, on a real disk, beside other stores.
//!
//! An index is built by lookup-then-insert, batch by batch, as by a first backup, then asked for absent keys, for
//! present ones in the order of the stream, and for present ones at random. The disk's own random-read rate is measured
//! in turns with the last, by the engine's own batches (32 in flight, as in the goal, and 64, as in lookups) in the
//! same files, since goals are ratios and a shared disk's rate changes. One thread asks; merges run beside it, so the
//! time for filling is measured twice: when all is durable, and when nothing is left to merge. Disk traffic is the
//! system's count for the process, for ours as for others. With `--rivals` other stores do the same work with the same
//! RAM; with `--workload` indexes run under a generated or recorded stream instead; with `--program-rss` the whole
//! program is measured.

mod disk;
mod figures;
mod memory_group;
mod ours;
mod peak;
mod program;
mod record;
mod rivals;
mod streams;

use std::path::PathBuf;

use onefold_index::{IndexKind, kind_of};
use onefold_papers::KINDS;

/// Number of keys in a batch.
const BATCH: u64 = 512;

/// Options of the benchmark.
///
/// Examples:
///   bench index                                          strata, 20 million keys, 64 MiB
///   bench index --index strata,bloomstore --budget-mib 16,64   a table per index and RAM
///   bench index --keys 50000000 --budget-mib 47 --rivals    beside RocksDB, fjall, redb and LMDB, at 1 byte a key
///   … --insert-seconds 600                               none of them is filled for longer than ten minutes
///   bench index --record FILE OLD NEW                    chunks folders into a trace
///   bench index --workload linux,FILE --scale 0.1        generated streams and recorded ones
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct IndexArgs {
    /// Indexes to measure, by their names.
    #[arg(long, value_delimiter = ',', default_value = "strata", value_parser = kind)]
    pub index: Vec<IndexKind>,
    /// Keys in the index.
    #[arg(long, default_value_t = 20_000_000)]
    pub keys: u64,
    /// The RAM budget in MiB; several make a row each.
    #[arg(long, value_delimiter = ',', default_value = "64")]
    pub budget_mib: Vec<usize>,
    /// Folder for the index, on the disk to measure. Default: a new folder here, removed at the end.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Seconds for each kind of lookup.
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
    /// Stops filling a store after this many seconds: the keys by then give its rate, and lookups ask for as many keys
    /// as it has. B-trees, which are filled in the order of keys, are left out if they are not full by then.
    #[arg(long)]
    pub insert_seconds: Option<u64>,
    /// Read through the page cache instead of past it.
    #[arg(long)]
    pub cached: bool,
    /// Measure other stores beside it. Needs the `rivals` program, a crate outside the workspace: its path, or without
    /// a path it is built (C++ for minutes, unless ROCKSDB_LIB_DIR names a folder with librocksdb 7).
    #[arg(long, num_args = 0..=1, default_missing_value = "")]
    pub rivals: Option<PathBuf>,
    /// Only these of the other stores.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "rocksdb,rocksdb-universal,fjall,redb,lmdb"
    )]
    pub stores: Vec<String>,
    /// RAM of the other stores' processes together, page cache included, in MiB beyond the budget (Linux memory groups;
    /// needs root). A store that is killed for using more starts again with three quarters of the caches, filters and
    /// write buffers.
    #[arg(long, default_value_t = 48)]
    pub slack_mib: usize,
    /// Streams to run the indexes under: linux, vx, fbf, vx-9m, vx-20m, or files that `--record` made.
    #[arg(long, value_delimiter = ',')]
    pub workload: Vec<String>,
    /// Share of a generated workload.
    #[arg(long, default_value_t = 0.1)]
    pub scale: f64,
    /// Chunks the folders DIR… one after the other, and writes their fingerprints to the file.
    #[arg(long, value_name = "FILE", requires = "folders")]
    pub record: Option<PathBuf>,
    /// Folders to record.
    #[arg(value_name = "DIR")]
    pub folders: Vec<PathBuf>,
    /// Measure the RAM of the whole program with this many keys in a repository's index instead.
    #[arg(long)]
    pub program_rss: bool,
    /// The program to measure. Default: the one built beside this.
    #[arg(long)]
    pub onefold: Option<PathBuf>,
    /// Seed of the keys.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

type Error = Box<dyn std::error::Error>;

/// Runs the benchmark and prints its table.
pub fn run(args: &IndexArgs) -> Result<(), Error> {
    if let Some(trace) = &args.record {
        return record::run(trace, &args.folders);
    }
    let made = match args.dir {
        Some(_) => None,
        None => Some(
            tempfile::Builder::new()
                .prefix("bench-index")
                .tempdir_in(".")?,
        ),
    };
    let path = match (&args.dir, &made) {
        (Some(dir), _) => dir.clone(),
        (None, Some(made)) => made.path().to_path_buf(),
        (None, None) => unreachable!("one of them"),
    };
    if args.program_rss {
        return program::run(args, &path);
    }
    println!("{}", super::report::machine_line(&super::report::machine()));
    if !args.workload.is_empty() {
        return streams::run(args, &path);
    }
    let program = args.rivals.as_ref().map(|path| rivals::program(path));
    let program = program.transpose()?;
    let mut all = Vec::new();
    for &budget_mib in &args.budget_mib {
        println!("{} keys, {budget_mib} MiB, seed {}", args.keys, args.seed);
        for index in &args.index {
            let folder = path.join("index");
            // a failed measurement is left out of the table; the others have taken hours
            match ours::run(args, *index, budget_mib, &folder) {
                Ok(measured) => all.push(measured),
                Err(error) => {
                    println!("{}: {error}\n", index.name);
                    if folder.is_dir() {
                        std::fs::remove_dir_all(&folder)?;
                    }
                }
            }
        }
        if let Some(program) = &program {
            for store in &args.stores {
                all.extend(rivals::run(args, program, store, budget_mib, &path)?);
            }
        }
    }
    print!("\n{}", figures::table(&all).text());
    if all.is_empty() {
        Err("none of them could be measured".into())
    } else {
        Ok(())
    }
}

fn kind(name: &str) -> Result<IndexKind, String> {
    kind_of(KINDS, name).map(|(kind, _)| kind)
}
