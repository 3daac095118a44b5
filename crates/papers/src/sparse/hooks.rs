//! Hooks: the sampled fingerprints, and the manifests in which they were last seen.
//!
//! A fingerprint is a hook if eight of its bytes, as a number, divide by `sample`. Invariant: the table stays within
//! its bytes; where it is full, `sample` doubles, and every other hook is dropped. All manifests of a hook give it the
//! same location: a hook that moves forgets earlier manifests.

use std::collections::HashMap;

use onefold_chunk::Fingerprint;

/// Largest number of manifests of a hook, newest first.
const MANIFESTS: usize = 3;
const NONE: u32 = u32::MAX;
/// Bytes of a slot: eight bytes of the fingerprint, the manifests, and the map's control byte.
const SLOT_BYTES: usize = 8 + MANIFESTS * 4 + 1;

/// Eight bytes of a fingerprint, in halves so that a slot has no padding.
pub type Tag = [u32; 2];

/// The bytes of a fingerprint that identify a hook.
pub fn tag_of(key: &Fingerprint) -> Tag {
    let four = |at: usize| u32::from_le_bytes(key.0[at..at + 4].try_into().expect("four bytes"));
    [four(8), four(12)]
}

/// The sampled fingerprints, and the manifests in which they were last seen.
pub struct Hooks {
    table: HashMap<Tag, [u32; MANIFESTS]>,
    sample: u64,
    hooks_max: usize,
}

impl Hooks {
    /// An empty table for one fingerprint in `sample`, within `bytes` bytes.
    pub fn new(sample: u32, bytes: usize) -> Hooks {
        let slots = (bytes / SLOT_BYTES + 1).next_power_of_two() / 2;
        Hooks {
            table: HashMap::new(),
            sample: u64::from(sample.max(1)),
            hooks_max: slots.max(16) / 8 * 7,
        }
    }

    /// The sampling: one fingerprint in this many is a hook.
    pub fn sample(&self) -> u64 {
        self.sample
    }

    /// Whether the fingerprint is a hook.
    pub fn is_hook(&self, key: &Fingerprint) -> bool {
        is_sampled(&tag_of(key), self.sample)
    }

    /// The manifests of a hook, newest first; none for other fingerprints.
    pub fn manifests(&self, key: &Fingerprint) -> impl Iterator<Item = u32> {
        let manifests = self.table.get(&tag_of(key)).copied();
        let all = manifests.unwrap_or([NONE; MANIFESTS]).into_iter();
        all.filter(|manifest| *manifest != NONE)
    }

    /// Notes that a chunk was inserted in `manifest`: earlier manifests no longer count.
    pub fn moved(&mut self, key: &Fingerprint, manifest: u32) {
        if self.is_hook(key) {
            self.put(tag_of(key), [manifest, NONE, NONE]);
        }
    }

    /// Notes that a chunk was found again, in `manifest`.
    pub fn seen(&mut self, key: &Fingerprint, manifest: u32) {
        if !self.is_hook(key) {
            return;
        }
        let tag = tag_of(key);
        let mut manifests = self.table.get(&tag).copied().unwrap_or([NONE; MANIFESTS]);
        if manifests[0] != manifest {
            manifests.copy_within(..MANIFESTS - 1, 1);
            manifests[0] = manifest;
            self.put(tag, manifests);
        }
    }

    /// Removes the hook of a chunk that was removed.
    pub fn remove(&mut self, key: &Fingerprint) {
        self.table.remove(&tag_of(key));
    }

    fn put(&mut self, tag: Tag, manifests: [u32; MANIFESTS]) {
        while is_sampled(&tag, self.sample) {
            // a map that is this full has all its slots already, and would double them for one more
            let is_full =
                self.table.len() == self.table.capacity() && self.table.len() > self.hooks_max / 2;
            if !is_full || self.table.contains_key(&tag) {
                self.table.insert(tag, manifests);
                return;
            }
            self.sample *= 2;
            self.drop_unsampled();
        }
    }

    /// Drops fingerprints that are no hooks any more, through a list, so that there are never two tables at once.
    fn drop_unsampled(&mut self) {
        let (table, sample) = (std::mem::take(&mut self.table), self.sample);
        let mut kept =
            Vec::with_capacity(table.keys().filter(|tag| is_sampled(tag, sample)).count());
        kept.extend(table.into_iter().filter(|(tag, _)| is_sampled(tag, sample)));
        self.table = kept.into_iter().collect();
    }

    /// RAM of the table, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.table.capacity() * 8 / 7 * SLOT_BYTES
    }
}

fn is_sampled(tag: &Tag, sample: u64) -> bool {
    (u64::from(tag[1]) << 32 | u64::from(tag[0])).is_multiple_of(sample)
}
