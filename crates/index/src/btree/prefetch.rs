//! Whole containers' fingerprints in RAM, least recently used out first (DDFS's locality-preserved caching, Zhu 2008 §4.3).
//!
//! Always holds: each fingerprint that is here lies in the container that it is said to lie in; who changes that forgets the container.

use std::collections::{BTreeMap, HashMap};

use onefold_chunk::Fingerprint;

use crate::ContainerId;

/// RAM a fingerprint: in its container's list, and in the table with its container, a control byte and room.
const KEY_BYTES: usize = 32 + (40 + 1) * 2;
/// RAM a container: its lines in two maps.
const CONTAINER_BYTES: usize = 128;

/// See the module.
pub struct Prefetched {
    budget_bytes: usize,
    used_bytes: usize,
    containers: HashMap<ContainerId, (u64, Vec<Fingerprint>)>,
    by_use: BTreeMap<u64, ContainerId>,
    owners: HashMap<Fingerprint, ContainerId>,
    uses: u64,
}

impl Prefetched {
    /// A cache within `budget_bytes` of RAM; 0 for none.
    pub fn new(budget_bytes: usize) -> Prefetched {
        Prefetched {
            budget_bytes,
            used_bytes: 0,
            containers: HashMap::new(),
            by_use: BTreeMap::new(),
            owners: HashMap::new(),
            uses: 0,
        }
    }

    /// The container of `key`, if that was prefetched.
    pub fn get(&mut self, key: &Fingerprint) -> Option<ContainerId> {
        let container = *self.owners.get(key)?;
        let (used, _) = self.containers.get_mut(&container)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, container);
        Some(container)
    }

    /// Takes in all `keys` of `container`, if they fit at all.
    pub fn insert(&mut self, container: ContainerId, keys: Vec<Fingerprint>) {
        self.forget(&container);
        let bytes = cost(&keys);
        if bytes > self.budget_bytes {
            return;
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

    /// Forgets a container.
    pub fn forget(&mut self, container: &ContainerId) {
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

    /// RAM, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.used_bytes
    }
}

fn cost(keys: &[Fingerprint]) -> usize {
    CONTAINER_BYTES + keys.len() * KEY_BYTES
}
