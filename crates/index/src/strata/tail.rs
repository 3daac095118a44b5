//! The tail: what was inserted and removed since the last seal, exact, in RAM, in the order of insertion.
//!
//! Always holds: a fingerprint stands in it once, with the newest that was said of it. Lost in a crash until sealed.

use std::collections::HashSet;

use onefold_chunk::Fingerprint;

use super::log::Said;
use crate::ContainerId;

/// RAM a record: itself, and its share of a table that is at most half full.
pub const TAIL_RECORD_BYTES: usize = size_of::<(Fingerprint, Said)>() + 12;

const EMPTY: u32 = u32::MAX;

/// What was inserted and removed since the last seal, exact, in the order of insertion.
pub struct Tail {
    records: Vec<(Fingerprint, Said)>,
    table: Vec<u32>,
    capacity: usize,
}

impl Tail {
    /// A tail for `capacity` records; it takes RAM as it fills.
    pub fn new(capacity: usize) -> Tail {
        Tail {
            records: Vec::new(),
            table: Vec::new(),
            capacity,
        }
    }

    /// Whether the next new fingerprint needs a seal first.
    pub fn is_full(&self) -> bool {
        self.records.len() >= self.capacity
    }

    /// What was said of `key`, if anything was.
    #[inline]
    pub fn get(&self, key: &Fingerprint) -> Option<Said> {
        if self.records.is_empty() {
            return None;
        }
        let slot = self.table[self.slot_of(key)];
        (slot != EMPTY).then(|| self.records[slot as usize].1)
    }

    /// Says `said` of `key`, whatever was said before.
    pub fn put(&mut self, key: &Fingerprint, said: Said) {
        if self.records.len() * 2 >= self.table.len() {
            self.grow();
        }
        let slot = self.slot_of(key);
        match self.table[slot] {
            EMPTY => {
                self.table[slot] = self.records.len() as u32;
                self.records.push((*key, said));
            }
            place => self.records[place as usize].1 = said,
        }
    }

    /// All records in the order of insertion.
    pub fn records(&self) -> &[(Fingerprint, Said)] {
        &self.records
    }

    /// The containers that its records name.
    pub fn containers(&self) -> HashSet<ContainerId> {
        self.records.iter().filter_map(|(_, said)| *said).collect()
    }

    /// Forgets everything and keeps its RAM for the next.
    pub fn clear(&mut self) {
        self.records.clear();
        self.table.fill(EMPTY);
    }

    /// RAM, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.records.capacity() * size_of::<(Fingerprint, Said)>() + self.table.capacity() * 4
    }

    /// Where `key` is or would be: linear probing from its home.
    #[inline]
    fn slot_of(&self, key: &Fingerprint) -> usize {
        // the upper bits sort runs; the second eight bytes are as uniform
        let hash = u64::from_le_bytes(key.0[8..16].try_into().expect("eight bytes"));
        let mut slot = ((u128::from(hash) * self.table.len() as u128) >> 64) as usize;
        while self.table[slot] != EMPTY && self.records[self.table[slot] as usize].0 != *key {
            slot = if slot + 1 == self.table.len() {
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
        self.table = Vec::new();
        self.table.resize(records * 2 + 2, EMPTY);
        for place in 0..self.records.len() {
            let slot = self.slot_of(&self.records[place].0);
            self.table[slot] = place as u32;
        }
    }
}
