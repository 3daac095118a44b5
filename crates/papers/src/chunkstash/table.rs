//! The cuckoo table: it gives keys slots, moves keys to make room for others, and is made anew when there is none.
//!
//! Invariant: a slot's signature is that of a key in the log page that it names, and the slot is one of the key's
//! candidates. RAM has no more of a key than that, so moving one reads its page again.

use onefold_chunk::Fingerprint;

use super::{ChunkStash, LOG, UNMARKED};
use onefold_index::strata::log::{LogPage, Said, read_pages};
use onefold_index::strata::page::PAGE_BYTES;
use onefold_index::{Error, Result};

/// Candidate slots of a key, from two hashes.
const CANDIDATES: u64 = 16;
/// Number of keys that move to make room for one before the table counts as full.
const MOVES_MAX: usize = 64;
/// Share of slots that a new table must have free, so that it is not made anew again soon.
const FREE_SHARE: f64 = 0.2;

/// The cuckoo table: signatures, and log pages plus one; 0 is an empty slot.
pub(super) struct CuckooTable {
    pub(super) signatures: Vec<u16>,
    pub(super) pages: Vec<u32>,
}

impl CuckooTable {
    /// A table of `slots` empty slots.
    pub(super) fn new(slots: usize) -> CuckooTable {
        CuckooTable {
            signatures: vec![0; slots],
            pages: vec![0; slots],
        }
    }

    /// The candidate slots of a key, and its signature in each. Both are parts of the hash hᵢ = g₁ + i·g₂: the slot is
    /// made from the high bits, the signature from the low ones.
    fn candidates(&self, key: &Fingerprint) -> impl Iterator<Item = SlotCandidate> + use<> {
        let word =
            |at: usize| u64::from_le_bytes(key.0[at..at + 8].try_into().expect("eight bytes"));
        let (start, step, slots) = (word(8), word(16) | 1, self.pages.len() as u128);
        (0..CANDIDATES).map(move |i| {
            let hash = start.wrapping_add(i.wrapping_mul(step));
            SlotCandidate {
                slot: ((u128::from(hash) * slots) >> 64) as usize,
                signature: hash as u16,
            }
        })
    }

    fn is_at(&self, candidate: &SlotCandidate) -> bool {
        self.pages[candidate.slot] > 0 && self.signatures[candidate.slot] == candidate.signature
    }

    /// The slots that may be the key's, by their signatures.
    pub(super) fn matches(&self, key: &Fingerprint) -> impl Iterator<Item = usize> {
        let at = self.candidates(key).filter(|one| self.is_at(one));
        at.map(|one| one.slot)
    }

    fn put(&mut self, to: &SlotCandidate, page: u32) {
        self.signatures[to.slot] = to.signature;
        self.pages[to.slot] = page + 1;
    }

    fn free(&self, key: &Fingerprint) -> Option<SlotCandidate> {
        let mut candidates = self.candidates(key);
        candidates.find(|one| self.pages[one.slot] == 0)
    }
}

/// A possible slot of a key, and its signature there.
struct SlotCandidate {
    slot: usize,
    signature: u16,
}

impl ChunkStash {
    /// Makes a full table anew: without retired containers and, where that does not free enough, with every second key,
    /// repeatedly if needed.
    pub(super) fn make_room(&mut self) -> Result<()> {
        // Without retirements the same keys would fill it again.
        let mut is_roomy = !self.retired.is_empty() && self.make_table()?;
        while !is_roomy {
            self.options.sample = self.options.sample.max(1).saturating_mul(2);
            tracing::warn!(
                "index chunkstash is full: every {}th chunk has a place in its {} bytes of RAM from now on, and some duplicates are stored again; more RAM avoids that",
                self.options.sample,
                self.options.ram_budget_bytes
            );
            is_roomy = self.make_table()? || self.options.sample == u32::MAX;
        }
        Ok(())
    }

    /// Makes the table from all of the log; returns whether it fits and leaves some slots free.
    fn make_table(&mut self) -> Result<bool> {
        self.table.pages.fill(0);
        self.containers.clear();
        self.inserted = 0;
        let mut buf = Vec::new();
        for page in 0..self.pages {
            read_pages(&*self.disk, (LOG, UNMARKED), page, 1, &mut buf)?;
            if !self.enter_page(&LogPage::checked(&buf), page)? {
                return Ok(false);
            }
        }
        let free = self.table.pages.iter().filter(|page| **page == 0).count();
        Ok(free as f64 >= self.table.pages.len() as f64 * FREE_SHARE)
    }

    /// Enters the records of page `page`; returns whether there was room.
    pub(super) fn enter_page(&mut self, records: &LogPage<'_>, page: u32) -> Result<bool> {
        for (key, said) in records.records() {
            if !self.enter(&key, said, page)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives the key a slot that names `page`, in place of its present one. `false` where the table has no room: then
    /// another key has lost its slot.
    fn enter(&mut self, key: &Fingerprint, said: Said, page: u32) -> Result<bool> {
        let before = said.map(|container| self.containers.enter(container, page));
        let own = self.slot_of(key)?;
        let samples = self.options.sample > 1;
        // a removal needs a slot where prefetch may bring an earlier record
        let is_removal = samples && said.is_none();
        let is_gone = said.is_none_or(|container| self.retired.contains(&container));
        if own.is_none() && is_gone && !is_removal {
            return Ok(true);
        }
        self.inserted += 1;
        let sample = u64::from(self.options.sample.max(1));
        let is_sampled = before.is_none_or(|before| before.is_multiple_of(sample));
        if let Some(slot) = own {
            self.table.pages[slot] = page + 1;
            return Ok(true);
        }
        if !is_sampled {
            return Ok(true);
        }
        let (mut key, mut page) = (*key, page);
        for turn in 0..MOVES_MAX {
            if let Some(free) = self.table.free(&key) {
                self.table.put(&free, page);
                return Ok(true);
            }
            let taken = self
                .table
                .candidates(&key)
                .nth(turn % CANDIDATES as usize)
                .expect("a candidate");
            let out = self.table.pages[taken.slot] - 1;
            let moved = self.key_in(taken.slot, out)?;
            self.table.put(&taken, page);
            (key, page) = (moved, out);
        }
        Ok(false)
    }

    /// The key of a slot, read from the log: RAM holds its signature only.
    fn key_in(&mut self, slot: usize, page: u32) -> Result<Fingerprint> {
        self.fetch(page)?;
        let keys: Vec<Fingerprint> = self.cache.page_of(page).map_or(Vec::new(), |page| {
            page.records().map(|(key, _)| key).collect()
        });
        let own = |key: &&Fingerprint| self.table.matches(key).any(|other| other == slot);
        keys.iter().find(own).copied().ok_or_else(|| {
            Error::damaged(
                LOG,
                u64::from(page) * PAGE_BYTES as u64,
                "no record for a slot of the table",
            )
        })
    }

    /// The slot of the key, confirmed by the log; `None` if it has none.
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The slides: "key x stored at its candidate position i derives its signature from hᵢ(x)".
    #[test]
    fn a_key_has_another_signature_in_each_of_its_slots() {
        let table = CuckooTable::new(1000);
        for number in 0..100u64 {
            let key = Fingerprint::of(&number.to_le_bytes());
            let signatures: HashSet<u16> =
                table.candidates(&key).map(|one| one.signature).collect();
            assert!(signatures.len() >= 15, "{signatures:?}");
        }
    }
}
