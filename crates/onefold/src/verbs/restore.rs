//! `onefold restore`: restores files from a snapshot.

mod device;
mod own;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use clap::ValueEnum;
use onefold_backup::exclude::{Patterns, PatternsBuilder};
use onefold_backup::restore::{self, AttributeChoice, Lacking, Options, Overwrite, RestoreSummary};
use onefold_store::SessionKind;
use serde_json::json;

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::human::{self, bytes, many};
use crate::out::Out;
use crate::patterns;
use crate::progress::{Doing, Meter};
use crate::repository;
use crate::select::{self, FilterArgs, Spec, short};

/// Containers that are read at once, however many a place would take: each reader has a cache of 16 MiB.
const READERS_MAX: usize = 8;

/// Restore files from a snapshot
///
/// Nothing outside of the target folder is ever touched, whatever the snapshot says. Every chunk is verified before it
/// is written.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Beginning of an id, or "latest"; with ":PATH" what is below it goes right into the target
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub snapshot: OsString,

    /// The folder to restore into; where it is missing it is made, with the mode, owner and times of PATH if that is a
    /// folder. Onto a block device, or as volume:DEPOT:NAME into a volume, goes the snapshot's one file, or the file
    /// PATH: the image of a device
    #[arg(short, long, value_name = "FOLDER")]
    pub target: OsString,

    /// Paths to restore, and no others (repeatable): a name or glob, or a path with a leading /, which begins at PATH
    #[arg(short, long, value_name = "PATTERN")]
    pub include: Vec<OsString>,

    /// Like --include, but case does not matter
    #[arg(long, value_name = "PATTERN")]
    pub iinclude: Vec<OsString>,

    /// File of patterns for --include, one a line (repeatable)
    #[arg(long, value_name = "FILE")]
    pub include_file: Vec<OsString>,

    /// Like --include-file, but case does not matter
    #[arg(long, value_name = "FILE")]
    pub iinclude_file: Vec<OsString>,

    /// Paths not to restore (repeatable)
    #[arg(short, long, value_name = "PATTERN")]
    pub exclude: Vec<OsString>,

    /// Like --exclude, but case does not matter
    #[arg(long, value_name = "PATTERN")]
    pub iexclude: Vec<OsString>,

    /// File of patterns for --exclude, one a line (repeatable)
    #[arg(long, value_name = "FILE")]
    pub exclude_file: Vec<OsString>,

    /// Like --exclude-file, but case does not matter
    #[arg(long, value_name = "FILE")]
    pub iexclude_file: Vec<OsString>,

    #[command(flatten)]
    pub filter: FilterArgs,

    /// How to treat files and folders that are there already (default: always); folders that only lead to what is
    /// chosen stay as they are. A volume that is there is restored onto where "always" is said
    #[arg(long, value_name = "WHEN")]
    pub overwrite: Option<OverwriteWhen>,

    /// Remove from the restored folders of the target what is not in the snapshot; not with patterns, which restore
    /// only parts of folders
    #[arg(long)]
    pub delete: bool,

    /// Read back what was restored, content and metadata, and compare it with the snapshot
    #[arg(long)]
    pub verify: bool,

    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Leave owners as they come: the user who restores owns everything. For targets that keep no owners, such as FAT
    #[arg(long)]
    pub no_owners: bool,

    /// Take the modes that the target gives: the snapshot's are set where they can be, and others are no error. For
    /// targets that keep none, such as FAT
    #[arg(long)]
    pub no_modes: bool,

    /// Restore owners by number, even where their names have other numbers on this machine (ACLs always go by number)
    #[arg(long, alias = "numeric-ids", conflicts_with = "no_owners")]
    pub numeric_owner: bool,

    /// Do not restore extended attributes and ACLs. For targets that keep none, such as FAT
    #[arg(long)]
    pub no_xattrs: bool,

    /// Only extended attributes whose name matches, such as user.* (repeatable)
    #[arg(long, value_name = "PATTERN", conflicts_with = "no_xattrs")]
    pub include_xattr: Vec<String>,

    /// No extended attributes whose name matches (repeatable)
    #[arg(long, value_name = "PATTERN", conflicts_with = "no_xattrs")]
    pub exclude_xattr: Vec<String>,

    /// Taken as restic's: holes are always restored as holes
    #[arg(long, hide = true)]
    pub sparse: bool,

    /// Taken as restic's: owners always come back by name
    #[arg(long, hide = true, conflicts_with = "numeric_owner")]
    pub ownership_by_name: bool,
}

/// The way to treat files that are there already.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub enum OverwriteWhen {
    /// Replace them
    Always,
    /// Replace them where size or time differ
    IfChanged,
    /// Replace them where the snapshot's is newer
    IfNewer,
    /// Leave them, unless a restore that was killed left them half written
    Never,
}

impl From<OverwriteWhen> for Overwrite {
    fn from(when: OverwriteWhen) -> Self {
        match when {
            OverwriteWhen::Always => Overwrite::Always,
            OverwriteWhen::IfChanged => Overwrite::IfChanged,
            OverwriteWhen::IfNewer => Overwrite::IfNewer,
            OverwriteWhen::Never => Overwrite::Never,
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
        .any(|pattern| pattern.is_empty())
    {
        return Err(Error::Usage("an empty pattern includes nothing".into()));
    }
    if device::is_one(&args.target) {
        return device::run(args, &spec, global, out);
    }
    let place = repository::place(global)?;
    let target =
        std::path::absolute(&args.target).map_err(|e| Error::io("find the current folder", e))?;
    own::refuse_inside(&target, &place)?;
    let mut options = options(args, &spec, out)?;
    let repository = repository::open_at(global, &place, "a restore", false)?;
    options.kept = own::folders(&place)?;
    options.readers = repository.ways().gets_at_once.min(READERS_MAX);
    // Objects that the snapshot refers to stay from here on.
    let session = repository.session(SessionKind::Read)?;
    let named = select::one(&repository, &spec.snapshot, &args.filter.filter()?)?;
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
    let summary = done.map_err(|error| spec.explain(error))?;
    session.finish()?;
    print(args, &summary, meter.elapsed(), out)?;
    Ok(
        match summary.errors + summary.unread + summary.unread_attributes {
            0 => Exit::Ok,
            _ if summary.is_full => Exit::NoSpace,
            _ if summary.lost + summary.lost_parts > 0 => {
                return Err(Error::Damaged(lost(&summary)));
            }
            _ => Exit::Incomplete,
        },
    )
}

/// Returns a sentence about paths of which the repository has no good copy. The number of paths in a lost part of the
/// listing is not known.
fn lost(summary: &RestoreSummary) -> String {
    let paths = many(summary.lost, "path");
    if summary.lost_parts == 0 {
        return format!("the repository has no good copy of {paths}; everything else is restored");
    }
    let also = match summary.lost {
        0 => String::new(),
        _ => format!(" and of {paths}"),
    };
    let rest = match summary.files + summary.dirs + summary.others {
        0 => "nothing is restored",
        _ => "what they named is not restored, and cannot be counted",
    };
    let parts = many(summary.lost_parts, "part");
    format!("the repository has no good copy of {parts} of the snapshot's listing{also}: {rest}")
}

fn options(args: &Args, spec: &Spec, out: &Out) -> Result<Options> {
    let defaults = Options::default();
    let include = patterns_of(
        &spec.path,
        [&args.include, &args.iinclude],
        [&args.include_file, &args.iinclude_file],
        out,
    )?;
    let has_include_file = !(args.include_file.is_empty() && args.iinclude_file.is_empty());
    if has_include_file && include.is_empty() {
        return Err(Error::Usage(
            "the files of patterns hold none, so nothing would be restored".into(),
        ));
    }
    let exclude = patterns_of(
        &spec.path,
        [&args.exclude, &args.iexclude],
        [&args.exclude_file, &args.iexclude_file],
        out,
    )?;
    Ok(Options {
        path: spec.path.clone(),
        include,
        exclude,
        overwrite: args.overwrite.map_or(Overwrite::Always, Into::into),
        dry_run: args.dry_run,
        delete: args.delete,
        owners: defaults.owners && !args.no_owners,
        modes: !args.no_modes,
        numeric_owners: args.numeric_owner,
        xattrs: attributes(args)?,
        verify: args.verify && !args.dry_run,
        count: Meter::new(Doing::Restore, out).is_shown(),
        ..defaults
    })
}

fn attributes(args: &Args) -> Result<AttributeChoice> {
    Ok(AttributeChoice {
        include: Patterns::new(&args.include_xattr)?,
        exclude: Patterns::new(&args.exclude_xattr)?,
        none: args.no_xattrs,
    })
}

fn patterns_of(
    below: &[u8],
    given: [&[OsString]; 2],
    files: [&[OsString]; 2],
    out: &Out,
) -> Result<Patterns> {
    let mut builder = PatternsBuilder::below(below);
    patterns::add_all(&mut builder, given, files, out)?;
    Ok(builder.build()?)
}

fn print(args: &Args, summary: &RestoreSummary, elapsed: Duration, out: &Out) -> Result<()> {
    let left = summary.skipped + summary.failed;
    let restored = summary.files.saturating_sub(left);
    let restored_bytes = summary
        .bytes
        .saturating_sub(summary.skipped_bytes + summary.failed_bytes);
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
            "bytes_skipped": summary.skipped_bytes,
            "files_verified": summary.verified,
            "error_count": summary.errors,
            "incomplete_metadata_count": summary.lacking,
            "incomplete_metadata": summary.lacking_what,
            "unread_count": summary.unread,
            "unread_attributes_count": summary.unread_attributes,
            "lost_listing_parts": summary.lost_parts,
        }));
    }
    print_restored(args, summary, (restored, restored_bytes), elapsed, out)?;
    print_others(args, summary, out)
}

/// Prints how much was restored, and whether it was read back.
fn print_restored(
    args: &Args,
    summary: &RestoreSummary,
    (restored, restored_bytes): (u64, u64),
    elapsed: Duration,
    out: &Out,
) -> Result<()> {
    let did = if args.dry_run {
        "would restore"
    } else {
        "restored"
    };
    let speed = speed(args, restored_bytes, elapsed);
    let others = summary
        .others
        .saturating_sub(summary.failed_others + summary.skipped_others);
    let folders = summary
        .dirs
        .saturating_sub(summary.failed_dirs + summary.skipped_dirs);
    out.say(format_args!(
        "{did} {}, {}, {} other: {}{speed}",
        many(restored, "file"),
        many(folders, "folder"),
        human::count(others),
        bytes(restored_bytes)
    ))?;
    let given = args.include.len() + args.iinclude.len();
    let is_part = given + args.include_file.len() + args.iinclude_file.len() > 0;
    if is_part && summary.files + summary.dirs + summary.others == 0 {
        out.note("nothing in the snapshot matches the patterns");
    }
    if args.verify && !args.dry_run {
        let what = match (summary.verified, summary.lacking) {
            (0, _) => "",
            (_, 0) => ": as in the snapshot",
            (_, _) => ": their content is as in the snapshot",
        };
        let files = many(summary.verified, "file");
        out.say(format_args!("read back {files}{what}"))?;
    }
    Ok(())
}

/// Prints how much stayed, was deleted, failed, or is not in the snapshot.
fn print_others(args: &Args, summary: &RestoreSummary, out: &Out) -> Result<()> {
    let stayed = summary.skipped + summary.skipped_dirs + summary.skipped_others;
    if stayed > 0 {
        let others = || format!("{} other", human::count(summary.skipped_others));
        let kinds = [
            (summary.skipped > 0).then(|| many(summary.skipped, "file")),
            (summary.skipped_dirs > 0).then(|| many(summary.skipped_dirs, "folder")),
            (summary.skipped_others > 0).then(others),
        ];
        let kinds: Vec<String> = kinds.into_iter().flatten().collect();
        out.say(format_args!(
            "{} {} as {}",
            if args.dry_run { "would leave" } else { "left" },
            kinds.join(", "),
            if stayed == 1 { "it was" } else { "they were" }
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
    let errors = summary.errors - summary.lost_parts - summary.lacking;
    if errors > 0 {
        out.note(format_args!(
            "{} could not be restored",
            many(errors, "path")
        ));
    }
    if summary.is_full {
        out.note(
            "the target is full, or a quota or size limit is reached: make room, then run it again",
        );
    }
    if summary.lacking > 0 {
        out.note(lacking(summary));
    }
    if summary.unread > 0 {
        out.note(human::unread("the snapshot", summary.unread));
    }
    if summary.unread_attributes > 0 {
        out.note(human::unread_attributes(
            "the snapshot",
            summary.unread_attributes,
        ));
    }
    Ok(())
}

/// Returns a sentence about paths that lack metadata, with the option that does not ask for it.
fn lacking(summary: &RestoreSummary) -> String {
    let (paths, lack) = match summary.lacking {
        1 => ("1 path".into(), "lacks some of its"),
        more => (many(more, "path"), "lack some of their"),
    };
    let Lacking {
        owner,
        mode,
        times,
        attributes,
    } = summary.lacking_what;
    let kinds = [
        ("owner", owner),
        ("mode", mode),
        ("times", times),
        ("attributes", attributes),
    ];
    let kinds = kinds.into_iter().filter(|(_, paths)| *paths > 0);
    let kinds: Vec<String> = kinds
        .map(|(kind, paths)| format!("{kind} of {}", human::count(paths)))
        .collect();
    let remedy = match (owner, mode, attributes) {
        (0, 0, 0) => "",
        (0, 0, _) => "; on a target that keeps no attributes, --no-xattrs does not ask for them",
        (0, _, 0) => "; on a target that keeps no modes, --no-modes does not ask for them",
        _ => {
            "; on a target that keeps no owners, modes or attributes, such as FAT, --no-owners --no-modes --no-xattrs does not ask for them"
        }
    };
    format!("{paths} {lack} metadata: {}{remedy}", kinds.join(", "))
}

/// Returns time and speed; empty where nothing was done.
fn speed(args: &Args, restored_bytes: u64, elapsed: Duration) -> String {
    if args.dry_run {
        return String::new();
    }
    let rate = restored_bytes as f64 / elapsed.as_secs_f64().max(1e-9);
    format!(
        " in {} ({}/s)",
        human::duration(elapsed),
        bytes(rate as u64)
    )
}
