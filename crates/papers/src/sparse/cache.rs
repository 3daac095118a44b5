//! Manifests in RAM: the champions of the last segments, and the segments that were written last.
//!
//! Always holds: an answer was compared with the full fingerprint. Of manifests that both have a fingerprint the newest
//! answers; when it goes, the other does so again from when it is next asked for. The manifest that answered nothing
//! for longest goes first.

use std::collections::HashMap;

use onefold_chunk::Fingerprint;

use super::hooks::{Tag, tag_of};
use onefold_index::ContainerId;

/// RAM of a record: itself, and its slot in the map of places, which is between an eighth and twice as large as need
/// be.
const RECORD_BYTES: usize = 40 + 30;

/// Manifests in RAM, within so many bytes: the champions of the last segments, and those written last.
pub struct ManifestCache {
    bytes_max: usize,
    bytes: usize,
    manifests: HashMap<u32, Resident>,
    /// Which manifest answers for a fingerprint.
    places: HashMap<Tag, u32>,
    now: u64,
}

struct Resident {
    /// In the order of fingerprints.
    records: Vec<(Fingerprint, ContainerId)>,
    used: u64,
}

impl ManifestCache {
    /// An empty one, within `bytes_max` of RAM, but never without the manifest that came last.
    pub fn new(bytes_max: usize) -> ManifestCache {
        ManifestCache {
            bytes_max,
            bytes: 0,
            manifests: HashMap::new(),
            places: HashMap::new(),
            now: 0,
        }
    }

    /// Which manifest speaks of `key`, and what it says.
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

    /// Whether manifest `number` is here. If so, it answers from now on for those of its fingerprints that no newer one
    /// has.
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

    /// Takes in manifest `number`; of records of one fingerprint the last counts.
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

    /// Forgets manifest `number`.
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

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = ManifestCache::new(self.bytes_max);
    }

    /// RAM, in bytes.
    pub fn ram_bytes(&self) -> usize {
        let records = self.manifests.values().map(|manifest| &manifest.records);
        records
            .map(|records| records.capacity() * 40)
            .sum::<usize>()
            + self.manifests.capacity() * 8 / 7 * 41
            + self.places.capacity() * 8 / 7 * 13
    }
}
