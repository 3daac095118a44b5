//! Fingerprints of whole containers in RAM, replaced by least recent use (DDFS's locality-preserved caching, Zhu 2008
//! §4.3).
//!
//! Invariant: each cached fingerprint lies in the container that the cache names; a caller that changes that must
//! forget the container.

use std::collections::{BTreeMap, HashMap, HashSet};

use onefold_chunk::Fingerprint;

use onefold_index::ContainerId;

/// RAM of a fingerprint in bytes: in its container's list, and in the table with its container, a control byte and
/// room.
const KEY_BYTES: usize = 32 + (40 + 1) * 2;
/// RAM of a container in bytes: its entries in two maps.
const CONTAINER_BYTES: usize = 128;

/// Largest number of containers that are remembered as too large.
const TOO_LARGE_MAX: usize = 4096;

/// Fingerprints of containers in RAM, within a budget in bytes, replaced by least recent use.
pub struct PrefetchCache {
    budget_bytes: usize,
    used_bytes: usize,
    containers: HashMap<ContainerId, (u64, Vec<Fingerprint>)>,
    by_use: BTreeMap<u64, ContainerId>,
    owners: HashMap<Fingerprint, ContainerId>,
    uses: u64,
    /// Containers that do not fit: each hit would read them again, and drop them.
    too_large: HashSet<ContainerId>,
}

impl PrefetchCache {
    /// A cache within `budget_bytes` of RAM; 0 for none.
    pub fn new(budget_bytes: usize) -> PrefetchCache {
        PrefetchCache {
            budget_bytes,
            used_bytes: 0,
            containers: HashMap::new(),
            by_use: BTreeMap::new(),
            owners: HashMap::new(),
            uses: 0,
            too_large: HashSet::new(),
        }
    }

    /// The container of `key`, if its fingerprints were prefetched.
    pub fn get(&mut self, key: &Fingerprint) -> Option<ContainerId> {
        let container = *self.owners.get(key)?;
        let (used, _) = self.containers.get_mut(&container)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, container);
        Some(container)
    }

    /// The number of keys of one container that fit; 0 for a container that is known to have more.
    pub fn room(&self, container: &ContainerId) -> usize {
        if self.too_large.contains(container) {
            0
        } else {
            self.budget_bytes.saturating_sub(CONTAINER_BYTES) / KEY_BYTES
        }
    }

    /// Remembers that a container has more keys than fit.
    pub fn refuse(&mut self, container: ContainerId) {
        if self.too_large.len() >= TOO_LARGE_MAX {
            self.too_large.clear();
        }
        self.too_large.insert(container);
    }

    /// Adds all `keys` of `container`, if they fit.
    pub fn insert(&mut self, container: ContainerId, keys: Vec<Fingerprint>) {
        self.forget(&container);
        let bytes = cost(&keys);
        if bytes > self.budget_bytes {
            return self.refuse(container);
        }
        while self.used_bytes + bytes > self.budget_bytes {
            let Some((_, oldest)) = self.by_use.first_key_value() else {
                break;
            };
            self.forget(&oldest.clone());
        }
        self.used_bytes += bytes;
        self.uses += 1;
        self.owners.extend(keys.iter().map(|key| (*key, container)));
        self.by_use.insert(self.uses, container);
        self.containers.insert(container, (self.uses, keys));
    }

    /// Forgets the container's fingerprints.
    pub fn forget(&mut self, container: &ContainerId) {
        self.too_large.remove(container);
        if let Some((used, keys)) = self.containers.remove(container) {
            self.used_bytes -= cost(&keys);
            self.by_use.remove(&used);
            for key in keys {
                if self.owners.get(&key) == Some(container) {
                    self.owners.remove(&key);
                }
            }
        }
    }

    /// RAM of the cache, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.used_bytes
    }
}

fn cost(keys: &[Fingerprint]) -> usize {
    CONTAINER_BYTES + keys.len() * KEY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_does_not_fit_is_not_read_again_until_it_changes() {
        let (large, small) = (ContainerId(1), ContainerId(2));
        let keys = |count: u8| (0..count).map(|i| Fingerprint([i; 32])).collect::<Vec<_>>();
        let mut cache = PrefetchCache::new(CONTAINER_BYTES + 4 * KEY_BYTES);
        assert_eq!(cache.room(&large), 4);
        cache.insert(large, keys(5));
        assert_eq!((cache.room(&large), cache.ram_bytes()), (0, 0));
        cache.insert(small, keys(4));
        assert_eq!(cache.get(&Fingerprint([3; 32])), Some(small));
        cache.forget(&large);
        assert_eq!(cache.room(&large), 4);
    }
}
