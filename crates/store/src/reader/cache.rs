//! A cache of a few large values.

use std::collections::HashMap;
use std::sync::Arc;

/// The most recently used values, bounded in bytes. There are few of them: the oldest is found by looking at all.
pub struct Cache<K, V> {
    values: HashMap<K, (Arc<V>, usize, u64)>,
    bytes: usize,
    bytes_max: usize,
    tick: u64,
}

impl<K: std::hash::Hash + Eq + Clone, V> Cache<K, V> {
    /// Makes an empty cache, for values of `bytes_max` bytes in all.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            values: HashMap::new(),
            bytes: 0,
            bytes_max,
            tick: 0,
        }
    }

    pub fn get(&mut self, key: &K) -> Option<Arc<V>> {
        self.tick += 1;
        let (value, _, used) = self.values.get_mut(key)?;
        *used = self.tick;
        Some(Arc::clone(value))
    }

    pub fn forget(&mut self, key: &K) {
        self.bytes -= self.values.remove(key).map_or(0, |(_, bytes, _)| bytes);
    }

    pub fn put(&mut self, key: K, value: V, bytes: usize) -> Arc<V> {
        while self.bytes + bytes > self.bytes_max && !self.values.is_empty() {
            let oldest = self
                .values
                .iter()
                .min_by_key(|(_, (_, _, used))| *used)
                .map(|(key, _)| key.clone());
            let oldest = oldest.expect("it is not empty");
            self.bytes -= self.values.remove(&oldest).expect("it was just seen").1;
        }
        self.tick += 1;
        self.bytes += bytes;
        let value = Arc::new(value);
        self.values
            .insert(key, (Arc::clone(&value), bytes, self.tick));
        value
    }
}
