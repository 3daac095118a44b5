//! What a running verb tells its caller: counters to poll, events to print, and the flag that ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::restore::Metadata;
use crate::{Error, Result};

/// Counters of a running verb. Shared between its threads and whoever draws the progress bar.
#[derive(Default, Debug)]
pub struct Progress {
    /// Files found so far (backup) or to restore.
    pub files_total: AtomicU64,
    /// Bytes of those files.
    pub bytes_total: AtomicU64,
    /// Whether the totals are final.
    pub totals_known: AtomicBool,
    /// Files that a count beside a restore has found, before the totals are final.
    pub files_expected: AtomicU64,
    /// Bytes of those files.
    pub bytes_expected: AtomicU64,
    /// Whether that count has ended.
    pub expected_known: AtomicBool,
    /// Files done.
    pub files_done: AtomicU64,
    /// Folders done.
    pub dirs_done: AtomicU64,
    /// Bytes of files done, unchanged ones included.
    pub bytes_done: AtomicU64,
    /// Bytes done of the file that is being backed up.
    pub bytes_of_current: AtomicU64,
    /// Of the files done in a restore, those that stayed as they were.
    pub files_skipped: AtomicU64,
    /// Their bytes.
    pub bytes_skipped: AtomicU64,
    /// Things that a restore has removed.
    pub deleted: AtomicU64,
    /// Bytes read from the source, or written to the target.
    pub bytes_moved: AtomicU64,
    /// Whether what a restore writes is read back.
    pub is_verifying: AtomicBool,
    /// Bytes of files that a restore has read back.
    pub bytes_verified: AtomicU64,
    /// Bytes of new chunks, before compression.
    pub bytes_new: AtomicU64,
    /// Bytes of the containers stored for them; the store adds to it.
    pub bytes_stored: Arc<AtomicU64>,
    /// Paths that failed.
    pub errors: AtomicU64,
    /// All is written, and the disk is waited for.
    pub is_settling: AtomicBool,
    /// What is being done now.
    pub current: Mutex<Vec<u8>>,
    cancelled: AtomicBool,
    /// The store takes nothing more, so that nobody need wait for input.
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

    /// Says whether the store takes nothing more: who waits for input stops waiting then.
    pub(crate) fn set_closed(&self, has_closed: bool) {
        self.has_closed.store(has_closed, Relaxed);
    }

    /// Whether nobody wants what is still to come: cancelled, or the store has ended.
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

/// What happened to one entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The parent did not have it.
    New,
    /// Content or metadata differ.
    Modified,
    /// As before.
    Unchanged,
    /// It was there and is no more: what a restore deletes.
    Removed,
}

/// Receives what happens path by path; every method may be called from any thread.
pub trait Events: Sync {
    /// This path failed; the rest goes on.
    fn error(&self, path: &[u8], error: &Error);

    /// This path was restored, but lacks some of its metadata: the target did not take it, or does not keep it.
    fn lacking(&self, path: &[u8], what: Metadata, error: &Error) {
        let _ = what;
        self.error(path, error);
    }

    /// This path is done, but something is noteworthy.
    fn warning(&self, path: &[u8], what: &str) {
        let _ = (path, what);
    }

    /// Whether [`entry`](Self::entry) does anything.
    fn wants_entries(&self) -> bool {
        false
    }

    /// An entry is done. `bytes`: of its new chunks, before compression (backup); of the file (restore).
    fn entry(&self, path: &[u8], change: Change, bytes: u64) {
        let _ = (path, change, bytes);
    }
}

/// Drops all events.
pub struct Silent;

impl Events for Silent {
    fn error(&self, _: &[u8], _: &Error) {}
}
