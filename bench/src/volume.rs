//! `cargo xtask bench volume`: block devices beside their peers, in turns in one run.

mod evaluation;
mod fio;
mod goals;
mod limits;
mod snapshots;
mod transport;

use std::path::PathBuf;

/// Options of the benchmark.
#[derive(clap::Args, Clone, Debug)]
pub struct VolumeArgs {
    /// Measure the costs of a transport: NBD over a raw file, beside qemu-nbd on the same file, nbdkit memory, and the
    /// file itself.
    #[arg(long, required_unless_present_any = [
        "goals", "packing", "ram", "recovery", "snapshots", "figure", "table",
    ])]
    pub transport: bool,
    /// Measure everything that has a goal, in one run: in process, over NBD, RAM of a full map, opening after a kill.
    /// Takes a quarter of an hour, and ten times `--mib` on the disk.
    #[arg(long)]
    pub goals: bool,
    /// Measure what packing of compressed chunks saves with the files of `--tree`, and what it costs with bytes that do
    /// not compress, of `--mib` each.
    #[arg(long, requires = "tree")]
    pub packing: bool,
    /// A folder whose files are written twice, for `--goals`, or packed, for `--packing`.
    #[arg(long)]
    pub tree: Option<PathBuf>,
    /// Measure RAM of the engine log with a data device full of random chunks, against its budget.
    #[arg(long)]
    pub ram: bool,
    /// Measure the time to open a depot of the engine log after a kill, with `--mib` of log.
    #[arg(long)]
    pub recovery: bool,
    /// Measure how long snapshots, clones and deletions take under load.
    #[arg(long)]
    pub snapshots: bool,
    /// Figures of the Dmdedup report.
    #[command(flatten)]
    pub evaluation: evaluation::EvaluationArgs,
    /// Number of chunks for `--ram`, a power of two: 67108864 fill 256 GiB. Number of the map's extents for
    /// `--recovery`.
    #[arg(long, default_value_t = 1 << 22)]
    pub chunks: u64,
    /// The budget for `--ram`, in MiB.
    #[arg(long, default_value_t = 64)]
    pub ram_mib: u64,
    /// Folder of the served file, on the disk to measure.
    #[arg(long, default_value = ".")]
    pub folder: PathBuf,
    /// Size of that file in MiB.
    #[arg(long, default_value_t = 1024)]
    pub mib: u64,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 4)]
    pub seconds: u32,
    /// Rounds in alternation; the medians count.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Seed of the offsets that are read and written.
    #[arg(long, default_value_t = 48)]
    pub seed: u64,
    /// The program. Default: this workspace's, built for release.
    #[arg(long)]
    pub onefold: Option<PathBuf>,
}

/// Runs the benchmark and prints its tables.
pub fn run(args: &VolumeArgs) -> Result<(), String> {
    if args.goals {
        goals::run(args)?;
    }
    if args.packing {
        limits::packing(args)?;
    }
    if args.ram {
        limits::ram(args)?;
    }
    if args.recovery {
        limits::recovery(args)?;
    }
    if args.snapshots {
        snapshots::run(args)?;
    }
    if !args.evaluation.is_empty() {
        evaluation::run(args)?;
    }
    if args.transport {
        transport::run(args)
    } else {
        Ok(())
    }
}
