//! The state of the log in RAM: the place of each manifest, the hooks, and the records that no longer count.
//!
//! Invariant: the ledger is the result of [`Ledger::note`] for the log's parts in their order, whether they are
//! written now or read at open.

use std::collections::HashMap;

use onefold_chunk::Fingerprint;

use super::hooks::Hooks;
use super::part::ManifestPart;
use crate::pagelog::PageRun;
use onefold_index::ContainerId;

/// The state of the log of manifests, kept in RAM.
pub struct Ledger {
    /// Places of the manifests, by their numbers.
    pub manifests: Vec<PageRun>,
    /// The sampled fingerprints.
    pub hooks: Hooks,
    /// Removed fingerprints, each with the first manifest that may have it again.
    removed: HashMap<Fingerprint, u32>,
    /// Number of records of each retired container.
    retired: HashMap<ContainerId, u32>,
    /// Number of records of each container that is not retired.
    counts: HashMap<ContainerId, u32>,
    /// Number of records in the log.
    pub records: u64,
    /// Number of records of retired containers.
    dead: u64,
}

impl Ledger {
    /// The ledger of an empty log.
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

    /// Notes a part of the log, which is at `extent`. Returns the number of its manifest.
    pub fn note(&mut self, extent: PageRun, part: &ManifestPart) -> u32 {
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
            if record.is_new {
                self.told(&record.container);
                self.hooks.moved(&record.key, number);
            } else {
                self.hooks.seen(&record.key, number)
            }
            *self.counts.entry(record.container).or_default() += 1;
        }
        self.records += part.records.len() as u64;
        number
    }

    /// Notes that records of `key` in manifests before `number` no longer count.
    pub fn remove(&mut self, key: &Fingerprint, number: u32) {
        self.removed.insert(*key, number);
        self.hooks.remove(key);
    }

    /// Retires a container; returns whether the log has records of it.
    pub fn retire(&mut self, container: ContainerId) -> bool {
        let records = self.counts.remove(&container);
        if let Some(records) = records {
            self.dead += u64::from(records);
            *self.retired.entry(container).or_default() += records;
        }
        records.is_some()
    }

    /// Notes an insertion into the container: a retired one is back by it.
    pub fn told(&mut self, container: &ContainerId) {
        if let Some(records) = self.retired.remove(container) {
            self.dead -= u64::from(records);
            *self.counts.entry(*container).or_default() += records;
        }
    }

    /// Whether the container is retired.
    pub fn is_retired(&self, container: &ContainerId) -> bool {
        self.retired.contains_key(container)
    }

    /// Whether `key` was removed after manifest `number` was written.
    pub fn is_removed(&self, key: &Fingerprint, number: u32) -> bool {
        self.removed.get(key).is_some_and(|first| number < *first)
    }

    /// Whether the record of `key` in manifest `number` counts: it was not removed, nor, as far as hooks know, moved
    /// since.
    pub fn counts(&self, key: &Fingerprint, number: u32) -> bool {
        let is_newest = || {
            if self.hooks.is_hook(key) {
                self.hooks
                    .manifests(key)
                    .last()
                    .is_some_and(|oldest| number >= oldest)
            } else {
                true
            }
        };
        !self.is_removed(key, number) && is_newest()
    }

    /// The number of dead records, removed ones included.
    pub fn dead(&self) -> u64 {
        self.dead + self.removed.len() as u64
    }

    /// RAM that a compaction would free, in bytes.
    pub fn freeable_bytes(&self) -> usize {
        self.removed.capacity() * 8 / 7 * (size_of::<(Fingerprint, u32)>() + 1)
            + self.retired.capacity() * 8 / 7 * 17
    }

    /// RAM of the ledger, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.manifests.capacity() * size_of::<PageRun>()
            + self.hooks.ram_bytes()
            + self.freeable_bytes()
            + self.counts.capacity() * 8 / 7 * 17
    }
}
