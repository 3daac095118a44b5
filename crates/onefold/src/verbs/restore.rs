//! `onefold restore`: files from a snapshot.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::ValueEnum;
use onefold_backup::exclude::{Patterns, PatternsBuilder};
use onefold_backup::restore::{self, Options, Overwrite, Summary};
use onefold_store::SessionKind;
use serde_json::json;

use crate::cli::Global;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::human::{self, bytes, many};
use crate::out::Out;
use crate::progress::{Doing, Meter};
use crate::repository;
use crate::select::{self, FilterArgs, Spec, short};

/// Restore files from a snapshot
///
/// Nothing outside of the target folder is ever touched, whatever the snapshot says. Every chunk is verified before it is written.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Beginning of an id, or "latest"; with ":PATH" what is below it goes right into the target
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub snapshot: OsString,

    /// The folder to restore into; made where it is missing
    #[arg(short, long, value_name = "FOLDER")]
    pub target: OsString,

    /// Only what matches (repeatable): a name or glob, or a path with a leading /
    #[arg(short, long, value_name = "PATTERN")]
    pub include: Vec<String>,

    /// The same, case does not matter
    #[arg(long, value_name = "PATTERN")]
    pub iinclude: Vec<String>,

    /// Not what matches (repeatable)
    #[arg(short, long, value_name = "PATTERN")]
    pub exclude: Vec<String>,

    /// The same, case does not matter
    #[arg(long, value_name = "PATTERN")]
    pub iexclude: Vec<String>,

    #[command(flatten)]
    pub filter: FilterArgs,

    /// What to do with files that are there already
    #[arg(long, value_name = "WHEN", default_value = "always")]
    pub overwrite: When,

    /// Remove from the restored folders of the target what is not in the snapshot
    #[arg(long)]
    pub delete: bool,

    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Leave owners as they come: the user who restores owns everything
    #[arg(long)]
    pub no_owners: bool,

    /// Restore owners by number, even where their names have other numbers on this machine (ACLs always go by number)
    #[arg(long, alias = "numeric-ids", conflicts_with = "no_owners")]
    pub numeric_owner: bool,

    /// Do not restore extended attributes and ACLs
    #[arg(long)]
    pub no_xattrs: bool,
}

/// What to do with files that are there already.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub enum When {
    /// Replace them
    Always,
    /// Replace them where size or time differ
    IfChanged,
    /// Replace them where the snapshot's is newer
    IfNewer,
    /// Leave them
    Never,
}

impl From<When> for Overwrite {
    fn from(when: When) -> Self {
        match when {
            When::Always => Overwrite::Always,
            When::IfChanged => Overwrite::IfChanged,
            When::IfNewer => Overwrite::IfNewer,
            When::Never => Overwrite::Never,
        }
    }
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    let spec = Spec::parse(&args.snapshot)?;
    if args.target.is_empty() {
        return Err(Error::Usage("the target folder is empty".into()));
    }
    if args
        .include
        .iter()
        .chain(&args.iinclude)
        .any(String::is_empty)
    {
        return Err(Error::Usage("an empty pattern includes nothing".into()));
    }
    let options = options(args, &spec)?;
    let repository = repository::open(global, "a restore")?;
    // What the snapshot refers to stays from here on.
    let session = repository.session(SessionKind::Read)?;
    let named = select::one(&repository, &spec.snapshot, &args.filter.filter()?)?;
    let target =
        std::path::absolute(&args.target).map_err(|e| Error::io("find the current folder", e))?;
    if !args.dry_run {
        out.say(format_args!(
            "restoring snapshot {} into {}",
            short(&named.id),
            target.display()
        ))?;
    }
    let meter = Meter::new(Doing::Restore, out);
    let done = meter.run(|| {
        let target = target.as_os_str().as_bytes();
        restore::run(
            &session,
            &named.snapshot,
            target,
            &options,
            &meter.progress,
            &meter,
        )
    });
    let summary = done?;
    session.finish()?;
    print(args, &summary, meter.elapsed(), out)?;
    Ok(match summary.errors {
        0 => Exit::Ok,
        _ if summary.is_full => Exit::NoSpace,
        _ => Exit::Incomplete,
    })
}

fn options(args: &Args, spec: &Spec) -> Result<Options> {
    let defaults = Options::default();
    Ok(Options {
        path: spec.path.clone(),
        include: patterns(&args.include, &args.iinclude)?,
        exclude: patterns(&args.exclude, &args.iexclude)?,
        overwrite: args.overwrite.into(),
        dry_run: args.dry_run,
        delete: args.delete,
        owners: defaults.owners && !args.no_owners,
        numeric_owners: args.numeric_owner,
        xattrs: !args.no_xattrs,
        ..defaults
    })
}

fn patterns(exact: &[String], any_case: &[String]) -> Result<Patterns> {
    let mut builder = PatternsBuilder::default();
    for (list, ignore_case) in [(exact, false), (any_case, true)] {
        list.iter()
            .try_for_each(|pattern| builder.add(pattern, ignore_case))?;
    }
    Ok(builder.build()?)
}

fn print(args: &Args, summary: &Summary, elapsed: std::time::Duration, out: &Out) -> Result<()> {
    let left = summary.skipped + summary.failed;
    let restored = summary.files.saturating_sub(left);
    let restored_bytes = summary.bytes.saturating_sub(summary.left_bytes);
    if out.json {
        return out.json(&json!({
            "message_type": "summary",
            "dry_run": args.dry_run,
            "seconds_elapsed": elapsed.as_secs(),
            "total_files": summary.files,
            "files_restored": restored,
            "files_skipped": summary.skipped,
            "files_deleted": summary.deleted,
            "total_bytes": summary.bytes,
            "bytes_restored": restored_bytes,
            "error_count": summary.errors,
        }));
    }
    let did = if args.dry_run {
        "would restore"
    } else {
        "restored"
    };
    let rate = bytes((restored_bytes as f64 / elapsed.as_secs_f64().max(1e-9)) as u64);
    out.say(format_args!(
        "{did} {}, {}, {} other: {} in {} ({rate}/s)",
        many(restored, "file"),
        many(summary.dirs, "folder"),
        human::count(summary.others),
        bytes(restored_bytes),
        human::duration(elapsed)
    ))?;
    if summary.skipped > 0 {
        out.say(format_args!(
            "{} {} as they were",
            if args.dry_run { "would leave" } else { "left" },
            many(summary.skipped, "file")
        ))?;
    }
    if summary.deleted > 0 {
        out.say(format_args!(
            "{} {} from the target",
            if args.dry_run {
                "would remove"
            } else {
                "removed"
            },
            many(summary.deleted, "entry")
        ))?;
    }
    if summary.errors > 0 {
        out.note(format_args!(
            "{} could not be restored",
            many(summary.errors, "path")
        ));
    }
    Ok(())
}
