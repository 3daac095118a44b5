//! The faults that a simulated device is told to have, and the counters that trigger them.

/// The operations of one kind that fail, counted from 0 since [`SimDir::inject`](super::SimDir::inject).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum When {
    /// No operation.
    #[default]
    Never,
    /// The `n`th operation alone.
    Once(u64),
    /// The `n`th operation and all after it.
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

/// The faults of a simulated device; none by default.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A crash at this point: the operation may have happened in part, and every later call fails.
    pub crash_at: Option<u64>,
    /// No space for these of the operations that need space: write, set length, create, create folder, and a lock on a
    /// new name. A write may have happened in part.
    pub no_space: When,
    /// No space beyond this sum of the lengths of all disks, in bytes.
    pub capacity_bytes: Option<u64>,
    /// I/O error at these reads.
    pub read_error: When,
    /// I/O error at these writes, which may have happened in part.
    pub write_error: When,
    /// I/O error at these syncs of disks. As on Linux, a later sync does not make the same changes durable.
    pub sync_error: When,
    /// I/O error at these operations on folders: create, create folder, rename, remove, list, sync. A change may have
    /// happened all the same. A later sync makes durable what a failed one did not.
    pub folder_error: When,
    /// One random bit flipped in the result of these reads.
    pub flip_read: When,
    /// Whether the system often returns fewer bytes than requested, and interrupts reads.
    pub short_reads: bool,
}

/// Operations of a simulated device since [`SimDir::inject`](super::SimDir::inject).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SimCounts {
    /// Operations that change something or make it durable: the points at which the device can crash.
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

/// Increments the counter and returns its value before.
pub(super) fn count(counter: &mut u64) -> u64 {
    *counter += 1;
    *counter - 1
}
