//! `onefold cache`: shows and removes what this machine keeps of repositories in buckets.

use std::time::{Duration, UNIX_EPOCH};

use onefold_backup::Time;
use serde_json::{Value, json};

use crate::error::Result;
use crate::exit::Exit;
use crate::global::Global;
use crate::human::{self, many};
use crate::machine_cache::{self, KeptFolder, OLD_AFTER};
use crate::out::{self, Out};
use crate::when;

/// Show or remove what this machine keeps of repositories in buckets
///
/// Each repository in a bucket has a folder on this machine, with the index of fingerprints and copies of snapshots and
/// metadata. All of it may be removed at any time: that costs time only.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Beginnings of repositories' ids; all repositories without
    #[arg(value_name = "REPOSITORY")]
    pub repositories: Vec<String>,

    /// Remove what is old: not used for so many days as --max-age says
    #[arg(long)]
    pub cleanup: bool,

    /// Remove all of it, old or not
    #[arg(long, conflicts_with = "cleanup")]
    pub clear: bool,

    /// Days without use after which a folder is old [default: 30]
    #[arg(long, value_name = "DAYS")]
    pub max_age: Option<u32>,

    /// Leave out sizes, which take a look at each file
    #[arg(long)]
    pub no_size: bool,
}

impl Args {
    fn max_age(&self) -> Duration {
        let days = self.max_age.map(u64::from);
        days.map_or(OLD_AFTER, |days| Duration::from_secs(days * 24 * 60 * 60))
    }

    fn names(&self, folder: &KeptFolder) -> bool {
        let is_begun_by = |beginning: &String| folder.repository.starts_with(beginning.as_str());
        self.repositories.is_empty() || self.repositories.iter().any(is_begun_by)
    }
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let parent = machine_cache::parent(global)?;
    let mut folders = machine_cache::all(&parent)?;
    folders.retain(|folder| args.names(folder));
    if args.cleanup || args.clear {
        folders.retain(|folder| args.clear || folder.is_older_than(args.max_age()));
        for folder in &folders {
            folder.remove()?;
            out.report(format_args!("removed {}", folder.path.display()))?;
        }
        if out.json {
            let removed: Vec<_> = folders.iter().map(|folder| row(folder, args)).collect();
            out.json(&json!({"message_type": "summary", "removed": removed}))?;
        } else if folders.is_empty() {
            out.say("nothing is to be removed")?;
        }
        return Ok(Exit::Ok);
    }
    show(&folders, args, out)?;
    out.say(format_args!(
        "{} in {}",
        many(folders.len() as u64, "repository"),
        parent.display()
    ))?;
    Ok(Exit::Ok)
}

fn show(folders: &[KeptFolder], args: &Args, out: &Out) -> Result<()> {
    if out.json {
        let all: Vec<_> = folders.iter().map(|folder| row(folder, args)).collect();
        return out.json(&all);
    }
    if folders.is_empty() {
        return Ok(());
    }
    let mut rows = vec![cells(
        [
            "Repository",
            "Last used",
            "Old",
            "Copies",
            "Index",
            "Folder",
        ]
        .map(String::from),
        args,
    )];
    for folder in folders {
        let old = if folder.is_older_than(args.max_age()) {
            "yes"
        } else {
            ""
        };
        let all = [
            folder.repository[..10].to_owned(),
            when::local(used(folder)),
            old.to_owned(),
            human::bytes(folder.copies_bytes),
            human::bytes(folder.index_bytes),
            out::safe(&folder.path.display().to_string()),
        ];
        rows.push(cells(all, args));
    }
    let right: &[usize] = if args.no_size { &[] } else { &[3, 4] };
    out.line(human::table(&rows, right).trim_end())
}

/// The cells of a row, without sizes where none are wanted.
fn cells(all: [String; 6], args: &Args) -> Vec<String> {
    let is_size = |at: usize| at == 3 || at == 4;
    let wanted = all
        .into_iter()
        .enumerate()
        .filter(|(at, _)| !(args.no_size && is_size(*at)));
    wanted.map(|(_, cell)| cell).collect()
}

fn row(folder: &KeptFolder, args: &Args) -> Value {
    let mut row = json!({
        "repository": folder.repository,
        "last_used": when::rfc3339(used(folder)),
        "old": folder.is_older_than(args.max_age()),
        "path": folder.path.display().to_string(),
    });
    if !args.no_size {
        row["copies_bytes"] = folder.copies_bytes.into();
        row["index_bytes"] = folder.index_bytes.into();
    }
    row
}

fn used(folder: &KeptFolder) -> Time {
    let since = folder.used.duration_since(UNIX_EPOCH).unwrap_or_default();
    Time {
        secs: since.as_secs() as i64,
        nanos: since.subsec_nanos(),
    }
}
