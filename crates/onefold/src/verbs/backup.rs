//! `onefold backup`: a new snapshot.

mod globs;
mod sources;
mod summary;

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use clap::Arg;
use clap::builder::BoolishValueParser;
use onefold_backup::Time;
use onefold_backup::backup::{self, Input, Options, Outcome, Parent, Rules, Tars};
use onefold_backup::exclude::Excludes;
use onefold_backup::forget::GroupBy;
use onefold_backup::snapshots::SnapshotFilter;
use onefold_backup::walk::{self, Walk};
use onefold_store::{Repository, Secret};

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::global::Global;
use crate::leave_out::LeaveOut;
use crate::named_file::{self, TEXT_BYTES_MAX};
use crate::out::Out;
use crate::progress::{Doing, Expected, Meter};
use crate::select::{self, Spec, short, tag_list};
use crate::site::Site;
use crate::verbs::init::{self, Choices};
use crate::{group, machine, repository, when};

/// Back up files and folders
///
/// Makes a snapshot of the paths. Files that have not changed since the last snapshot of the same host and paths are
/// not read again; of those that are read, only bytes that the repository does not hold yet are stored.
#[derive(clap::Args, Debug)]
#[command(mut_args(listed_by_init))]
pub struct Args {
    /// Files and folders to back up
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,

    /// Read further paths from a file, one a line, each a glob (*, ?, [a-z]); # begins a comment (repeatable; - for
    /// standard input)
    #[arg(long, value_name = "FILE")]
    pub files_from: Vec<OsString>,

    /// Like --files-from, but names are taken as they are: no globs, no comments
    #[arg(long, value_name = "FILE")]
    pub files_from_verbatim: Vec<OsString>,

    /// Like --files-from, but names are taken as they are and separated by zero bytes
    #[arg(long, value_name = "FILE")]
    pub files_from_raw: Vec<OsString>,

    /// Back up standard input as one file
    #[arg(long, conflicts_with_all = ["files_from", "files_from_verbatim", "files_from_raw"])]
    pub stdin: bool,

    /// Back up what the command prints as one file; the arguments, behind --, are the command
    #[arg(long, conflicts_with_all = ["stdin", "files_from", "files_from_verbatim", "files_from_raw"])]
    pub stdin_from_command: bool,

    /// Name of that file in the snapshot
    #[arg(long, value_name = "NAME", default_value = "stdin")]
    pub stdin_filename: OsString,

    /// Take what begins as an old tar for one, too. A tar is cut at its members, so that files stored already are found
    /// in it; without this, only what begins as a POSIX or GNU tar is
    #[arg(long)]
    pub tar_aware: bool,

    /// Take nothing for a tar
    #[arg(long, conflicts_with = "tar_aware")]
    pub no_tar_aware: bool,

    /// How types of files are cut, where the repository's chunker is "context": lines of content|fixed|whole|tar
    /// compress|as-is EXTENSION…
    #[arg(long, value_name = "FILE")]
    pub chunk_rules: Option<OsString>,

    /// Tags of the snapshot (repeatable)
    #[arg(long, value_name = "TAG[,TAG…]")]
    pub tag: Vec<String>,

    /// Name of the host (default: this one's)
    #[arg(
        short = 'H',
        long,
        value_name = "HOST",
        env = "ONEFOLD_HOST",
        hide_env_values = true
    )]
    pub host: Option<String>,

    /// Time of the snapshot, such as "2026-02-03 04:05:06" (default: now)
    #[arg(long, value_name = "TIME")]
    pub time: Option<String>,

    /// The snapshot that tells what is unchanged (default: the last of the same series)
    #[arg(long, value_name = "SNAPSHOT")]
    pub parent: Option<OsString>,

    /// Words that snapshots of one series share: a list of host, paths, tags
    #[arg(short, long, value_name = "WORDS", default_value = "host,paths", value_parser = group::parse)]
    pub group_by: GroupBy,

    /// Read every file, changed or not
    #[arg(short, long, visible_alias = "force-reread")]
    pub force: bool,

    /// Keep times of access, too, and restore them
    #[arg(long)]
    pub with_atime: bool,

    /// A new ctime alone does not make a file changed
    #[arg(long, env = "ONEFOLD_IGNORE_CTIME", hide_env_values = true, value_parser = BoolishValueParser::new())]
    pub ignore_ctime: bool,

    /// A new inode number or ctime alone does not make a file changed
    #[arg(long, env = "ONEFOLD_IGNORE_INODE", hide_env_values = true, value_parser = BoolishValueParser::new())]
    pub ignore_inode: bool,

    /// Where a path belongs: the snapshot has it there. Once for each path, in their order; for what was restored or
    /// mounted elsewhere, so that its series goes on
    #[arg(long = "as", value_name = "PATH", conflicts_with_all = ["stdin", "stdin_from_command", "files_from", "files_from_verbatim", "files_from_raw"])]
    pub stored_as: Vec<OsString>,

    /// Read devices and pipes that are given, each as one file; without this they are saved as such, and the exit code
    /// is 3
    #[arg(long)]
    pub read_special: bool,

    /// Make no snapshot if nothing has changed
    #[arg(long)]
    pub skip_if_unchanged: bool,

    /// Only say what would be stored: nothing is
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Do not count the files first: no percentage, no time left
    #[arg(long)]
    pub no_scan: bool,

    /// Files read at once
    #[arg(long, value_name = "N", env = "ONEFOLD_READ_CONCURRENCY", hide_env_values = true, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub read_concurrency: Option<u16>,

    /// Make the repository if there is none
    #[arg(long)]
    pub init: bool,

    #[command(flatten)]
    pub choices: Choices,

    #[command(flatten)]
    pub leave_out: LeaveOut,
}

/// Shortens the help of options that choose among the names for a new repository: the names are a page.
fn listed_by_init(arg: Arg) -> Arg {
    let what = match arg.get_id().as_str() {
        "chunker" => "Of a new repository: how contents are cut",
        "index" => "Of a new repository: the index that knows which chunks are stored",
        _ => return arg,
    };
    arg.help(format!("{what} (`onefold init --help` lists the names)"))
        .hide_possible_values(true)
}

pub fn run(args: &Args, global: &Global, out: &Out) -> Result<Exit> {
    onefold_io::os::tune_heap();
    let place = repository::place(global)?;
    let (input, mut command, volume) = sources::input(args, out)?;
    let (mut excludes, words) = args.leave_out.excludes(out)?;
    let asked = ParsedOptions::of(args)?;
    // A mistyped source makes no repository either, nor does the repository's own folder.
    let places = sources::places(&input);
    if !places.is_empty() {
        excludes
            .folders
            .extend(place.folder().and_then(sources::own_folder));
        backup::confirm_sources(&places, &excludes)?;
    }
    let repository = open(args, global, &place, out)?;
    if !places.is_empty() {
        // The repository may have been made just now.
        let index = repository::index_folder(&place, global, &repository);
        if let Some(folder) = place.folder() {
            excludes.folders = sources::own_folder(folder).into_iter().collect();
            sources::say_left_out(&places, (folder, "the repository itself"), out)?;
        }
        if let Some(index) = index {
            excludes.folders.extend(sources::own_folder(&index));
            sources::say_left_out(&places, (&index, "the repository's index"), out)?;
        }
    }
    let options = options(args, asked, global, &repository, (excludes, words))?;
    let meter = Meter::new(Doing::Backup, out);
    let is_stream = matches!(input, Input::Stream(..));
    let done = meter.run(|| {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if !args.no_scan && (out.bar || out.json) {
                start_scan(scope, &input, &options, &meter.expected, &ended);
            }
            let progress = &meter.progress;
            let ended_well = || {
                if let Some(volume) = &volume {
                    volume.ended_well()?;
                }
                if let Some(command) = &mut command {
                    command.ended_well(progress)?;
                }
                sources::has_come(is_stream, progress)
            };
            let done = backup::run_if(&repository, input, &options, progress, &meter, ended_well);
            ended.store(true, Relaxed);
            done
        })
    });
    let outcome = done?;
    summary::print(&outcome, &meter, args.dry_run, global, out)
        .and_then(|()| out.flush())
        .map_err(|error| saved_all_the_same(error, &outcome))?;
    Ok(if outcome.snapshot.summary.errors > 0 {
        Exit::Incomplete
    } else {
        Exit::Ok
    })
}

/// Returns the error of writing the summary; it says that the snapshot is saved all the same.
fn saved_all_the_same(error: Error, outcome: &Outcome) -> Error {
    match (error, &outcome.id) {
        (Error::Io { what, source }, Some(id)) => {
            let what = format!(
                "snapshot {} is saved, but its summary is not: {what}",
                short(id)
            );
            Error::Io { what, source }
        }
        (error, _) => error,
    }
}

/// Opens the repository; where there is none, makes it if `--init` says so or the person at the terminal wants it.
fn open(args: &Args, global: &Global, place: &Site, out: &Out) -> Result<Repository> {
    let activity = "a backup";
    if place.has_repository()? {
        let repository = repository::open_at(global, place, activity, args.dry_run)?;
        let differing = init::differing(&args.choices, &repository, place.group_access()?);
        if !out.quiet && !out.json {
            differing.iter().for_each(|text| out.note(text));
        }
        return Ok(repository);
    }
    if args.dry_run {
        return Err(Error::NoRepository(place.display()));
    }
    let is_wanted =
        args.init || (repository::on_terminal() && !args.stdin && repository::offer(place)?);
    if !is_wanted {
        return Err(Error::NoRepository(place.display()));
    }
    let secret: Option<Secret> = init::make(&args.choices, global, place, out)?;
    repository::open_with(global, place, activity, secret.as_ref())
}

/// Options that are parsed before anything is begun, so that a mistake is reported at once.
struct ParsedOptions {
    time: Option<Time>,
    parent: Option<Spec>,
    chunk_rules: Option<Arc<Rules>>,
}

impl ParsedOptions {
    fn of(args: &Args) -> Result<Self> {
        Ok(Self {
            time: args
                .time
                .as_deref()
                .map(when::parse)
                .transpose()
                .map_err(Error::Usage)?,
            parent: args.parent.as_ref().map(Spec::parse).transpose()?,
            chunk_rules: args.chunk_rules.as_ref().map(chunk_rules).transpose()?,
        })
    }
}

fn options(
    args: &Args,
    asked: ParsedOptions,
    global: &Global,
    repository: &Repository,
    (excludes, words): (Excludes, Vec<Vec<u8>>),
) -> Result<Options> {
    let parent = match &asked.parent {
        Some(spec) => parent(repository, &spec.snapshot)?,
        None => Parent::Newest(args.group_by),
    };
    let defaults = Options::default();
    Ok(Options {
        readers: args.read_concurrency.map_or(defaults.readers, usize::from),
        hashers: repository::threads(global),
        excludes: Arc::new(excludes),
        exclude_words: words,
        one_file_system: args.leave_out.one_file_system,
        read_special: args.read_special,
        parent,
        force_reread: args.force,
        with_atime: args.with_atime,
        ignore_ctime: args.ignore_ctime || args.ignore_inode,
        ignore_inode: args.ignore_inode,
        chunk_rules: asked.chunk_rules,
        tars: match (args.tar_aware, args.no_tar_aware) {
            (true, _) => Some(Tars::Checksum),
            (_, true) => None,
            _ => defaults.tars,
        },
        skip_if_unchanged: args.skip_if_unchanged,
        tags: args.tag.iter().flat_map(|list| tag_list(list)).collect(),
        host: args
            .host
            .clone()
            .filter(|host| !host.is_empty())
            .unwrap_or_else(machine::host),
        user: machine::user(),
        uid_gid: machine::uid_gid(),
        program: machine::program(),
        time: asked.time.unwrap_or_else(when::now),
        clock: when::now,
        ..defaults
    })
}

/// Returns the parent that is asked for. A snapshot that cannot be read may be the latest one; as a parent an older one
/// does as well.
fn parent(repository: &Repository, name: &str) -> Result<Parent> {
    if name == "latest" {
        return Ok(Parent::Newest(GroupBy::ALL));
    }
    let named = select::one(repository, name, &SnapshotFilter::default())?;
    Ok(Parent::This(named.id))
}

fn chunk_rules(file: &OsString) -> Result<Arc<Rules>> {
    let name = Path::new(file).display();
    let text = named_file::read_text(Path::new(file), TEXT_BYTES_MAX);
    let text = text.map_err(|e| Error::io(format!("read {name}"), e))?;
    let rules = Rules::with(&text).map_err(|e| Error::Usage(format!("{name}: {e}")))?;
    Ok(Arc::new(rules))
}

/// Counts files beside the backup, for the percentage and the time left. Ends when the backup does.
fn start_scan<'scope, 'env>(
    scope: &'scope std::thread::Scope<'scope, 'env>,
    input: &Input,
    options: &Options,
    expected: &'env Expected,
    ended: &'scope AtomicBool,
) {
    let options = walk::Options {
        threads: 1,
        excludes: Arc::clone(&options.excludes),
        one_file_system: options.one_file_system,
        read_special: options.read_special,
        open_files: 0,
        failing: walk::SOUND,
    };
    let walk = match input {
        Input::Paths(paths) => Walk::start(paths, &options),
        Input::Moved(moved) => Walk::start_moved(moved, &options),
        Input::Stream(..) | Input::Device(..) => return,
    };
    if let Ok(walk) = walk {
        scope.spawn(move || expected.count(walk, ended));
    }
}
