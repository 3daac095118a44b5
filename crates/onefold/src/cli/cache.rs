//! Options of every verb for what this machine keeps of repositories in buckets.

use std::path::PathBuf;

use clap::Args;

use crate::human;

/// How much this machine keeps of repositories in buckets, and where.
#[derive(Args, Debug)]
pub struct CacheOptions {
    /// Keep at most so much of a bucket's snapshots and metadata on this machine, as they are stored (0: nothing), so
    /// that they are not requested again
    #[arg(
        long = "cache-size",
        value_name = "SIZE",
        env = "ONEFOLD_CACHE_SIZE",
        hide_env_values = true,
        value_parser = human::parse_bytes,
        default_value = "2G",
        global = true
    )]
    bytes_max: u64,

    /// Keep the index and copies of what is in buckets below this folder [default: onefold in $XDG_CACHE_HOME, or
    /// ~/.cache/onefold]
    #[arg(
        long = "cache-dir",
        value_name = "DIR",
        env = "ONEFOLD_CACHE_DIR",
        hide_env_values = true,
        global = true
    )]
    pub folder: Option<PathBuf>,

    /// Neither use nor keep copies of what is in a bucket; the index is kept all the same
    #[arg(long, global = true)]
    no_cache: bool,

    /// Remove what this machine keeps of other repositories in buckets that were not used for 30 days
    #[arg(long = "cleanup-cache", global = true)]
    pub cleanup: bool,
}

impl CacheOptions {
    /// Returns the bytes of copies that are kept at most; 0 where none are used.
    pub fn bytes_max(&self) -> u64 {
        if self.no_cache { 0 } else { self.bytes_max }
    }
}
