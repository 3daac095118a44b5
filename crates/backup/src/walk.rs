//! The walk: everything below the sources, in the order of snapshots, looked at by several threads at once.
//!
//! Invariant: pieces come in order (see [`crate::path::order`]) however many threads look; every folder is
//! opened relative to its parent's descriptor and never through a symbolic link, so that neither long paths nor renames
//! under way lead astray; RAM is bounded by the look-ahead and by the depth of the tree (a name a level), not by its
//! size. One folder with millions of names is read in passes, each of which keeps the next names in order.
//!
//! Why threads although one reads in order: a cold scan waits for the disk at each folder and each inode; eight at a
//! time take a third of the time.

mod folder;
mod key;
pub(crate) mod names;
pub(crate) mod opened;
mod put_off;
mod schedule;
mod select;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use onefold_store::Error as StoreError;

use crate::exclude::Excludes;
use crate::meta::Stat;
use crate::{Error, Flags, Result};
pub(crate) use folder::above::is_below_left_out;
use opened::{OpenFiles, Opened};
use schedule::Schedule;
use select::Select;
pub(crate) use select::check_depths;

/// How to walk.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many threads list and stat.
    pub threads: usize,
    /// What to leave out.
    pub excludes: Arc<Excludes>,
    /// Do not enter other file systems than those of the sources.
    pub one_file_system: bool,
    /// Sources that are devices or pipes are to be read as streams; else that nothing of them is saved is an error.
    pub read_special: bool,
    /// So many small files are open at most since they were looked at, for whoever reads all of them anyway; 0: they
    /// are looked at only.
    pub open_files: usize,
    /// A disk that fails, for tests.
    pub failing: Failing,
}

/// A source that is walked as though it lay elsewhere: an entry of a snapshot of the path `to`.
///
/// The folders above `to` are taken to be those above `from`, level by level; where there are no more of these, the
/// root. What is no folder keeps its own name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The path of where it is.
    pub from: Vec<u8>,
    /// The path that it is to have.
    pub to: Vec<u8>,
}

/// Of a folder's path: after how many names its listing fails, as on a disk with a bad sector; `None`: it does not.
pub type Failing = fn(&[u8]) -> Option<usize>;

/// A disk that does not fail.
pub const SOUND: Failing = |_| None;

/// Entries of one folder that follow each other, sorted by name; a folder gives one or more pieces.
#[derive(Debug)]
pub struct Piece {
    /// The folder's path.
    pub folder: Arc<[u8]>,
    /// The folder, open; entries are to be opened relative to it.
    pub dir: Option<Arc<OwnedFd>>,
    /// What lies in it.
    pub found: Vec<Found>,
    /// What could not be looked at: path and reason.
    pub errors: Vec<(Vec<u8>, Error)>,
    /// What of ignore files is passed over: the file and why.
    pub warnings: Vec<(Vec<u8>, Error)>,
    /// The folder could not be listed to its end, and its own entry, which came before, does not say so.
    pub is_cut_off: bool,
    /// Entries that were left out by request.
    pub excluded: u64,
    /// What the patterns of its ignore files take; they stay until all below it is looked at.
    ignore_bytes: usize,
}

/// One entry, as the walk met it.
#[derive(Debug)]
pub struct Found {
    /// Its name in the folder.
    pub name: Vec<u8>,
    /// What `stat` said.
    pub stat: Stat,
    /// What could not be looked at: `UNREADABLE` where `stat` failed and its answer is made up, `UNLISTED` of folders.
    pub flags: Flags,
    /// What is to become of it.
    pub role: Role,
    /// Its name in the folder that is open, where that is another one: see [`Moved`].
    pub own_name: Option<Box<[u8]>>,
    /// The file itself, which `stat` is of, where [`Options::open_files`] asks for that.
    pub opened: Option<Opened>,
}

/// What is to become of an entry that the walk met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// An entry with all that can be read of it.
    Usual,
    /// A device or a pipe that was named, to be read as a stream.
    Stream,
    /// A folder of another file system than is asked for: an entry of which nothing is missed that cannot be read.
    NotEntered,
}

/// A walk under way: an iterator over pieces in order. Dropping it ends its threads.
pub struct Walk {
    schedule: Arc<Schedule>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Walk {
    /// Starts walking `sources`: absolute paths; overlapping ones are walked once. The folders above them are entries
    /// too. A source is walked whatever the excludes say of its own path, inside another source too.
    ///
    /// # Errors
    /// [`Error::Usage`] where there is no source; [`Error::Store`] where the system has no thread. With one it goes on.
    pub fn start(sources: &[Vec<u8>], options: &Options) -> Result<Self> {
        if sources.is_empty() {
            return Err(Error::Usage("nothing to back up: no path given".into()));
        }
        Self::of(Select::new(sources)?, options)
    }

    /// The same, of sources that are to be where they do not lie.
    ///
    /// # Errors
    /// Those of [`start`](Self::start), and [`Error::Usage`] where one is to lie in another.
    pub fn start_moved(sources: &[Moved], options: &Options) -> Result<Self> {
        Self::of(Select::moved(sources)?, options)
    }

    fn of(select: Select, options: &Options) -> Result<Self> {
        let select = Arc::new(select);
        let schedule = Arc::new(Schedule::new(
            folder::Task::root(select),
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
                // Those that are there do the work.
                Err(_) => break,
            }
        }
        Ok(Self { schedule, threads })
    }
}

impl Walk {
    /// The next piece; `None` where there is no more, or soon after `is_over`, which is asked from time to time: a
    /// folder's listing may have no end.
    pub fn next_unless(&mut self, is_over: &dyn Fn() -> bool) -> Option<Piece> {
        self.schedule.next(is_over)
    }

    /// Whether the next piece is there already.
    pub fn is_ready(&self) -> bool {
        self.schedule.is_ready()
    }
}

impl Iterator for Walk {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
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
