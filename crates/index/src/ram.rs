//! The index `ram`: a hash table and nothing else. It is the oracle that every other index is tested against.
//!
//! Invariant: a lookup finds exactly the entries that were inserted and not removed or retired since. Nothing is
//! stored on disk, so [`checkpoint`](ChunkIndex::checkpoint) does nothing and RAM grows with the number of chunks
//! (about 60 bytes each).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_chunk::Fingerprint;

use crate::{ChunkIndex, ContainerId, IndexStats, Location, Result};

/// The index `ram`: a hash table of all fingerprints, some 60 bytes each.
#[derive(Default)]
pub struct RamIndex {
    entries: HashMap<Fingerprint, Location>,
    lookups: AtomicU64,
    hits: AtomicU64,
}

impl RamIndex {
    /// An empty index.
    pub fn new() -> RamIndex {
        RamIndex::default()
    }
}

impl ChunkIndex for RamIndex {
    fn lookup(&self, keys: &[Fingerprint], found: &mut [Option<Location>]) -> Result<()> {
        let mut hits = 0;
        for (key, slot) in keys.iter().zip(found) {
            *slot = self.entries.get(key).copied();
            hits += u64::from(slot.is_some());
        }
        self.hits.fetch_add(hits, Ordering::Relaxed);
        self.lookups.fetch_add(keys.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn say(&mut self, key: &Fingerprint, container: Option<ContainerId>) -> Result<()> {
        match container {
            Some(container) => self.entries.insert(*key, Location { container }),
            None => self.entries.remove(key),
        };
        Ok(())
    }

    fn retire(&mut self, containers: &[ContainerId]) -> Result<()> {
        let gone: HashSet<ContainerId> = containers.iter().copied().collect();
        self.entries
            .retain(|_, location| !gone.contains(&location.container));
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        Ok(())
    }

    fn iterate(
        &mut self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        self.entries
            .iter()
            .try_for_each(|(key, location)| visit(*key, *location))
    }

    fn ram_bytes(&self) -> usize {
        // hashbrown: a control byte beside each slot, 8 slots in 7 used at most
        self.entries.capacity() * 8 / 7 * (size_of::<(Fingerprint, Location)>() + 1)
    }

    fn stats(&self) -> IndexStats {
        IndexStats {
            entries: self.entries.len() as u64,
            lookups: self.lookups.load(Ordering::Relaxed),
            hits: self.hits.load(Ordering::Relaxed),
            ..IndexStats::default()
        }
    }
}
