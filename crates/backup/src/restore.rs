//! Restores files from a snapshot.
//!
//! The snapshot is read once, in order, in *windows* of some hundred thousand files. Within a window chunks are sorted
//! by container, each container is read once, and its chunks go to all files that want them; so RAM is bounded, and a
//! repository that fits a window is read once in all. Small files are written, closed and given their metadata in one
//! go; folders get theirs when everything in them is there.
//!
//! Invariant: nothing outside of the target is touched (see `target`); every chunk's fingerprint is checked before it
//! is written; a path that fails is reported and the rest goes on.

pub(crate) mod acl;
mod apply;
mod batch;
mod chosen;
mod compare;
mod count;
mod delete;
mod dry;
mod existing_names;
mod fate;
mod filling;
mod kept;
mod lacking;
mod leading;
pub(crate) mod links;
mod open_folders;
mod output;
mod owners;
mod plan;
mod remove;
mod samples;
mod shut;
mod target;
mod temporary;
mod times;
mod top;
mod trial;
mod unfinished;
mod verify;
mod window;
mod write;

use std::sync::atomic::Ordering::Relaxed;

use onefold_store::Session;

use crate::exclude::Patterns;
use crate::meta::{Owners, Stat};
use crate::snapshot::Snapshot;
use crate::tree::Tree;
use crate::{Error, Events, Kind, Progress, Result, Time};

pub use apply::AttributeChoice;
use apply::{Applier, Meta};
use existing_names::ExistingNames;
use filling::OpenRestore;
pub use lacking::{Lacking, Metadata};
use leading::Leading;
use plan::RestorePlanner;
use target::TargetFolder;
use top::StandsFor;
use unfinished::is_unfinished;
use write::Writer;

/// Warning about a path whose attributes the snapshot does not know.
const UNREAD_ATTRIBUTES: &str =
    "its attributes could not be read when it was backed up: they are missing";

/// The way to treat things that are in the target already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overwrite {
    /// Replace them.
    Always,
    /// Replace them where size or time differ.
    IfChanged,
    /// Replace them where the snapshot's are newer.
    IfNewer,
    /// Keep them, except half-written files of a restore that was killed.
    Never,
}

impl Overwrite {
    /// Whether the complete thing in the target, `there`, stays where a thing of `mode`, `size` and `mtime` is wanted.
    /// `has_same_time` tells whether it has a time, as far as its file system can tell.
    fn keeps(
        self,
        there: &Stat,
        (mode, size): (u16, u64),
        mtime: Time,
        has_same_time: impl FnOnce() -> bool,
    ) -> bool {
        match self {
            _ if is_unfinished(there, mode, Some(size)) => false,
            Self::Always => false,
            Self::Never => true,
            Self::IfNewer => there.mtime >= mtime || has_same_time(),
            Self::IfChanged => there.kind == Kind::File && there.size == size && has_same_time(),
        }
    }

    /// Whether the complete thing in the target, `there`, which is no folder, stays where a folder is wanted. The
    /// folder's time may not be known: then the thing in the target counts as newer.
    fn keeps_for_folder(
        self,
        there: &Stat,
        mtime: Option<Time>,
        has_same_time: impl FnOnce(Time) -> bool,
    ) -> bool {
        match self {
            _ if is_unfinished(there, 0, None) => false,
            Self::Always | Self::IfChanged => false,
            Self::Never => true,
            Self::IfNewer => mtime.is_none_or(|mtime| there.mtime >= mtime || has_same_time(mtime)),
        }
    }
}

/// Options of a restore.
#[derive(Clone, Debug)]
pub struct Options {
    /// Clean path of the folder or file of the snapshot that is restored; a folder's content goes into the target
    /// itself. Empty: everything.
    pub path: Vec<u8>,
    /// Patterns of paths to restore, with everything below; none: everything. For patterns, paths begin at `path`.
    pub include: Patterns,
    /// Patterns of paths not to restore.
    pub exclude: Patterns,
    /// The way to treat things that are in the target already.
    pub overwrite: Overwrite,
    /// Only report the changes that a restore would make.
    pub dry_run: bool,
    /// Remove everything in restored folders of the target that is not in the snapshot.
    pub delete: bool,
    /// Folders of the repository, as (device, inode): nothing in them is deleted, and nothing is restored into them.
    pub kept: Vec<(u64, u64)>,
    /// Set owners; only root can.
    pub owners: bool,
    /// Report modes that the target does not keep. Modes are set in any case, so that on a target that keeps them
    /// no file is open to more people than it was.
    pub modes: bool,
    /// Set owners by number alone. Otherwise the user who has the owner's name on this machine becomes the owner, as
    /// with tar and borg: numbers are given out machine by machine, so a file restored elsewhere by number may come to
    /// belong to a stranger. Names that do not exist here, and files without known owners, keep their numbers. ACLs
    /// hold numbers and keep them.
    pub numeric_owners: bool,
    /// Choice of the extended attributes that are set, ACLs among them.
    pub xattrs: AttributeChoice,
    /// Read back everything that was restored, content and metadata, and compare.
    pub verify: bool,
    /// RAM for paths of files with several names, in bytes; further ones go to a temporary file.
    pub hard_links_bytes: usize,
    /// RAM of a window's plan, in bytes, at which the window is closed: some 450,000 small files.
    pub window_bytes: usize,
    /// Count all files beside the restore where their number is not known soon: the user watches the progress.
    pub count: bool,
    /// Threads that read containers; each holds one in RAM.
    pub readers: usize,
    /// Threads that make and write files.
    pub writers: usize,
}

impl Options {
    /// Whether `folder` is one of the repository's folders.
    fn keeps(&self, folder: &Stat) -> bool {
        self.kept.contains(&(folder.device, folder.inode))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            path: Vec::new(),
            include: Patterns::default(),
            exclude: Patterns::default(),
            overwrite: Overwrite::Always,
            dry_run: false,
            delete: false,
            kept: Vec::new(),
            owners: rustix::process::geteuid().is_root(),
            modes: true,
            numeric_owners: false,
            xattrs: AttributeChoice::default(),
            verify: false,
            hard_links_bytes: 16 << 20,
            window_bytes: 64 << 20,
            count: false,
            readers: 2,
            writers: 4,
        }
    }
}

impl Options {
    /// Checks the options. Errors: a combination that makes no sense.
    fn confirm(&self) -> Result<()> {
        let is_partial = !self.include.is_empty() || !self.exclude.is_empty();
        if self.delete && is_partial {
            let what = "nothing is deleted where only a part of a folder is restored";
            return Err(Error::Usage(what.into()));
        }
        Ok(())
    }
}

/// Counts of a restore.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct RestoreSummary {
    /// Files that were wanted.
    pub files: u64,
    /// Folders that were wanted.
    pub dirs: u64,
    /// Links, pipes, sockets and devices that were wanted.
    pub others: u64,
    /// Bytes of the wanted files.
    pub bytes: u64,
    /// Files that stayed as they were in the target, and files of folders in whose place something else stayed.
    pub skipped: u64,
    /// Bytes of the skipped files.
    pub skipped_bytes: u64,
    /// Links, pipes and devices that stayed as they were.
    pub skipped_others: u64,
    /// Wanted folders that were there and keep their own mode, owner, attributes and times.
    pub skipped_dirs: u64,
    /// Files that failed after the restore had begun with them.
    pub failed: u64,
    /// Bytes of the failed files.
    pub failed_bytes: u64,
    /// Wanted folders that could not be made.
    pub failed_dirs: u64,
    /// Links, pipes and devices that could not be made.
    pub failed_others: u64,
    /// Whether something failed because the target is full.
    pub is_full: bool,
    /// Things removed from the target.
    pub deleted: u64,
    /// Files read back and found as they should be.
    pub verified: u64,
    /// Paths that failed.
    pub errors: u64,
    /// Failed paths that are there, but lack some of their metadata.
    pub lacking: u64,
    /// Paths that lack metadata, by kind.
    pub lacking_what: Lacking,
    /// Failed paths of which the repository has no good copy: it is damaged, or the device does not give it.
    pub lost: u64,
    /// Parts of the snapshot's listing of which the repository has no good copy, each with some thousand unknown paths.
    /// They count as errors, too.
    pub lost_parts: u64,
    /// Files that could not be read when they were backed up, and folders that could not be listed: the snapshot lacks
    /// them.
    pub unread: u64,
    /// Paths restored without their extended attributes and ACLs, since these could not be read in the backup.
    pub unread_attributes: u64,
}

/// Restores from `snapshot` into the folder `target`, which is made where it is missing. All restored files are on the
/// disk when this returns. The snapshot must have been loaded while `session` lived, so that everything it refers to
/// stays. Paths that fail are reported to `events` and counted.
///
/// # Errors
/// [`Error::NotInSnapshot`]; [`Error::Usage`] for options that make no sense together, or to delete in `/`;
/// [`Error::Io`] where the target cannot be made or opened; [`Error::Store`] or [`Error::Malformed`] where the table of
/// leaves cannot be had, or the repository fails as a whole; [`Error::Temporary`] where many hard links find no room;
/// [`Error::Cancelled`].
pub fn run(
    session: &Session,
    snapshot: &Snapshot,
    target: &[u8],
    options: &Options,
    progress: &Progress,
    events: &dyn Events,
) -> Result<RestoreSummary> {
    options.confirm()?;
    let named = target;
    let mut reader = session.reader()?;
    let tree = Tree::open(snapshot, &mut reader)?;
    let mut summary = RestoreSummary::default();
    let mut planner = RestorePlanner::new(&tree, named, options, &mut reader, progress, events)?;
    if options.delete && planner.is_single_file() {
        let what = "nothing is deleted where a single file is restored";
        return Err(Error::Usage(what.into()));
    }
    let stands_for = std::mem::take(&mut planner.stands_for);
    let (target, is_new, due) = open_target(named, stands_for, options)?;
    let names = (options.owners && !options.numeric_owners).then(Owners::load);
    let leading = Leading::new(&snapshot.paths, &options.path);
    let real = target.as_ref().filter(|_| !options.dry_run);
    let applier = Applier {
        owners: options.owners,
        modes: options.modes,
        names: names.as_ref(),
        xattrs: &options.xattrs,
    };
    if options.overwrite != Overwrite::Always {
        let existing_names =
            |target| ExistingNames::new(&tree, options, target, applier, (session, progress));
        planner.existing_names = real.filter(|_| !is_new).map(existing_names);
    }
    progress.is_verifying.store(options.verify, Relaxed);
    let told = (progress, events);
    let writer = real.map(|target| Writer::new(target, session, options, &leading, applier, told));
    let filling = OpenRestore {
        session,
        snapshot,
        tree: &tree,
        target: target.as_ref(),
        writer: writer.as_ref(),
        leading: &leading,
        options,
        progress,
        events,
    };
    let mut fill = || filling.run(&mut planner, &mut reader, &mut summary);
    match real {
        Some(target) => shut::while_let_in(target.root(), fill),
        None => fill(),
    }?;
    if let Some(due) = &due {
        match &writer {
            Some(writer) => writer.describe_target(due),
            None => dry::attributes(due.knows_xattrs, options, events, &mut summary, Vec::new),
        }
    }
    if let Some(writer) = &writer {
        writer.tally.add_to(&mut summary);
        progress.is_settling.store(true, Relaxed);
        settle(writer.target, named, &mut summary, progress, events);
    }
    Ok(summary)
}

/// Opens the target, or makes it where it is missing and something is to be written. Returns the target, whether it was
/// missing, and the metadata that it gets at the end.
fn open_target(
    named: &[u8],
    stands_for: StandsFor,
    options: &Options,
) -> Result<(Option<TargetFolder>, bool, Option<Meta>)> {
    let (target, is_new) = if options.dry_run {
        let there = TargetFolder::existing(named)?;
        let is_missing = there.is_none();
        (there, is_missing)
    } else {
        let (target, is_new) = TargetFolder::create(named, stands_for.mode())?;
        (Some(target), is_new)
    };
    let due = stands_for.due(target.as_ref(), is_new);
    let due = due.map_err(|e| Error::io("stat", named, e))?;
    if let Some(target) = target.as_ref().filter(|_| options.delete) {
        refuse_root(target, named)?;
    }
    Ok((target, is_new, due))
}

fn refuse_root(target: &TargetFolder, named: &[u8]) -> Result<()> {
    match target.is_root() {
        Ok(false) => Ok(()),
        Ok(true) => Err(Error::Usage(
            "nothing is deleted in /: restore a folder into itself, as latest:/home into /home"
                .into(),
        )),
        Err(e) => Err(Error::io("stat", named, e)),
    }
}

/// Waits until everything is on the disk. A failed write is reported and counted.
fn settle(
    target: &TargetFolder,
    named: &[u8],
    summary: &mut RestoreSummary,
    progress: &Progress,
    events: &dyn Events,
) {
    if let Err(e) = target.sync() {
        let error = Error::io("write to the disk what was restored into", named, e);
        summary.errors += 1;
        summary.is_full |= error.is_full();
        Progress::add(&progress.errors, 1);
        events.error(b"", &error);
    }
}
