//! State that all tasks of a walk share.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::deferred::Deferred;
use super::opened::OpenFiles;
use crate::open_files;

/// Largest number of entries that may wait for the consumer.
pub(super) const AHEAD_ENTRIES_MAX: usize = 32 << 10;
/// Largest number of entries that an open small file counts as: where few files may be open, entries wait beside them.
const FILE_ENTRIES_MAX: usize = 32;

/// State that all tasks share.
pub(super) struct WalkShared {
    pub deferred: Deferred,
    /// Number of tasks that wait.
    pub waiting: AtomicUsize,
    pub is_stopped: AtomicBool,
    /// Entries that a folder counts as while it waits for the consumer: it is open.
    pub folder_entries: usize,
    /// Entries that an open small file counts as: where many may be open, about half of them wait here, and the others
    /// with the readers.
    pub file_entries: usize,
    /// Small files that are open.
    pub open_files: OpenFiles,
}

impl WalkShared {
    pub fn new(open_files: OpenFiles) -> Self {
        Self {
            deferred: Deferred::default(),
            waiting: AtomicUsize::default(),
            is_stopped: AtomicBool::default(),
            folder_entries: AHEAD_ENTRIES_MAX / open_files::folders_met_max(),
            file_entries: (2 * AHEAD_ENTRIES_MAX / open_files::ahead_max()).min(FILE_ENTRIES_MAX),
            open_files,
        }
    }
}
