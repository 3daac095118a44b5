//! A table of fingerprints, exact, in RAM, in the order in which they came.
//!
//! Invariant: a fingerprint stands in the table once, with its newest value.

use onefold_chunk::Fingerprint;

const EMPTY: u32 = u32::MAX;

/// Fingerprints and a value for each, in the order in which they were first added.
pub struct FingerprintTable<V> {
    records: Vec<(Fingerprint, V)>,
    slots: Vec<u32>,
    capacity: usize,
}

impl<V: Copy> Default for FingerprintTable<V> {
    /// An empty table without room.
    fn default() -> FingerprintTable<V> {
        FingerprintTable::new(0)
    }
}

impl<V: Copy> FingerprintTable<V> {
    /// RAM of a record in bytes: the record, and its share of slots of which at most half are taken.
    pub const RECORD_BYTES: usize = size_of::<(Fingerprint, V)>() + 12;

    /// A table for `capacity` records, which takes RAM as it fills.
    pub fn new(capacity: usize) -> FingerprintTable<V> {
        FingerprintTable {
            records: Vec::new(),
            slots: Vec::new(),
            capacity,
        }
    }

    /// Whether the table has no room for another fingerprint.
    pub fn is_full(&self) -> bool {
        self.records.len() >= self.capacity
    }

    /// The value of `key`, if the table has one.
    #[inline]
    pub fn get(&self, key: &Fingerprint) -> Option<V> {
        if self.records.is_empty() {
            return None;
        }
        let place = self.slots[self.slot_of(key)];
        (place != EMPTY).then(|| self.records[place as usize].1)
    }

    /// Sets the value of `key` and returns the value before.
    pub fn put(&mut self, key: &Fingerprint, value: V) -> Option<V> {
        if self.records.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let slot = self.slot_of(key);
        match self.slots[slot] {
            EMPTY => {
                self.slots[slot] = self.records.len() as u32;
                self.records.push((*key, value));
                None
            }
            place => Some(std::mem::replace(
                &mut self.records[place as usize].1,
                value,
            )),
        }
    }

    /// All records in the order in which their fingerprints were first added.
    pub fn records(&self) -> &[(Fingerprint, V)] {
        &self.records
    }

    /// Removes all records and keeps the RAM for new ones.
    pub fn clear(&mut self) {
        self.records.clear();
        self.slots.fill(EMPTY);
    }

    /// RAM of the table, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.records.capacity() * size_of::<(Fingerprint, V)>() + self.slots.capacity() * 4
    }

    /// The slot where `key` is or would be, by linear probing from its home slot.
    #[inline]
    fn slot_of(&self, key: &Fingerprint) -> usize {
        // the first eight bytes decide the order of runs; the second eight are as uniform
        let hash = u64::from_le_bytes(key.0[8..16].try_into().expect("eight bytes"));
        let mut slot = ((u128::from(hash) * self.slots.len() as u128) >> 64) as usize;
        while self.slots[slot] != EMPTY && self.records[self.slots[slot] as usize].0 != *key {
            slot = if slot + 1 == self.slots.len() {
                0
            } else {
                slot + 1
            };
        }
        slot
    }

    fn grow(&mut self) {
        let records = (self.records.len() * 2).clamp(64, self.capacity.max(64));
        self.records
            .reserve_exact(records - self.records.len().min(records));
        self.slots = Vec::new();
        self.slots.resize(records * 2 + 2, EMPTY);
        for place in 0..self.records.len() {
            let slot = self.slot_of(&self.records[place].0);
            self.slots[slot] = place as u32;
        }
    }
}
