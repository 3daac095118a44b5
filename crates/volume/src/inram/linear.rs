//! The linear store: an array from LBN to PBN, of which only the parts in use take RAM.

use super::hash_table::zeroed;
use crate::{Pbn, Result};

/// Entries of a part: 32 KiB.
const PART_ENTRIES: usize = 4096;

type Part = [u64; PART_ENTRIES];

/// LBN → PBN.
pub(super) struct Linear {
    keys: u64,
    /// PBN + 1; 0 is nothing.
    parts: Vec<Option<Box<Part>>>,
    entries: u64,
}

impl Linear {
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the memory cannot be had.
    pub fn new(keys: u64) -> Result<Self> {
        Ok(Self {
            keys,
            parts: zeroed(keys.div_ceil(PART_ENTRIES as u64))?,
            entries: 0,
        })
    }

    pub fn keys(&self) -> u64 {
        self.keys
    }

    pub fn entries(&self) -> u64 {
        self.entries
    }

    pub fn ram_bytes(&self) -> u64 {
        let used = self.parts.iter().flatten().count() * PART_ENTRIES * 8;
        (used + self.parts.len() * size_of::<Option<Box<Part>>>()) as u64
    }

    pub fn get(&self, key: u64) -> Option<Pbn> {
        let (part, at) = place(key);
        let raw = self.parts.get(part)?.as_ref()?[at];
        raw.checked_sub(1).map(Pbn)
    }

    /// The key is below [`keys`](Self::keys).
    pub fn insert(&mut self, key: u64, pbn: Pbn) {
        let (part, at) = place(key);
        let part = self.parts[part].get_or_insert_with(|| Box::new([0; PART_ENTRIES]));
        self.entries += u64::from(part[at] == 0);
        part[at] = pbn.0 + 1;
    }

    pub fn remove(&mut self, key: u64) {
        let (part, at) = place(key);
        if let Some(Some(part)) = self.parts.get_mut(part) {
            self.entries -= u64::from(part[at] != 0);
            part[at] = 0;
        }
    }

    /// All entries, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Pbn)> {
        let used = self.parts.iter().enumerate();
        used.filter_map(|(n, part)| Some((n, part.as_ref()?)))
            .flat_map(|(n, part)| {
                let first = (n * PART_ENTRIES) as u64;
                part.iter().enumerate().filter_map(move |(at, raw)| {
                    Some((first + at as u64, Pbn(raw.checked_sub(1)?)))
                })
            })
    }
}

fn place(key: u64) -> (usize, usize) {
    let entries = PART_ENTRIES as u64;
    ((key / entries) as usize, (key % entries) as usize)
}
