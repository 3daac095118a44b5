//! `cargo xtask bench volume`: block devices beside their peers, in turns in one run.

mod fio;
mod transport;

use std::path::PathBuf;

/// What to measure.
#[derive(clap::Args, Clone, Debug)]
pub struct VolumeArgs {
    /// What a transport costs: NBD over a raw file, beside qemu-nbd on the same file, nbdkit memory, and the file
    /// itself.
    #[arg(long, required = true)]
    pub transport: bool,
    /// Folder of the file that is served; on the disk that counts.
    #[arg(long, default_value = ".")]
    pub folder: PathBuf,
    /// MiB of that file.
    #[arg(long, default_value_t = 1024)]
    pub mib: u64,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 4)]
    pub seconds: u32,
    /// Rounds in alternation; the medians count.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Seed of the places that are read and written.
    #[arg(long, default_value_t = 48)]
    pub seed: u64,
    /// The program; otherwise it is built for release.
    #[arg(long)]
    pub onefold: Option<PathBuf>,
}

/// Runs the benchmark and prints its tables.
pub fn run(args: &VolumeArgs) -> Result<(), String> {
    transport::run(args)
}
