//! A table of fingerprints, exact, in RAM, in the order in which they came.
//!
//! Always holds: a fingerprint stands in it once, with the newest that was said of it.

use onefold_chunk::Fingerprint;

const EMPTY: u32 = u32::MAX;

/// Fingerprints and what is known of each, in the order in which they came.
pub struct Table<V> {
    records: Vec<(Fingerprint, V)>,
    slots: Vec<u32>,
    capacity: usize,
}

impl<V: Copy> Default for Table<V> {
    /// One that has no room worth speaking of.
    fn default() -> Table<V> {
        Table::new(0)
    }
}

impl<V: Copy> Table<V> {
    /// RAM a record: itself, and its share of slots of which at most half are taken.
    pub const RECORD_BYTES: usize = size_of::<(Fingerprint, V)>() + 12;

    /// A table for `capacity` records; it takes RAM as it fills.
    pub fn new(capacity: usize) -> Table<V> {
        Table {
            records: Vec::new(),
            slots: Vec::new(),
            capacity,
        }
    }

    /// Whether it has no room for another fingerprint.
    pub fn is_full(&self) -> bool {
        self.records.len() >= self.capacity
    }

    /// What is known of `key`, if anything is.
    #[inline]
    pub fn get(&self, key: &Fingerprint) -> Option<V> {
        if self.records.is_empty() {
            return None;
        }
        let place = self.slots[self.slot_of(key)];
        (place != EMPTY).then(|| self.records[place as usize].1)
    }

    /// Puts `value` in the place of what was known of `key`, and gives that.
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

    /// All records in the order in which their fingerprints came.
    pub fn records(&self) -> &[(Fingerprint, V)] {
        &self.records
    }

    /// Forgets everything and keeps its RAM for the next.
    pub fn clear(&mut self) {
        self.records.clear();
        self.slots.fill(EMPTY);
    }

    /// RAM, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.records.capacity() * size_of::<(Fingerprint, V)>() + self.slots.capacity() * 4
    }

    /// Where `key` is or would be: linear probing from its home.
    #[inline]
    fn slot_of(&self, key: &Fingerprint) -> usize {
        // the upper bits sort runs; the second eight bytes are as uniform
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
