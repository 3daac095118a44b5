//! Options of every verb.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use onefold_store::Compression;

use crate::cli::cache::CacheOptions;
use crate::cli::names;
use crate::cli::typed::Typed;
use crate::human;
use crate::password::PasswordOptions;

/// Options of every verb.
#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    #[command(flatten)]
    pub typed: Typed,

    /// Folder of the repository, or a bucket of object storage: s3://BUCKET/PREFIX, s3:https://HOST/BUCKET/PREFIX
    #[arg(
        short,
        long,
        value_name = "PLACE",
        env = "ONEFOLD_REPOSITORY",
        hide_env_values = true,
        global = true
    )]
    pub repo: Option<PathBuf>,

    /// File whose first line is the folder of the repository
    #[arg(
        long,
        value_name = "FILE",
        env = "ONEFOLD_REPOSITORY_FILE",
        hide_env_values = true,
        global = true
    )]
    pub repository_file: Option<PathBuf>,

    #[command(flatten)]
    pub password: PasswordOptions,

    /// Protection of a repository or depot: aes256gcm, or none for disks that are encrypted already. Chosen when it is
    /// made [default: aes256gcm for a repository, none for a depot]; one with another protection is refused
    #[arg(
        long,
        value_name = "NAME",
        env = "ONEFOLD_ENCRYPTION",
        hide_env_values = true,
        value_parser = names::encryptions(),
        hide_possible_values = true,
        global = true
    )]
    pub encryption: Option<String>,

    /// Print results as JSON, one object or array a line
    #[arg(long, global = true)]
    pub json: bool,

    /// Print results, warnings and errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Say more: every path; twice (or =2) and more, what the engine does
    #[arg(
        short,
        long,
        value_name = "N",
        action = clap::ArgAction::Append,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u8).range(..=9),
        global = true
    )]
    pub verbose: Vec<u8>,

    /// Draw no progress bar
    #[arg(long, global = true)]
    pub no_progress: bool,

    /// How hard new data is compressed
    #[arg(
        long,
        value_name = "LEVEL",
        env = "ONEFOLD_COMPRESSION",
        hide_env_values = true,
        default_value = "auto",
        global = true
    )]
    pub compression: CompressionLevel,

    /// Threads that compress and fingerprint (default: one a core, but at most 5, of better 3, of max 2: each takes
    /// RAM)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), global = true)]
    pub threads: Option<u16>,

    /// RAM for the fingerprint index; less makes backups of known data slower, never wrong. A SIZE is a number of
    /// bytes, or of K, M, G, T: 1K is 1024 bytes
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes, default_value = "32M", global = true)]
    pub ram: u64,

    /// Keep the fingerprint index and the prune's working file below this folder instead of in the repository: on a
    /// faster disk, say. It may be deleted at any time, which costs time only
    #[arg(
        long,
        value_name = "DIR",
        env = "ONEFOLD_INDEX_DIR",
        hide_env_values = true,
        global = true
    )]
    pub index_dir: Option<PathBuf>,

    #[command(flatten)]
    pub cache: CacheOptions,

    /// Send at most so much a second to a bucket: a number of KiB, or a SIZE such as 5M
    #[arg(long, value_name = "RATE", value_parser = human::parse_rate, global = true)]
    pub limit_upload: Option<u64>,

    /// Receive at most so much a second from a bucket
    #[arg(long, value_name = "RATE", value_parser = human::parse_rate, global = true)]
    pub limit_download: Option<u64>,

    /// Trust the certificates in this file (PEM), too, where a bucket is reached by https; can be given several times,
    /// or with commas between
    #[arg(
        long,
        value_name = "FILE",
        env = "ONEFOLD_CACERT",
        hide_env_values = true,
        value_delimiter = ',',
        global = true
    )]
    pub cacert: Vec<PathBuf>,

    /// Give a request to a bucket up, and make it anew, when no byte of it has moved for so long [default: 1m]
    #[arg(long, value_name = "DURATION", value_parser = human::parse_duration, global = true)]
    pub stuck_request_timeout: Option<Duration>,

    /// A request to a bucket that fails is made again for so long, where a verb says that.
    #[arg(skip)]
    pub patience: Option<Duration>,

    /// Let this machine use a repository in a bucket alone (`init --single-writer`) that another has used alone. Two
    /// that do so at once lose data: say it only where the other does so no more
    #[arg(long, global = true)]
    pub take_over: bool,

    /// Wait so long for another prune or repair to end, such as 30s, 5m, 2h
    #[arg(long, value_name = "DURATION", value_parser = human::parse_duration, global = true)]
    pub retry_lock: Option<Duration>,

    #[command(flatten)]
    pub needless: Needless,
}

impl Global {
    /// Returns how often `-v` was given, or the number that it was given.
    pub fn verbosity(&self) -> u8 {
        self.verbose.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }
}

/// restic's options that ask for what is always so here: taken, so that scripts port, and told of in docs/restic.md
/// alone.
#[derive(Args, Debug)]
pub struct Needless {
    /// Repositories that may not be written to are read without locks anyway
    #[arg(long, global = true, hide = true)]
    no_lock: bool,
    /// All keys are tried
    #[arg(long, value_name = "ID", global = true, hide = true)]
    key_hint: Option<String>,
    /// No verification can be left out
    #[arg(long, global = true, hide = true)]
    no_extra_verify: bool,
    /// Containers have one size
    #[arg(long, value_name = "MIB", global = true, hide = true)]
    pack_size: Option<u32>,
    /// Option of other kinds of storage, as all that follow: front ends pass them for every repository
    #[arg(
        short = 'o',
        long,
        value_name = "KEY=VALUE",
        global = true,
        hide = true
    )]
    option: Vec<String>,
    /// Option of HTTPS storage
    #[arg(long, value_name = "FILE", global = true, hide = true)]
    tls_client_cert: Option<PathBuf>,
    /// Option of HTTPS storage
    #[arg(long, global = true, hide = true)]
    insecure_tls: bool,
    /// Option of HTTP storage
    #[arg(long, value_name = "TEXT", global = true, hide = true)]
    http_user_agent: Option<String>,
}

/// Compression levels by name.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub enum CompressionLevel {
    /// Store as it is
    Off,
    /// Faster than most disks
    Fastest,
    /// The best balance
    Auto,
    /// Smaller and slower
    Better,
    /// Smallest, for archives
    Max,
}

impl From<CompressionLevel> for Compression {
    fn from(level: CompressionLevel) -> Self {
        match level {
            CompressionLevel::Off => Compression::Off,
            CompressionLevel::Fastest => Compression::Fastest,
            CompressionLevel::Auto => Compression::Auto,
            CompressionLevel::Better => Compression::Better,
            CompressionLevel::Max => Compression::Max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_one_of_the_store() {
        for level in CompressionLevel::value_variants() {
            let name = level.to_possible_value().expect("none is skipped");
            assert_eq!(Compression::from(*level).name(), name.get_name());
        }
    }
}
