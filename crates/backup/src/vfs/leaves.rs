//! Decoded leaves and tables of leaves that were used last, bounded in bytes.
//!
//! A leaf goes by the fingerprint of its chunk: what snapshots share is in RAM once.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use crate::leaf::Leaf;
use crate::path::entry_order;
use crate::{Entry, Item};

/// RAM of an entry besides what it points to, in bytes: the allocator's overhead counted.
const ENTRY_BYTES: usize = size_of::<Entry>() + 64;

/// A decoded leaf that finds the folder of an entry and the entry of a path.
pub struct OpenLeaf {
    leaf: Leaf,
    /// Number of the first entry of each run.
    starts: Vec<usize>,
}

impl OpenLeaf {
    /// Makes a decoded leaf searchable.
    pub fn new(leaf: Leaf) -> Self {
        let mut next = 0;
        let starts = leaf.runs.iter().map(|run| {
            let start = next;
            next += run.count;
            start
        });
        Self {
            starts: starts.collect(),
            leaf,
        }
    }

    /// The entry of this number with its folder.
    pub fn get(&self, number: usize) -> Option<(&[u8], &Entry)> {
        let entry = self.leaf.entries.get(number)?;
        let run = self.starts.partition_point(|start| *start <= number) - 1;
        Some((&self.leaf.runs[run].folder, entry))
    }

    /// Number of the first entry whose key is not below (folder, name); the number of entries where there is none.
    pub fn lower_bound(&self, folder: &[u8], name: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.leaf.entries.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let is_below = self
                .get(middle)
                .is_some_and(|(at, entry)| entry_order((at, &entry.name), (folder, name)).is_lt());
            if is_below {
                low = middle + 1
            } else {
                high = middle
            }
        }
        low
    }

    /// Bytes of RAM that it takes, about.
    pub fn ram_bytes(&self) -> usize {
        let entry_bytes = |entry: &Entry| ENTRY_BYTES + entry.heap_bytes();
        let entries: usize = self.leaf.entries.iter().map(entry_bytes).sum();
        let run_bytes = |run: &crate::leaf::FolderRun| size_of_val(run) + run.folder.len() + 24;
        let runs: usize = self.leaf.runs.iter().map(run_bytes).sum();
        entries + runs + self.leaf.recipes.len() * size_of::<Item>()
    }
}

/// Values that were used last, bounded in bytes.
pub struct RecentlyUsed<K, V> {
    values: HashMap<K, (Arc<V>, usize, u64)>,
    order: BTreeMap<u64, K>,
    bytes: usize,
    bytes_max: usize,
    tick: u64,
}

impl<K: Hash + Eq + Copy, V> RecentlyUsed<K, V> {
    /// Makes an empty cache, for values of `bytes_max` bytes in all.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            values: HashMap::new(),
            order: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            tick: 0,
        }
    }

    /// The value, which is then the one used last.
    pub fn get(&mut self, key: &K) -> Option<Arc<V>> {
        let (value, _, used) = self.values.get_mut(key)?;
        self.tick += 1;
        self.order.remove(used);
        self.order.insert(self.tick, *key);
        *used = self.tick;
        Some(Arc::clone(value))
    }

    /// Keeps a value; those not used for longest make room.
    pub fn put(&mut self, key: K, value: Arc<V>, bytes: usize) {
        self.forget(&key);
        while self.bytes + bytes > self.bytes_max
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.bytes -= self.values.remove(&oldest).map_or(0, |(_, bytes, _)| bytes);
        }
        self.tick += 1;
        self.bytes += bytes;
        self.order.insert(self.tick, key);
        self.values.insert(key, (value, bytes, self.tick));
    }

    /// Drops a value.
    pub fn forget(&mut self, key: &K) {
        if let Some((_, bytes, used)) = self.values.remove(key) {
            self.bytes -= bytes;
            self.order.remove(&used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn entries_are_found_as_a_search_of_all_finds_them() {
        let mut leaf = Leaf::default();
        for (folder, names) in [("", "ac"), ("/a", "bdf"), ("/a/d", "x"), ("/c", "ay")] {
            for name in names.bytes() {
                leaf.push(folder.as_bytes(), Entry::new(vec![name], Kind::File));
            }
        }
        let all: Vec<_> = leaf
            .iter()
            .map(|(folder, entry)| (folder.to_vec(), entry.name.clone()))
            .collect();
        let open = OpenLeaf::new(leaf);
        for folder in ["", "/a", "/a/d", "/a/e", "/b", "/c", "/d"] {
            for name in ["", "a", "b", "c", "d", "e", "f", "x", "y", "z"] {
                let key = (folder.as_bytes(), name.as_bytes());
                let naive = all
                    .iter()
                    .position(|(at, own)| entry_order((at, own), key).is_ge());
                assert_eq!(
                    open.lower_bound(key.0, key.1),
                    naive.unwrap_or(all.len()),
                    "{folder}/{name}"
                );
            }
        }
        for (number, (folder, name)) in all.iter().enumerate() {
            let (at, entry) = open.get(number).expect("it is there");
            assert_eq!((at, &entry.name), (&folder[..], name));
        }
        assert!(open.get(all.len()).is_none());
    }

    #[test]
    fn what_was_used_last_stays() {
        let mut recent = RecentlyUsed::new(30);
        for key in 0..3 {
            recent.put(key, Arc::new(key), 10);
        }
        assert!(recent.get(&0).is_some());
        recent.put(3, Arc::new(3), 10);
        let left: Vec<_> = (0..4).filter(|key| recent.get(key).is_some()).collect();
        assert_eq!(left, [0, 2, 3]);
        recent.put(4, Arc::new(4), 100);
        assert!(recent.get(&4).is_some() && recent.get(&3).is_none());
    }
}
