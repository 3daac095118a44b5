//! Reports of a running verb to its caller: counters to poll, events to print, and the flag that ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::restore::Metadata;
use crate::{Error, Result};

/// Counters of a running verb, shared by its threads and the progress bar.
#[derive(Default, Debug)]
pub struct Progress {
    /// Number of files found so far (backup) or to restore.
    pub files_total: AtomicU64,
    /// Bytes of the files found so far or to restore.
    pub bytes_total: AtomicU64,
    /// Whether the totals are final.
    pub totals_known: AtomicBool,
    /// Files that a count beside a restore has found, before the totals are final.
    pub files_expected: AtomicU64,
    /// Bytes of the files that a count beside a restore has found.
    pub bytes_expected: AtomicU64,
    /// Whether the count beside a restore has ended.
    pub expected_known: AtomicBool,
    /// Number of files done.
    pub files_done: AtomicU64,
    /// Number of folders done.
    pub dirs_done: AtomicU64,
    /// Bytes of files done, including unchanged ones.
    pub bytes_done: AtomicU64,
    /// Bytes done of the file that is being backed up.
    pub bytes_of_current: AtomicU64,
    /// Bytes of files that a backup has compared with an earlier snapshot, and does not count as done yet.
    pub bytes_ahead: AtomicU64,
    /// Files that a restore has kept as they were; they count as done, too.
    pub files_skipped: AtomicU64,
    /// Bytes of the files that a restore has kept.
    pub bytes_skipped: AtomicU64,
    /// Things that a restore has removed.
    pub deleted: AtomicU64,
    /// Bytes read from the source, or written to the target.
    pub bytes_moved: AtomicU64,
    /// Whether a restore reads back the files that it writes.
    pub is_verifying: AtomicBool,
    /// Bytes of files that a restore has read back.
    pub bytes_verified: AtomicU64,
    /// Bytes of new chunks, before compression.
    pub bytes_new: AtomicU64,
    /// Bytes of the containers stored for new chunks; the store adds to it.
    pub bytes_stored: Arc<AtomicU64>,
    /// Paths that failed.
    pub errors: AtomicU64,
    /// Whether everything is written, and the restore waits for the disk.
    pub is_settling: AtomicBool,
    /// Path that is being worked on.
    pub current: Mutex<Vec<u8>>,
    cancelled: AtomicBool,
    /// Whether the store takes nothing more, so that waiting for input is of no use.
    has_closed: AtomicBool,
}

impl Progress {
    /// Asks the verb to end soon and cleanly, with [`Error::Cancelled`]. May be called from a signal's thread.
    pub fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    /// Whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    /// Says whether the store takes nothing more: then waits for input end.
    pub(crate) fn set_closed(&self, has_closed: bool) {
        self.has_closed.store(has_closed, Relaxed);
    }

    /// Whether further input is of no use: the verb is cancelled, or the store has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_cancelled() || self.has_closed.load(Relaxed)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            Err(Error::Cancelled)
        } else {
            Ok(())
        }
    }

    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Relaxed);
    }
}

/// Result for one entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The entry is new: the parent does not have it, or the target did not.
    New,
    /// Content or metadata differ.
    Modified,
    /// The entry is as before.
    Unchanged,
    /// The entry was removed from the target of a restore.
    Removed,
}

/// Receiver of events, path by path; every method may be called from any thread.
pub trait Events: Sync {
    /// Reports a path that failed; the rest goes on.
    fn error(&self, path: &[u8], error: &Error);

    /// Reports a path that was restored, but lacks some of its metadata: the target refused or does not keep it.
    fn lacking(&self, path: &[u8], what: Metadata, error: &Error) {
        let _ = what;
        self.error(path, error);
    }

    /// Reports something noteworthy about a path that is done.
    fn warning(&self, path: &[u8], what: &str) {
        let _ = (path, what);
    }

    /// Whether [`entry`](Self::entry) does anything.
    fn wants_entries(&self) -> bool {
        false
    }

    /// Reports an entry that is done. `bytes`: of its new chunks, before compression (backup); of the file (restore).
    fn entry(&self, path: &[u8], change: Change, bytes: u64) {
        let _ = (path, change, bytes);
    }
}

/// Drops all events.
pub struct NoEvents;

impl Events for NoEvents {
    fn error(&self, _: &[u8], _: &Error) {}
}
