//! `onefold prune`: gives back the space of chunks that no snapshot needs any more. Backups may run meanwhile.

use std::time::Duration;

use onefold_backup::roots::SnapshotRoots;
use onefold_store::{Repository, Roots, SweepOptions, Unused};

use crate::error::Result;
use crate::exit::Exit;
use crate::global::Global;
use crate::out::Out;
use crate::patience::Patience;
use crate::sweeping::{self, SweepWatch};
use crate::{human, repository};

/// Reclaim space that no snapshot needs
///
/// Runs beside backups and restores; nothing that they may still need is deleted. Interrupted anywhere, it loses
/// nothing, and the next prune finishes it. What backups that ran at once stored twice is kept once.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Only say what would be freed. Changes nothing, and waits for nobody: while another prune runs, the figures are
    /// those of a moment
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub how: How,
}

/// How to sweep; `forget --prune` has the same flags.
#[derive(clap::Args, Debug)]
pub struct How {
    /// Rewrite containers of which less than this is in use; 0% rewrites none
    #[arg(long, value_name = "PERCENT", value_parser = human::parse_percent, default_value = "70%")]
    pub compact_below: f64,

    /// Instead: rewrite, those with most to gain first, until at most this is unused: a size, a percentage of what is
    /// stored, or "unlimited"
    #[arg(long, value_name = "LIMIT", value_parser = unused, conflicts_with = "compact_below")]
    pub max_unused: Option<Unused>,

    /// Also rewrite containers smaller than this into whole ones
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes, default_value = "0")]
    pub repack_smaller_than: u64,

    /// Rewrite at most so much; 0 rewrites nothing
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    pub max_repack_size: Option<u64>,

    /// Wait at most so long for backups and restores that still run; what they may need is left to the next prune
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub wait: u64,

    /// Delete nothing that a prune of the last so long has condemned, by the store's clock; what is new waits for a
    /// later prune. Default: 24h on object storage, else 0s
    #[arg(long, value_name = "DURATION", value_parser = human::parse_duration)]
    pub grace: Option<Duration>,
}

fn unused(text: &str) -> Result<Unused, String> {
    match text {
        "unlimited" => Ok(Unused::Share(1.0)),
        _ if text.ends_with('%') => human::parse_percent(text).map(Unused::Share),
        _ => human::parse_bytes(text).map(Unused::Bytes),
    }
}

impl How {
    /// Returns the engine's options.
    pub fn options(&self, dry_run: bool) -> SweepOptions {
        SweepOptions {
            dry_run,
            compact_below: self.compact_below,
            unused_max: self.max_unused,
            rewrite_smaller_than: self.repack_smaller_than,
            rewrite_bytes_max: self.max_repack_size,
            grace_s: self.grace.map(|grace| grace.as_secs()),
        }
    }
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let repository = repository::open(global, "a prune")?;
    let patience = Patience::new(global, out);
    patience.keep(|| sweep(&repository, &SnapshotRoots, &args.how, args.dry_run, out))?;
    Ok(Exit::Ok)
}

/// Sweeps chunks that `roots` do not reach, and prints the result.
pub fn sweep(
    repository: &Repository,
    roots: &impl Roots,
    how: &How,
    dry_run: bool,
    out: &Out,
) -> Result<()> {
    let options = how.options(dry_run);
    let mut watch = SweepWatch::new(out, Duration::from_secs(how.wait));
    let swept = repository.sweep(roots, &options, &mut watch);
    let report = swept.map_err(sweeping::unread_named)?;
    drop(watch);
    sweeping::print(&report, dry_run, out)
}
