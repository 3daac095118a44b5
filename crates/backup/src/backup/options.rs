//! Input and options of a backup. User, host and time are given by the caller, not asked of the machine.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use onefold_chunk::context::Rules;
use onefold_chunk::tar::Tars;
use onefold_store::RootId;

use super::device::ChangedDevice;
use crate::Time;
use crate::exclude::Excludes;
use crate::forget::GroupBy;
use crate::walk::{self, Moved};

/// The input of a backup.
#[derive(Debug)]
pub enum Input {
    /// Files and folders: absolute paths.
    Paths(Vec<Vec<u8>>),
    /// Files and folders that the snapshot is to have under other paths; all must be there.
    Moved(Vec<Moved>),
    /// A stream that becomes one file at this path.
    Stream(OwnedFd, Vec<u8>),
    /// A block device that becomes one file at this path. What did not change since the parent is not read.
    Device(Box<dyn ChangedDevice>, Vec<u8>),
}

/// The choice of the snapshot that tells which files are unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parent {
    /// No parent: every file is read.
    None,
    /// The newest snapshot of the same series.
    Newest(GroupBy),
    /// The snapshot of this name.
    This(RootId),
}

/// Options of a backup. User, host and time are given by the caller, not asked of the machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that list and stat.
    pub walkers: usize,
    /// Threads that read.
    pub readers: usize,
    /// Segments of large files that are cut and fingerprinted at once; by default one a core.
    pub hashers: usize,
    /// Largest number of bytes of small files between readers and store.
    pub bytes_in_flight: usize,
    /// RAM for files with several names, in bytes; beyond that they are remembered in a temporary file.
    pub hard_links_bytes: usize,
    /// Entries to leave out: by patterns, folders, marked caches, size.
    pub excludes: Arc<Excludes>,
    /// The patterns as the user gave them, for the snapshot.
    pub exclude_words: Vec<Vec<u8>>,
    /// Stay on the sources' file systems.
    pub one_file_system: bool,
    /// Read devices and pipes that are sources.
    pub read_special: bool,
    /// Choice of the snapshot that tells which files are unchanged.
    pub parent: Parent,
    /// Read every file, whatever the parent says.
    pub force_reread: bool,
    /// Keep times of access, too: then a tree whose files were read counts as changed.
    pub with_atime: bool,
    /// A new ctime alone does not make a file changed.
    pub ignore_ctime: bool,
    /// A new inode number alone does not make a file changed.
    pub ignore_inode: bool,
    /// Files and streams that are cut as a tar, at their members; `None`: no tars are recognised.
    pub tars: Option<Tars>,
    /// Chunking rules for types of files, where the repository's chunker goes by types; `None`: the chunker's own
    /// table.
    pub chunk_rules: Option<Arc<Rules>>,
    /// Make no new snapshot where nothing changed.
    pub skip_if_unchanged: bool,
    /// The snapshot's tags.
    pub tags: Vec<String>,
    /// Name of this machine.
    pub host: String,
    /// The user's name.
    pub user: String,
    /// The user's and group's numbers.
    pub uid_gid: (u32, u32),
    /// The program and its version.
    pub program: String,
    /// Time of the snapshot, as it is recorded.
    pub time: Time,
    /// Current time, for durations.
    pub clock: fn() -> Time,
    /// Simulated disk failures, for tests.
    pub failing: walk::Failing,
}

impl Options {
    /// Whether files are cut in the default way, without rules or choices about tars.
    pub(super) fn cuts_as_usual(&self) -> bool {
        self.chunk_rules.is_none() && self.tars == Some(Tars::Magic)
    }
}

impl Default for Options {
    /// Eight threads each that list and read, and wait for the disk (a cold scan of 290,000 files takes a third of the
    /// time of one thread), and one fingerprinting thread per core.
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
