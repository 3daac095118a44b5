//! The two seams of this crate: [`Filter`] and [`ChunkIndex`], and the values they speak of.

use onefold_chunk::Fingerprint;

use crate::Result;

/// The name of a container: random, so that many writers need not agree on one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContainerId(pub u64);

impl std::fmt::Display for ContainerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Where a chunk lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// The container that holds the chunk.
    pub container: ContainerId,
}

/// Counters since `open`, and the index's present size.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IndexStats {
    /// Entries that `iterate` would give, as far as known without reading (duplicates and removed ones may count).
    pub entries: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Fingerprints asked for.
    pub lookups: u64,
    /// Lookups that found a location.
    pub hits: u64,
    /// Page reads that lookups caused.
    pub lookup_reads: u64,
    /// Page reads of lookups that did not find the key (a filter's false positive).
    pub false_reads: u64,
    /// Bytes written, merges included.
    pub bytes_written: u64,
}

/// An index from fingerprints to locations. An index is advice: it may have forgotten an entry, and a location is true
/// only while its container exists.
pub trait ChunkIndex: Send + Sync {
    /// Fills `found[i]` with the newest location of `keys[i]`, or `None`. Both slices are of one length: a batch of a
    /// stream, some hundreds. Any number of threads may look up at once; a thread's lookups are taken for one stream.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) where a page cannot be read, [`Error::Damaged`](crate::Error::Damaged) where it
    /// is not what was written. The content of `found` is then undefined.
    fn lookup(&self, keys: &[Fingerprint], found: &mut [Option<Location>]) -> Result<()>;

    /// Records the newest location of one key: its container, or `None` to forget the key. Durable after `checkpoint`.
    ///
    /// # Errors
    /// A full buffer could not be written, [`Error::Io`](crate::Error::Io), or not be merged because of damage in the
    /// index, [`Error::Damaged`](crate::Error::Damaged).
    fn say(&mut self, key: &Fingerprint, container: Option<ContainerId>) -> Result<()>;

    /// Adds or replaces entries; the newest location of a fingerprint wins. Durable after `checkpoint`.
    ///
    /// # Errors
    /// [`say`](ChunkIndex::say)'s errors for the first entry that fails; entries before it are inserted.
    fn insert(&mut self, entries: &[(Fingerprint, Location)]) -> Result<()> {
        entries
            .iter()
            .try_for_each(|(key, location)| self.say(key, Some(location.container)))
    }

    /// Forgets these fingerprints. Durable after `checkpoint`.
    ///
    /// # Errors
    /// [`say`](ChunkIndex::say)'s errors for the first key that fails; keys before it are forgotten.
    fn remove(&mut self, keys: &[Fingerprint]) -> Result<()> {
        keys.iter().try_for_each(|key| self.say(key, None))
    }

    /// Forgets every entry that points into one of `containers`, which were deleted; an insertion into one brings it
    /// back. Durable after `checkpoint`. Where a fingerprint has an older location in a container that is not retired,
    /// that location may be found again, even if `remove` came in between.
    ///
    /// # Errors
    /// [`say`](ChunkIndex::say)'s errors, of an index that writes or compacts to note the retirement.
    fn retire(&mut self, containers: &[ContainerId]) -> Result<()>;

    /// Makes all insertions, removals and retirements durable, and visible to other processes that open or refresh.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io): nothing since the last checkpoint is known to be durable.
    /// [`Error::Damaged`](crate::Error::Damaged) for a damaged file that had to be read. The error of an earlier merge
    /// in the background is returned, too.
    fn checkpoint(&mut self) -> Result<()>;

    /// Makes visible what other processes made durable since this index was opened, checkpointed or refreshed. An index
    /// with one opener has nothing to do.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) or [`Error::Damaged`](crate::Error::Damaged): other processes' files cannot be
    /// read; the state before stays visible.
    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }

    /// Returns how often other processes were seen to delete the index and begin a new one since `open`. Entries
    /// inserted before that are lost, or their order has changed.
    fn times_begun_anew(&self) -> u64 {
        0
    }

    /// Passes every live entry to `visit`, in no order.
    ///
    /// # Errors
    /// The first error of `visit`, which ends the walk; errors of [`lookup`](ChunkIndex::lookup).
    fn iterate(&mut self, visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>)
    -> Result<()>;

    /// RAM held now, in bytes, as an allocator would count it.
    fn ram_bytes(&self) -> usize;

    /// Counters since `open`, and the present size.
    fn stats(&self) -> IndexStats;
}

/// A set that may err to one side: `false` is a promise, `true` is not.
pub trait Filter: Send {
    /// Sets `present[i]` where `keys[i]` may be in the set, clears it where it surely is not.
    ///
    /// # Errors
    /// A filter on flash fails where a page cannot be read: [`Error::Io`](crate::Error::Io), or
    fn may_contain(&mut self, keys: &[Fingerprint], present: &mut [bool]) -> Result<()>;

    /// Adds all `keys`.
    ///
    /// # Errors
    /// A filter on flash fails where pages cannot be read or written: [`Error::Io`](crate::Error::Io), or
    /// [`Error::Damaged`](crate::Error::Damaged) where the disk ends before them. A filter that grows in RAM fails at
    /// its largest size: [`Error::Budget`](crate::Error::Budget). Some of `keys` may be in the filter then.
    fn insert(&mut self, keys: &[Fingerprint]) -> Result<()>;

    /// RAM held now, in bytes.
    fn ram_bytes(&self) -> usize;
}
