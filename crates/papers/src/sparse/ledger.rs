//! What RAM knows of the log: where each manifest is, the hooks, and what no longer counts.
//!
//! Always holds: it is what [`Ledger::note`] makes of the log's parts in their order, whether they are written now or
//! read at open.

use std::collections::HashMap;

use onefold_chunk::Fingerprint;

use super::hooks::Hooks;
use super::part::Part;
use crate::pagelog::Extent;
use onefold_index::ContainerId;

/// What RAM knows of the log of manifests.
pub struct Ledger {
    /// By their numbers.
    pub manifests: Vec<Extent>,
    /// The sampled fingerprints.
    pub hooks: Hooks,
    /// Fingerprints that were removed, and the first manifest that may speak of them again.
    removed: HashMap<Fingerprint, u32>,
    /// Records that speak of each container that is gone.
    retired: HashMap<ContainerId, u32>,
    /// Records that speak of each container that is not gone.
    counts: HashMap<ContainerId, u32>,
    /// Records in the log.
    pub records: u64,
    /// Of those, of containers that are gone.
    dead: u64,
}

impl Ledger {
    /// Of an empty log.
    pub fn new(hooks: Hooks) -> Ledger {
        Ledger {
            manifests: Vec::new(),
            hooks,
            removed: HashMap::new(),
            retired: HashMap::new(),
            counts: HashMap::new(),
            records: 0,
            dead: 0,
        }
    }

    /// The number of the next manifest.
    pub fn next(&self) -> u32 {
        self.manifests.len() as u32
    }

    /// A part of the log, which is at `extent`. Returns the number of its manifest.
    pub fn note(&mut self, extent: Extent, part: &Part) -> u32 {
        match self.manifests.last_mut() {
            Some(last) if part.continues => last.pages = extent.page + extent.pages - last.page,
            _ => self.manifests.push(extent),
        }
        let number = self.next() - 1;
        part.retired.iter().for_each(|container| {
            self.retire(*container);
        });
        part.removed.iter().for_each(|key| self.remove(key, number));
        for record in &part.records {
            match record.is_new {
                true => {
                    self.told(&record.container);
                    self.hooks.moved(&record.key, number);
                }
                false => self.hooks.seen(&record.key, number),
            }
            *self.counts.entry(record.container).or_default() += 1;
        }
        self.records += part.records.len() as u64;
        number
    }

    /// What manifests before `number` say of `key` no longer counts.
    pub fn remove(&mut self, key: &Fingerprint, number: u32) {
        self.removed.insert(*key, number);
        self.hooks.remove(key);
    }

    /// Forgets a container. Whether the log speaks of it.
    pub fn retire(&mut self, container: ContainerId) -> bool {
        let records = self.counts.remove(&container);
        if let Some(records) = records {
            self.dead += u64::from(records);
            *self.retired.entry(container).or_default() += records;
        }
        records.is_some()
    }

    /// Something is inserted into a container: if it was gone, it is back.
    pub fn told(&mut self, container: &ContainerId) {
        if let Some(records) = self.retired.remove(container) {
            self.dead -= u64::from(records);
            *self.counts.entry(*container).or_default() += records;
        }
    }

    /// Whether the container is gone.
    pub fn is_retired(&self, container: &ContainerId) -> bool {
        self.retired.contains_key(container)
    }

    /// Whether `key` was removed after manifest `number` spoke of it.
    pub fn is_removed(&self, key: &Fingerprint, number: u32) -> bool {
        self.removed.get(key).is_some_and(|first| number < *first)
    }

    /// Whether manifest `number`'s word on `key` may be answered: it was not removed, nor, as far as hooks know, moved
    /// since.
    pub fn counts(&self, key: &Fingerprint, number: u32) -> bool {
        let is_newest = || match self.hooks.is_hook(key) {
            true => self
                .hooks
                .manifests(key)
                .last()
                .is_some_and(|oldest| number >= oldest),
            false => true,
        };
        !self.is_removed(key, number) && is_newest()
    }

    /// Records in vain, the removed ones with them.
    pub fn dead(&self) -> u64 {
        self.dead + self.removed.len() as u64
    }

    /// RAM of what a compaction would free, in bytes.
    pub fn freeable_bytes(&self) -> usize {
        self.removed.capacity() * 8 / 7 * (size_of::<(Fingerprint, u32)>() + 1)
            + self.retired.capacity() * 8 / 7 * 17
    }

    /// RAM, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.manifests.capacity() * size_of::<Extent>()
            + self.hooks.ram_bytes()
            + self.freeable_bytes()
            + self.counts.capacity() * 8 / 7 * 17
    }
}
