//! What a simulated device is told to do wrong, and the counters that say when.

/// Which ones of a row of operations fail. They are counted from 0, since [`SimDir::inject`](super::SimDir::inject).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum When {
    /// None.
    #[default]
    Never,
    /// The `n`th alone.
    Once(u64),
    /// The `n`th and all after it.
    From(u64),
}

impl When {
    pub(super) fn hits(self, number: u64) -> bool {
        match self {
            Self::Never => false,
            Self::Once(n) => number == n,
            Self::From(n) => number >= n,
        }
    }
}

/// The faults of a simulated device; by default none.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Crash at this point: the operation may have happened in part, and every later call fails.
    pub crash_at: Option<u64>,
    /// No space for these of the operations that need some: write, set length, create, create folder, and a lock on a
    /// new name. A write may have happened in part.
    pub no_space: When,
    /// No space beyond this sum of the lengths of all disks.
    pub capacity_bytes: Option<u64>,
    /// I/O error at these reads.
    pub read_error: When,
    /// I/O error at these writes, which may have happened in part.
    pub write_error: When,
    /// I/O error at these syncs of disks. As on Linux, what was not durable then is not made durable by a later sync.
    pub sync_error: When,
    /// I/O error at these operations on folders: create, create folder, rename, remove, list, sync. What changes one
    /// may have happened all the same. What a failed sync did not make durable, a later one does.
    pub folder_error: When,
    /// One random bit flipped in what these reads return.
    pub flip_read: When,
    /// The system returns fewer bytes than asked for, and interrupts reads, again and again.
    pub short_reads: bool,
}

/// How many operations a simulated device has seen since [`SimDir::inject`](super::SimDir::inject).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SimCounts {
    /// Everything that changes something or makes it durable: the points at which it can crash.
    pub points: u64,
    /// Operations that need space.
    pub space: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Syncs of disks.
    pub syncs: u64,
    /// Operations on folders.
    pub folders: u64,
}

/// Counts one and returns its number.
pub(super) fn count(counter: &mut u64) -> u64 {
    *counter += 1;
    *counter - 1
}
