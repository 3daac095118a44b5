//! The walk: everything below the sources, in the order of snapshots, looked at by several threads at once.
//!
//! Invariant: pieces come in order (see [`crate::path::order`]) however many threads look; every folder is opened
//! relative to its parent's descriptor and never through a symbolic link, so that neither long paths nor renames under
//! way lead astray; RAM is bounded by the look-ahead and by the depth of the tree (a name a level), not by its size.
//! One folder with millions of names is read in passes, each of which keeps the next names in order.
//!
//! Reason for several threads: a cold scan waits for the disk at each folder and each inode; eight threads take a third
//! of the time of one.

mod deferred;
mod folder;
mod key;
pub(crate) mod names;
pub(crate) mod opened;
mod schedule;
mod select;
mod shared;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use onefold_store::Error as StoreError;

use crate::exclude::Excludes;
use crate::meta::Stat;
use crate::{Error, Flags, Result};
pub(crate) use folder::above::is_below_left_out;
use opened::{OpenFiles, OpenedFile};
use schedule::Schedule;
use select::Select;
pub(crate) use select::check_depths;

/// Options of a walk.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of threads that list and stat.
    pub threads: usize,
    /// Patterns and folders to leave out.
    pub excludes: Arc<Excludes>,
    /// Do not enter other file systems than those of the sources.
    pub one_file_system: bool,
    /// Read sources that are devices or pipes as streams; else it is an error that nothing of them is saved.
    pub read_special: bool,
    /// Largest number of small files that are kept open after they were looked at, for a caller that reads all files;
    /// 0: files are not opened.
    pub open_files: usize,
    /// Simulated disk failures, for tests.
    pub failing: Failing,
}

/// A source that is walked as though it lay at `to`, the path that it has in the snapshot.
///
/// The folders above `to` get the metadata of those above `from`, level by level; where `from` has fewer, that of the
/// root. A source that is no folder keeps its own name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Path where the source lies.
    pub from: Vec<u8>,
    /// Path that the source has in the snapshot.
    pub to: Vec<u8>,
}

/// For a folder's path: number of names after which its listing fails, as on a disk with a bad sector; `None`: never.
pub type Failing = fn(&[u8]) -> Option<usize>;

/// A disk that does not fail.
pub const SOUND: Failing = |_| None;

/// Entries of one folder that follow each other, sorted by name; a folder gives one or more pieces.
#[derive(Debug)]
pub struct FolderPart {
    /// Path of the folder.
    pub folder: Arc<[u8]>,
    /// The open folder; entries must be opened relative to it.
    pub dir: Option<Arc<OwnedFd>>,
    /// Entries in the folder.
    pub found: Vec<WalkedEntry>,
    /// Paths that could not be looked at, and why.
    pub errors: Vec<(Vec<u8>, Error)>,
    /// Ignore files with lines that were skipped, and why.
    pub warnings: Vec<(Vec<u8>, Error)>,
    /// Whether the folder could not be listed to its end, and its own entry, which came before, does not say so.
    pub is_cut_off: bool,
    /// Entries that were left out by request.
    pub excluded: u64,
    /// Bytes of its ignore files' patterns, which stay until everything below it is looked at.
    ignore_bytes: usize,
}

/// One entry that the walk found.
#[derive(Debug)]
pub struct WalkedEntry {
    /// Name in the folder.
    pub name: Vec<u8>,
    /// Result of `stat`.
    pub stat: Stat,
    /// Flags: `UNREADABLE` where `stat` failed and its result is made up, `UNLISTED` for folders that cannot be listed.
    pub flags: Flags,
    /// The way to treat the entry.
    pub role: Role,
    /// Name in the folder on disk, where that differs: see [`Moved`].
    pub own_name: Option<Box<[u8]>>,
    /// The open file that `stat` is of, where [`Options::open_files`] asks for open files.
    pub opened: Option<OpenedFile>,
}

/// The way to treat an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Read all of the entry.
    Usual,
    /// Read the entry as a stream: a device or a pipe that is a source.
    Stream,
    /// Do not enter this folder, since it lies on another file system. Parts of it that cannot be read are not
    /// reported.
    NotEntered,
}

/// A walk under way: an iterator over pieces in order. Dropping it ends its threads.
pub struct Walk {
    schedule: Arc<Schedule>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Walk {
    /// Starts walking `sources`: absolute paths; overlapping ones are walked once. The folders above them are entries,
    /// too. A source is walked even if the excludes match its own path, also inside another source.
    ///
    /// # Errors
    /// [`Error::Usage`] where there is no source; [`Error::Store`] where the system has no thread at all.
    pub fn start(sources: &[Vec<u8>], options: &Options) -> Result<Self> {
        if sources.is_empty() {
            return Err(Error::Usage("nothing to back up: no path given".into()));
        }
        Self::of(Select::new(sources)?, options)
    }

    /// Starts a walk as [`start`](Self::start) does, of sources that are stored under other paths.
    ///
    /// # Errors
    /// Errors of [`start`](Self::start), and [`Error::Usage`] where one path lies in another.
    pub fn start_moved(sources: &[Moved], options: &Options) -> Result<Self> {
        Self::of(Select::moved(sources)?, options)
    }

    fn of(select: Select, options: &Options) -> Result<Self> {
        let select = Arc::new(select);
        let schedule = Arc::new(Schedule::new(
            folder::FolderTask::root(select),
            OpenFiles::new(options.open_files),
        ));
        let worker = || {
            let (schedule, options) = (schedule.clone(), options.clone());
            std::thread::Builder::new()
                .name("walk".into())
                .spawn(move || schedule.work(&options))
        };
        let mut threads = Vec::new();
        for _ in 0..options.threads.max(1) {
            match worker() {
                Ok(thread) => threads.push(thread),
                Err(e) if threads.is_empty() => {
                    return Err(StoreError::no_thread("the walk", &e).into());
                }
                // The threads that could be started do the work.
                Err(_) => break,
            }
        }
        Ok(Self { schedule, threads })
    }
}

impl Walk {
    /// Returns the next piece; `None` at the end, or soon after `is_over` returns true. It is called from time to time,
    /// since a folder's listing may have no end.
    pub fn next_unless(&mut self, is_over: &dyn Fn() -> bool) -> Option<FolderPart> {
        self.schedule.next(is_over)
    }

    /// Whether the next piece is there already.
    pub fn is_ready(&self) -> bool {
        self.schedule.is_ready()
    }
}

impl Iterator for Walk {
    type Item = FolderPart;

    fn next(&mut self) -> Option<FolderPart> {
        self.next_unless(&|| false)
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.schedule.stop();
        self.threads
            .drain(..)
            .for_each(|thread| drop(thread.join()));
    }
}
