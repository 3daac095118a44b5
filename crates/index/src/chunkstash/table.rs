//! The cuckoo table: which keys have a slot, and how one moves to make room for another.
//!
//! Always holds: a slot's signature is that of a key in the log page that it names, and the slot is one of the key's candidates. RAM has no more of
//! a key than that, so moving one reads its page again.

use onefold_chunk::Fingerprint;

use super::{ChunkStash, LOG};
use crate::strata::page::PAGE_BYTES;
use crate::{Error, Result};

/// Candidate slots of a key, from two hashes.
const CANDIDATES: u64 = 16;
/// Keys that move to make room for one before the table counts as full.
const MOVES_MAX: usize = 64;

/// The cuckoo table: signatures, and log pages plus one; 0 is an empty slot.
pub(super) struct Table {
    pub(super) signatures: Vec<u16>,
    pub(super) pages: Vec<u32>,
}

impl Table {
    /// `slots` empty ones.
    pub(super) fn new(slots: usize) -> Table {
        Table {
            signatures: vec![0; slots],
            pages: vec![0; slots],
        }
    }

    pub(super) fn candidates(&self, key: &Fingerprint) -> impl Iterator<Item = usize> + use<> {
        let word =
            |at: usize| u64::from_le_bytes(key.0[at..at + 8].try_into().expect("eight bytes"));
        let (start, step, slots) = (word(8), word(16) | 1, self.pages.len() as u128);
        (0..CANDIDATES).map(move |i| {
            ((u128::from(start.wrapping_add(i.wrapping_mul(step))) * slots) >> 64) as usize
        })
    }

    pub(super) fn signature(key: &Fingerprint) -> u16 {
        u16::from_le_bytes([key.0[24], key.0[25]])
    }

    /// Slots that may be the key's.
    pub(super) fn matches(&self, key: &Fingerprint) -> impl Iterator<Item = usize> {
        let signature = Table::signature(key);
        self.candidates(key)
            .filter(move |slot| self.pages[*slot] > 0 && self.signatures[*slot] == signature)
    }

    pub(super) fn put(&mut self, slot: usize, key: &Fingerprint, page: u32) {
        self.signatures[slot] = Table::signature(key);
        self.pages[slot] = page + 1;
    }
}

impl ChunkStash {
    /// Gives the key a slot that names `page`, in place of the one it has.
    pub(super) fn enter(&mut self, key: &Fingerprint, page: u32) -> Result<()> {
        self.inserted += 1;
        let own = self.slot_of(key)?;
        if own.is_none()
            && !self
                .inserted
                .is_multiple_of(u64::from(self.options.sample.max(1)))
        {
            return Ok(());
        }
        if let Some(slot) = own.or_else(|| {
            self.table
                .candidates(key)
                .find(|slot| self.table.pages[*slot] == 0)
        }) {
            self.table.put(slot, key, page);
            return Ok(());
        }
        let (mut key, mut page) = (*key, page);
        for turn in 0..MOVES_MAX {
            if let Some(free) = self
                .table
                .candidates(&key)
                .find(|slot| self.table.pages[*slot] == 0)
            {
                self.table.put(free, &key, page);
                return Ok(());
            }
            let slot = self
                .table
                .candidates(&key)
                .nth(turn % CANDIDATES as usize)
                .expect("a candidate");
            let out = self.table.pages[slot] - 1;
            let moved = self.key_in(slot, out)?;
            self.table.put(slot, &key, page);
            (key, page) = (moved, out);
        }
        let what = format!(
            "{} slots are full after {} keys",
            self.table.pages.len(),
            self.inserted
        );
        Err(Error::Budget {
            budget_bytes: self.options.ram_budget_bytes,
            what,
        })
    }

    /// The key of a slot, from the log: RAM holds its signature only.
    fn key_in(&mut self, slot: usize, page: u32) -> Result<Fingerprint> {
        let signature = self.table.signatures[slot];
        self.fetch(page)?;
        let keys: Vec<Fingerprint> = self.cache.page_of(page).map_or(Vec::new(), |page| {
            page.records().map(|(key, _)| key).collect()
        });
        let own = |key: &&Fingerprint| {
            Table::signature(key) == signature
                && self.table.candidates(key).any(|other| other == slot)
        };
        keys.iter().find(own).copied().ok_or_else(|| {
            Error::damaged(
                LOG,
                u64::from(page) * PAGE_BYTES as u64,
                "no record for a slot of the table",
            )
        })
    }

    /// The slot that the key has, proven.
    pub(super) fn slot_of(&mut self, key: &Fingerprint) -> Result<Option<usize>> {
        for slot in self.table.matches(key).collect::<Vec<_>>() {
            let page = self.table.pages[slot] - 1;
            self.fetch(page)?;
            if self
                .cache
                .page_of(page)
                .is_some_and(|page| page.find(key).is_some())
            {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }
}
