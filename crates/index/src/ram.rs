//! The index `ram`: a hash table and nothing else. It is the oracle that every other index is tested against.
//!
//! Always holds: it answers exactly what was inserted and not removed or retired since. It keeps nothing on any disk,
//! so [`checkpoint`](ChunkIndex::checkpoint) does nothing and its RAM grows with the number of chunks (about 60 bytes
//! each).

use std::collections::{HashMap, HashSet};

use onefold_chunk::Fingerprint;

use crate::{ChunkIndex, ContainerId, IndexStats, Location, Result};

/// The index `ram`: a hash table of all fingerprints, some 60 bytes each.
#[derive(Default)]
pub struct RamIndex {
    entries: HashMap<Fingerprint, Location>,
    stats: IndexStats,
}

impl RamIndex {
    /// An empty index.
    pub fn new() -> RamIndex {
        RamIndex::default()
    }
}

impl ChunkIndex for RamIndex {
    fn lookup(&mut self, keys: &[Fingerprint], found: &mut [Option<Location>]) -> Result<()> {
        for (key, slot) in keys.iter().zip(found) {
            *slot = self.entries.get(key).copied();
            self.stats.hits += u64::from(slot.is_some());
        }
        self.stats.lookups += keys.len() as u64;
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
            ..self.stats
        }
    }
}
