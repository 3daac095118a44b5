//! State that a [`Strata`](super::Strata) shares with its merging thread: the folder and the newest view.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onefold_io::ErrorKind;
use parking_lot::Mutex;

use super::choose::are_many;
use super::folder::Folder;
use super::manifest::FileId;
use super::options::RamPlan;
use super::view::View;
use crate::{Error, Result};

/// Largest number of records merged at once, for each record that was sealed: some 330 bytes of run.
const MERGED_OF_SEALED: u64 = 16;
/// Largest number of records merged or copied at once while the index is being closed, where runs are not too many:
/// some 80 MB.
const CLOSING_RECORDS_MAX: u64 = 4 << 20;
/// How long a replaced view is waited for, in pauses: 100 ms.
const OLD_VIEW_PAUSES: u32 = 500;
const OLD_VIEW_PAUSE: Duration = Duration::from_micros(200);

/// State that a [`Strata`](super::Strata) shares with its merging thread.
pub struct StrataState {
    /// The folder of the index.
    pub folder: Folder,
    /// The division of RAM.
    pub plan: RamPlan,
    /// Bytes written to logs and runs.
    pub written: AtomicU64,
    /// Number of records that this opener has sealed.
    pub sealed: AtomicU64,
    /// Whether this opener has retired containers.
    pub retires: AtomicBool,
    /// Bytes that the device is thought to have room for: less than the smallest write that failed for lack of room.
    room_bytes: AtomicU64,
    /// Runs that were written anew by themselves and came out unchanged.
    pub vain: Mutex<HashSet<FileId>>,
    view: Mutex<Arc<View>>,
    /// Held during a refresh, so that an older view never replaces a newer one.
    refreshing: Mutex<()>,
}

impl StrataState {
    /// Shared state with a view of the newest manifest.
    pub fn new(folder: Folder, plan: RamPlan) -> Result<StrataState> {
        let mut view = View::newest(&folder, &View::default(), &plan)?;
        view.load(&plan)?;
        Ok(StrataState {
            folder,
            plan,
            written: AtomicU64::new(0),
            sealed: AtomicU64::new(0),
            retires: AtomicBool::new(false),
            room_bytes: AtomicU64::new(u64::MAX),
            vain: Mutex::new(HashSet::new()),
            view: Mutex::new(Arc::new(view)),
            refreshing: Mutex::new(()),
        })
    }

    /// The current view.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.lock())
    }

    /// Largest number of records that the merging thread merges at once: [`StrataState::copies_at_most`]. Where there are
    /// too many runs, the number has no limit, and the merge is completed even while the index is being closed;
    /// otherwise no opener would ever do it where all sessions are short.
    pub fn merges_at_most(&self) -> u64 {
        if are_many(&self.view().manifest, self.plan.tail_records as u64) {
            u64::MAX
        } else {
            self.copies_at_most()
        }
    }

    /// Largest number of records of log files that the merging thread joins or compacts at once. A session with few
    /// insertions ends early, so a large merge would be begun in each such session and thrown away; it waits for a
    /// session that inserts much or retires containers.
    pub fn copies_at_most(&self) -> u64 {
        let tail = self.plan.tail_records as u64;
        let sealed = self.sealed.load(Ordering::Relaxed);
        let most = if self.retires.load(Ordering::Relaxed) {
            u64::MAX
        } else {
            tail.saturating_add(sealed.saturating_mul(MERGED_OF_SEALED))
        };
        if self.is_closing() {
            most.min(tail.max(CLOSING_RECORDS_MAX))
        } else {
            most
        }
    }

    /// Whether the index is being closed: a merge that would not be begun any more is given up.
    pub fn is_closing(&self) -> bool {
        self.folder.stop.load(Ordering::Relaxed)
    }

    /// Bytes that a merge may write, as far as the room on the device is known.
    pub fn room_bytes(&self) -> u64 {
        self.room_bytes.load(Ordering::Relaxed)
    }

    /// Forgets earlier failures for lack of room, so that any merge is tried again.
    pub fn forget_room(&self) {
        self.room_bytes.store(u64::MAX, Ordering::Relaxed);
    }

    /// Returns `written`, the result of writing `bytes` bytes. Where the device had no room, no merge of more than half
    /// of them is begun from now on.
    pub fn note_room<T>(&self, bytes: u64, written: Result<T>) -> Result<T> {
        if written.as_ref().is_err_and(is_no_space) {
            self.room_bytes.fetch_min(bytes / 2, Ordering::Relaxed);
        }
        written
    }

    /// Turns a merge's failure for lack of room into a warning: merges are optional.
    pub fn unless_full(&self, merged: Result<()>) -> Result<()> {
        match merged {
            Err(error) if is_no_space(&error) => {
                tracing::warn!(%error, "no room to merge the index");
                Ok(())
            }
            other => other,
        }
    }

    /// Reads the newest manifest, which no longer names the files `names`, and removes these even where reading fails.
    pub fn let_go(&self, names: &[String]) -> Result<()> {
        let looked = self.refresh();
        self.folder.remove(names)?;
        looked.map(|_| ())
    }

    /// Replaces the view by one of the newest manifest, and returns it.
    ///
    /// Where the filters of the merged runs and of the new one don't fit beside each other, the old ones go first, and
    /// those of other runs give up some bits; for the moment that this and reading the new ones take, lookups read a
    /// page instead.
    pub fn refresh(&self) -> Result<Arc<View>> {
        let _one = self.refreshing.lock();
        let old = self.view();
        let mut view = View::newest(&self.folder, &old, &self.plan)?;
        let (own, missing) = view.filter_bytes(&self.plan);
        let (held, _) = old.filter_bytes(&self.plan);
        if held.max(own) + missing > self.plan.filter_bytes {
            *self.view.lock() = Arc::new(view.without_wide_filters(&self.plan));
            wait_until_alone(&old);
        }
        drop(old);
        if own + missing > self.plan.filter_bytes {
            view.narrow_filters(&self.plan);
        }
        view.load(&self.plan)?;
        let view = Arc::new(view);
        *self.view.lock() = Arc::clone(&view);
        Ok(view)
    }
}

/// Whether the error says that the device has no room.
pub fn is_no_space(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind == ErrorKind::NoSpace)
}

/// Waits for lookups that began with a view before it was replaced, so that its memory is freed before more is read.
/// The wait is short: a compaction holds a view while it looks for live records, and then filters of both are in RAM.
fn wait_until_alone(old: &Arc<View>) {
    for _ in 0..OLD_VIEW_PAUSES {
        if Arc::strong_count(old) == 1 {
            return;
        }
        std::thread::sleep(OLD_VIEW_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use onefold_chunk::Fingerprint;
    use onefold_io::{Dir, LockKind, MemDir};

    use super::super::manifest::LOOSE_RECORDS_MAX;
    use super::super::{Strata, StrataOptions};
    use super::*;
    use crate::{ChunkIndex, ContainerId, Location};

    #[test]
    fn where_runs_are_too_many_a_closing_index_merges_them_all_and_copies_no_more_than_else() {
        let dir = Arc::new(MemDir::new());
        let _merging = dir.lock("merge", LockKind::Exclusive).expect("lock");
        let options = StrataOptions {
            ram_budget_bytes: 1 << 20,
            background_merges: false,
            ..StrataOptions::new(1)
        };
        let mut index = Strata::open(dir, options).expect("open");
        let container = ContainerId(1);
        // more records than may be loose
        let session = u64::from(LOOSE_RECORDS_MAX) + 1;
        for number in 0..20 * session {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&(number << 40).to_be_bytes());
            let entry = (Fingerprint(key), Location { container });
            index.insert(&[entry]).expect("insert");
            if number % session == session - 1 {
                index.checkpoint().expect("checkpoint");
            }
        }
        let shared = &index.shared;
        let small = shared.plan.tail_records as u64 + 20 * session * MERGED_OF_SEALED;
        assert_eq!(shared.copies_at_most(), small);
        shared.retires.store(true, Ordering::Relaxed);
        assert_eq!(shared.copies_at_most(), u64::MAX);
        shared.folder.stop.store(true, Ordering::Relaxed);
        assert_eq!(shared.copies_at_most(), CLOSING_RECORDS_MAX);
        assert_eq!(shared.merges_at_most(), u64::MAX);
    }
}
