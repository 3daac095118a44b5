//! Options of a sweep, and its report.

use super::plan::Candidate;
use crate::registry::PinInfo;

/// Options of a sweep.
#[derive(Clone, Debug)]
pub struct SweepOptions {
    /// Only look and report: as a reader, who needs no room and no right to write.
    pub dry_run: bool,
    /// A container whose share of live bytes is below this is rewritten; 0 rewrites none.
    pub compact_below: f64,
    /// Instead of that: containers are rewritten, those with most to gain first, until no more than this is unused.
    pub unused_max: Option<Unused>,
    /// Containers of fewer bytes are rewritten too, if there are several: what many small backups leave behind becomes
    /// whole containers.
    pub rewrite_smaller_than: u64,
    /// Largest number of bytes of containers that are rewritten.
    pub rewrite_bytes_max: Option<u64>,
    /// How long a list of the condemned waits before anything on it is deleted, in seconds by the store's clock; `None`
    /// is what the place has by default.
    pub grace_s: Option<u64>,
}

/// Limit of bytes that may be left unused.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Unused {
    /// This many bytes.
    Bytes(u64),
    /// This share of what is stored then, below 1.
    Share(f64),
}

impl Unused {
    /// In bytes, where `used` bytes are in use.
    pub(super) fn bytes(self, used: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) if share >= 1.0 => u64::MAX,
            Self::Share(share) => (share / (1.0 - share) * used as f64) as u64,
        }
    }
}

impl Default for SweepOptions {
    /// Containers that are less than 70 % alive are rewritten.
    fn default() -> Self {
        Self {
            dry_run: false,
            compact_below: 0.7,
            unused_max: None,
            rewrite_smaller_than: 0,
            rewrite_bytes_max: None,
            grace_s: None,
        }
    }
}

/// How far something long has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageProgress {
    /// Current stage, in a word or two.
    pub stage: &'static str,
    /// Items of the stage that are done.
    pub done: u64,
    /// Items of the stage in all; 0 where that is not known.
    pub total: u64,
}

/// How its user takes part in the sweep.
pub trait SweepObserver {
    /// Told from time to time.
    fn progress(&mut self, progress: StageProgress);

    /// Called while sessions that began before are still running; returns false to leave the rest to a later sweep.
    /// Sleeps as it likes.
    fn wait_for(&mut self, sessions: &[PinInfo]) -> bool;

    /// Called while another chooses roots to remove or to replace, which takes a moment; `what` says so. Returns false
    /// to end the sweep with [`Error::Locked`](crate::Error::Locked). Sleeps as it likes.
    fn wait_for_change(&mut self, what: &str) -> bool {
        let _ = what;
        self.wait_for(&[])
    }
}

/// Counts of a sweep. Bytes are those of containers as stored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SweepReport {
    /// Containers there were, and their bytes.
    pub containers: u64,
    /// Their bytes.
    pub stored_bytes: u64,
    /// Containers nothing refers to.
    pub dead_containers: u64,
    /// Their bytes.
    pub dead_bytes: u64,
    /// Containers that were, or would be, rewritten.
    pub compacted_containers: u64,
    /// Their bytes.
    pub compacted_bytes: u64,
    /// An estimate of their bytes that nothing refers to.
    pub compacted_dead_bytes: u64,
    /// An estimate of bytes that nothing refers to in containers that are left as they are.
    pub unused_bytes_left: u64,
    /// Containers deleted.
    pub deleted_containers: u64,
    /// Bytes freed by the deletions, less those written.
    pub freed_bytes: u64,
    /// Condemned containers that were left to a later sweep, because sessions were running.
    pub pending_containers: u64,
    /// Condemned containers that a later sweep deletes, once their grace is over.
    pub graced_containers: u64,
}

impl SweepReport {
    /// Takes back the counts of a container that was to be rewritten and stays as it is.
    pub(super) fn leave(&mut self, candidate: &Candidate) {
        self.compacted_containers -= 1;
        self.compacted_bytes -= candidate.stored;
        self.compacted_dead_bytes -= candidate.dead_bytes;
        self.unused_bytes_left += candidate.dead_bytes;
    }

    /// Where nothing goes and nothing is rewritten after all.
    pub(super) fn leave_all(&mut self) {
        *self = Self {
            containers: self.containers,
            stored_bytes: self.stored_bytes,
            unused_bytes_left: self.unused_bytes_left + self.dead_bytes + self.compacted_dead_bytes,
            ..Self::default()
        };
    }

    /// Adds what a further round found and did.
    pub(super) fn add(&mut self, more: &Self) {
        *self = Self {
            containers: self.containers,
            stored_bytes: self.stored_bytes,
            dead_containers: self.dead_containers + more.dead_containers,
            dead_bytes: self.dead_bytes + more.dead_bytes,
            compacted_containers: self.compacted_containers + more.compacted_containers,
            compacted_bytes: self.compacted_bytes + more.compacted_bytes,
            compacted_dead_bytes: self.compacted_dead_bytes + more.compacted_dead_bytes,
            unused_bytes_left: more.unused_bytes_left,
            deleted_containers: self.deleted_containers + more.deleted_containers,
            freed_bytes: self.freed_bytes + more.freed_bytes,
            pending_containers: more.pending_containers,
            graced_containers: more.graced_containers,
        };
    }
}
