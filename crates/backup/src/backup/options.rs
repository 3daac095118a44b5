//! What to back up, and how. Who, when and where are given, not asked of the machine.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use onefold_chunk::context::Rules;
use onefold_chunk::tar::Tars;
use onefold_store::RootId;

use crate::Time;
use crate::exclude::Excludes;
use crate::forget::GroupBy;
use crate::walk::{self, Moved};

/// What to back up.
#[derive(Debug)]
pub enum Input {
    /// Files and folders: absolute paths.
    Paths(Vec<Vec<u8>>),
    /// Files and folders that the snapshot is to have under other paths; all must be there.
    Moved(Vec<Moved>),
    /// A stream that becomes one file at this path.
    Stream(OwnedFd, Vec<u8>),
}

/// Which snapshot tells what is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parent {
    /// None: every file is read.
    None,
    /// The newest of the same series.
    Newest(GroupBy),
    /// This one.
    This(RootId),
}

/// How to back up. Who, when and where are given, not asked of the machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that list and stat.
    pub walkers: usize,
    /// Threads that read.
    pub readers: usize,
    /// Threads that cut and fingerprint segments of large files at once: the number of cores.
    pub hashers: usize,
    /// Bytes of small files between readers and store.
    pub bytes_in_flight: usize,
    /// RAM for what is remembered of files with several names, in bytes; the rest of it stands in a temporary file.
    pub hard_links_bytes: usize,
    /// What to leave out.
    pub excludes: Arc<Excludes>,
    /// The patterns as the user gave them, for the snapshot.
    pub exclude_words: Vec<Vec<u8>>,
    /// Stay on the sources' file systems.
    pub one_file_system: bool,
    /// Read devices and pipes that are sources.
    pub read_special: bool,
    /// Which snapshot tells what is unchanged.
    pub parent: Parent,
    /// Read every file, whatever the parent says.
    pub force_reread: bool,
    /// Times of access are kept, too: then a tree whose files were read is another.
    pub with_atime: bool,
    /// A new ctime alone does not make a file changed.
    pub ignore_ctime: bool,
    /// A new inode number alone does not make a file changed.
    pub ignore_inode: bool,
    /// Which files and streams are cut as a tar, at their members; `None`: none.
    pub tars: Option<Tars>,
    /// What is right for which type of files, where the repository's chunker goes by types; `None`: its own table.
    pub chunk_rules: Option<Arc<Rules>>,
    /// Make no new snapshot where nothing changed.
    pub skip_if_unchanged: bool,
    /// The snapshot's tags.
    pub tags: Vec<String>,
    /// This machine's name.
    pub host: String,
    /// The user's name.
    pub user: String,
    /// The user's and group's numbers.
    pub uid_gid: (u32, u32),
    /// The program and its version.
    pub program: String,
    /// What the snapshot says that the time is.
    pub time: Time,
    /// What time it is now, for durations.
    pub clock: fn() -> Time,
    /// A disk that fails, for tests.
    pub failing: walk::Failing,
}

impl Options {
    /// Nobody said otherwise how files are to be cut.
    pub(super) fn cuts_as_usual(&self) -> bool {
        self.chunk_rules.is_none() && self.tars == Some(Tars::Magic)
    }
}

impl Default for Options {
    /// Eight threads that wait for the disk (a cold scan of 290,000 files takes a third of the time of one), one
    /// fingerprinting thread per core.
    fn default() -> Self {
        Self {
            walkers: 8,
            readers: 8,
            hashers: std::thread::available_parallelism().map_or(1, |n| n.get()),
            bytes_in_flight: 32 << 20,
            hard_links_bytes: 18 << 20,
            excludes: Arc::default(),
            exclude_words: Vec::new(),
            one_file_system: false,
            read_special: false,
            parent: Parent::Newest(GroupBy::default()),
            force_reread: false,
            with_atime: false,
            ignore_ctime: false,
            ignore_inode: false,
            tars: Some(Tars::Magic),
            chunk_rules: None,
            skip_if_unchanged: false,
            tags: Vec::new(),
            host: String::new(),
            user: String::new(),
            uid_gid: (0, 0),
            program: String::new(),
            time: Time::default(),
            clock: Time::default,
            failing: walk::SOUND,
        }
    }
}
