//! The sparse store: open addressing with linear probing, in slots that never cross a page border (report §3.6.1 and
//! §3.6.2).
//!
//! Invariant: between a key's own slot and the slot where it lies, every slot is taken. So a search ends at the first
//! empty slot and never earlier. A removal moves later keys of the cluster back instead of leaving a mark.

use super::Cache;
use crate::page_cache::PAGE_BYTES;
use crate::probing::Ring;
use crate::{Error, Key, Pbn, Result};

/// Slots for each 10 keys: 10 % more than keys (report §3.6.1).
const SLOTS_FOR_TEN_KEYS: u64 = 11;

/// Where the slots lie: the key and PBN + 1, which is 0 in an empty one.
pub(super) struct DiskHashTable {
    first_page: u64,
    key_bytes: usize,
    slots: u64,
}

/// Where the search for a key ended.
struct SearchEnd {
    slot: u64,
    is_there: bool,
}

impl DiskHashTable {
    pub fn new(first_page: u64, key_bytes: usize, keys_max: u64) -> Self {
        Self {
            first_page,
            key_bytes,
            slots: (keys_max / 10 + 1).saturating_mul(SLOTS_FOR_TEN_KEYS),
        }
    }

    pub fn end_page(&self) -> u64 {
        self.first_page + self.slots.div_ceil(self.slots_in_page())
    }

    pub fn get(&self, cache: &mut Cache, key: &[u8]) -> Result<Option<Pbn>> {
        let found = self.find(cache, key)?;
        if !found.is_there {
            return Ok(None);
        }
        Ok(value_of(self.slot(cache, found.slot)?)
            .checked_sub(1)
            .map(Pbn))
    }

    /// Whether the key was not there before. There are fewer keys than slots.
    pub fn insert(&self, cache: &mut Cache, key: &[u8], pbn: Pbn) -> Result<bool> {
        let found = self.find(cache, key)?;
        let bytes = self.change(cache, found.slot)?;
        bytes[..key.len()].copy_from_slice(key);
        bytes[key.len()..].copy_from_slice(&(pbn.0 + 1).to_le_bytes());
        Ok(!found.is_there)
    }

    /// Whether the key was there.
    pub fn remove(&self, cache: &mut Cache, key: &[u8]) -> Result<bool> {
        let found = self.find(cache, key)?;
        if !found.is_there {
            return Ok(false);
        }
        let (mut hole, mut slot) = (found.slot, found.slot);
        for _ in 0..self.slots {
            slot = self.ring().after(slot);
            let moved = self.slot(cache, slot)?.to_vec();
            if value_of(&moved) == 0 {
                self.change(cache, hole)?.fill(0);
                return Ok(true);
            }
            let home = self.ring().home(&moved[..self.key_bytes]);
            // The key may lie in the hole unless its own slot comes behind the hole.
            if self.ring().distance(home, hole) < self.ring().distance(home, slot) {
                self.change(cache, hole)?.copy_from_slice(&moved);
                hole = slot;
            }
        }
        Err(no_empty_slot())
    }

    pub fn iterate(
        &self,
        cache: &mut Cache,
        visit: &mut dyn FnMut(Key<'_>, Pbn) -> Result<()>,
    ) -> Result<()> {
        let in_page = self.slots_in_page();
        for first in (0..self.slots).step_by(in_page as usize) {
            let page = cache.read(self.first_page + first / in_page)?;
            let slots = page.chunks_exact(self.stride());
            for slot in slots.take(in_page.min(self.slots - first) as usize) {
                if let Some(pbn) = value_of(slot).checked_sub(1) {
                    visit(Key::Sparse(&slot[..self.key_bytes]), Pbn(pbn))?;
                }
            }
        }
        Ok(())
    }

    /// Where the key lies, or the empty slot that ends its cluster.
    fn find(&self, cache: &mut Cache, key: &[u8]) -> Result<SearchEnd> {
        let mut slot = self.ring().home(key);
        for _ in 0..self.slots {
            let bytes = self.slot(cache, slot)?;
            let is_there = value_of(bytes) != 0 && bytes.starts_with(key);
            if is_there || value_of(bytes) == 0 {
                return Ok(SearchEnd { slot, is_there });
            }
            slot = self.ring().after(slot);
        }
        Err(no_empty_slot())
    }

    fn ring(&self) -> Ring {
        Ring(self.slots)
    }

    fn stride(&self) -> usize {
        self.key_bytes + 8
    }

    fn slots_in_page(&self) -> u64 {
        (PAGE_BYTES / self.stride()) as u64
    }

    fn slot<'a>(&self, cache: &'a mut Cache, slot: u64) -> Result<&'a [u8]> {
        let (page, at) = self.place(slot);
        Ok(&cache.read(page)?[at..at + self.stride()])
    }

    fn change<'a>(&self, cache: &'a mut Cache, slot: u64) -> Result<&'a mut [u8]> {
        let (page, at) = self.place(slot);
        Ok(&mut cache.change(page)?[at..at + self.stride()])
    }

    /// Page and offset in it.
    fn place(&self, slot: u64) -> (u64, usize) {
        let in_page = self.slots_in_page();
        let at = (slot % in_page) as usize * self.stride();
        (self.first_page + slot / in_page, at)
    }
}

/// The last 8 bytes of a slot.
fn value_of(slot: &[u8]) -> u64 {
    slot.last_chunk()
        .map_or(0, |value| u64::from_le_bytes(*value))
}

fn no_empty_slot() -> Error {
    Error::Damaged {
        place: "hash table".into(),
        what: "expected an empty slot, found none".into(),
    }
}
