//! Manifests in RAM: the champions of the last segments, and the segments that were written last.
//!
//! Invariant: an answer was compared with the full fingerprint. Of manifests that share a fingerprint the newest
//! answers; when it leaves, an older one answers again after it was next asked for. The manifest that answered nothing
//! for longest leaves first.

use std::collections::HashMap;

use onefold_chunk::Fingerprint;

use super::hooks::{Tag, tag_of};
use onefold_index::ContainerId;

/// RAM of a record in bytes: the record, and its slot in the map of places, which is an eighth to twice larger than
/// needed.
const RECORD_BYTES: usize = 40 + 30;

/// Manifests in RAM, within a number of bytes: the champions of the last segments, and those written last.
pub struct ManifestCache {
    bytes_max: usize,
    bytes: usize,
    manifests: HashMap<u32, Resident>,
    /// The manifest that answers for each fingerprint.
    places: HashMap<Tag, u32>,
    now: u64,
}

struct Resident {
    /// Records in the order of fingerprints.
    records: Vec<(Fingerprint, ContainerId)>,
    used: u64,
}

impl ManifestCache {
    /// An empty cache within `bytes_max` of RAM; the manifest that came last stays in any case.
    pub fn new(bytes_max: usize) -> ManifestCache {
        ManifestCache {
            bytes_max,
            bytes: 0,
            manifests: HashMap::new(),
            places: HashMap::new(),
            now: 0,
        }
    }

    /// The manifest that has `key`, and the container in it.
    pub fn get(&mut self, key: &Fingerprint) -> Option<(u32, ContainerId)> {
        let number = *self.places.get(&tag_of(key))?;
        let manifest = self.manifests.get_mut(&number)?;
        let at = manifest
            .records
            .binary_search_by_key(&key.0, |(key, _)| key.0);
        let (_, container) = manifest.records[at.ok()?];
        self.now += 1;
        manifest.used = self.now;
        Some((number, container))
    }

    /// Whether manifest `number` is cached. If so, it answers from now on for fingerprints that no newer manifest has.
    pub fn expose(&mut self, number: u32) -> bool {
        self.now += 1;
        let Some(manifest) = self.manifests.get_mut(&number) else {
            return false;
        };
        manifest.used = self.now;
        for (key, _) in &manifest.records {
            let newest = self.places.entry(tag_of(key)).or_insert(number);
            *newest = number.max(*newest);
        }
        true
    }

    /// Adds manifest `number`; of records with one fingerprint the last counts.
    pub fn insert(
        &mut self,
        number: u32,
        records: impl Iterator<Item = (Fingerprint, ContainerId)>,
    ) {
        self.forget(number);
        let mut records: Vec<_> = records.collect();
        records.reverse();
        records.sort_by_key(|(key, _)| key.0);
        records.dedup_by_key(|(key, _)| *key);
        records.shrink_to_fit();
        self.bytes += records.len() * RECORD_BYTES;
        while self.bytes > self.bytes_max && !self.manifests.is_empty() {
            self.evict();
        }
        self.manifests.insert(number, Resident { records, used: 0 });
        self.expose(number);
    }

    fn evict(&mut self) {
        let oldest = self
            .manifests
            .iter()
            .min_by_key(|(_, manifest)| manifest.used);
        if let Some(number) = oldest.map(|(number, _)| *number) {
            self.forget(number);
        }
    }

    /// Removes manifest `number`.
    pub fn forget(&mut self, number: u32) {
        let Some(manifest) = self.manifests.remove(&number) else {
            return;
        };
        self.bytes -= manifest.records.len() * RECORD_BYTES;
        for (key, _) in &manifest.records {
            let tag = tag_of(key);
            if self.places.get(&tag) == Some(&number) {
                self.places.remove(&tag);
            }
        }
    }

    /// Removes all manifests.
    pub fn clear(&mut self) {
        *self = ManifestCache::new(self.bytes_max);
    }

    /// RAM of the cache, in bytes.
    pub fn ram_bytes(&self) -> usize {
        let records = self.manifests.values().map(|manifest| &manifest.records);
        records
            .map(|records| records.capacity() * 40)
            .sum::<usize>()
            + self.manifests.capacity() * 8 / 7 * 41
            + self.places.capacity() * 8 / 7 * 13
    }
}
