//! The sparse store: open addressing with linear probing, allocated once for all keys that there can be (report §3.6.1).
//!
//! Invariant: between a key's own slot and the slot where it lies, every slot is taken. So a search ends at the first
//! empty slot and never earlier, however long the cluster is. A removal moves later keys of the cluster back instead of
//! leaving a mark: there is nothing to be swept, and searches do not grow longer with age.

use crate::probing::Ring;
use crate::{Error, Pbn, Result};

/// Slots for each 10 keys: 10 % more than keys, so that a successful search takes six probes on average when all keys
/// are there (report §3.6.1).
const SLOTS_FOR_TEN_KEYS: u64 = 11;

/// Key → PBN, for keys of one length.
pub(super) struct HashTable {
    key_bytes: usize,
    keys_max: u64,
    slots: u64,
    /// For each slot the key and PBN + 1, which is 0 in an empty one.
    memory: Vec<u8>,
    entries: u64,
}

impl HashTable {
    /// # Errors
    /// [`Error::Unsupported`] where the memory cannot be had.
    pub fn new(key_bytes: usize, keys_max: u64) -> Result<Self> {
        let slots = (keys_max / 10 + 1).saturating_mul(SLOTS_FOR_TEN_KEYS);
        let bytes = slots.saturating_mul((key_bytes + 8) as u64);
        Ok(Self {
            key_bytes,
            keys_max,
            slots,
            memory: zeroed(bytes)?,
            entries: 0,
        })
    }

    pub fn shape(&self) -> (usize, u64) {
        (self.key_bytes, self.keys_max)
    }

    pub fn entries(&self) -> u64 {
        self.entries
    }

    pub fn ram_bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    pub fn get(&self, key: &[u8]) -> Option<Pbn> {
        let (slot, is_there) = self.find(key);
        is_there.then(|| Pbn(self.value(slot) - 1))
    }

    /// # Errors
    /// [`Error::NoSpace`] where all keys are taken.
    pub fn insert(&mut self, key: &[u8], pbn: Pbn) -> Result<()> {
        let (slot, is_there) = self.find(key);
        if !is_there {
            if self.entries == self.keys_max {
                return Err(Error::NoSpace {
                    what: format!("the hash index holds all of its {} keys", self.keys_max),
                });
            }
            self.entries += 1;
        }
        self.put(slot, key, pbn.0 + 1);
        Ok(())
    }

    pub fn remove(&mut self, key: &[u8]) {
        let (mut hole, is_there) = self.find(key);
        if !is_there {
            return;
        }
        self.entries -= 1;
        let mut slot = hole;
        loop {
            slot = self.ring().after(slot);
            if self.value(slot) == 0 {
                break;
            }
            let home = self.ring().home(self.key(slot));
            // The key may lie in the hole unless its own slot comes behind the hole.
            if self.ring().distance(home, hole) < self.ring().distance(home, slot) {
                self.copy(slot, hole);
                hole = slot;
            }
        }
        self.set_value(hole, 0);
    }

    /// All entries, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Pbn)> {
        let slots = self.memory.chunks_exact(self.stride());
        slots.filter_map(|slot| {
            let (key, value) = slot.split_at(self.key_bytes);
            let value = u64::from_le_bytes(*value.first_chunk()?);
            Some((key, Pbn(value.checked_sub(1)?)))
        })
    }

    /// Where the key lies, or the empty slot that ends its cluster.
    fn find(&self, key: &[u8]) -> (u64, bool) {
        let mut slot = self.ring().home(key);
        while self.value(slot) != 0 {
            if self.key(slot) == key {
                return (slot, true);
            }
            slot = self.ring().after(slot);
        }
        (slot, false)
    }

    fn ring(&self) -> Ring {
        Ring(self.slots)
    }

    fn stride(&self) -> usize {
        self.key_bytes + 8
    }

    fn start(&self, slot: u64) -> usize {
        slot as usize * self.stride()
    }

    fn key(&self, slot: u64) -> &[u8] {
        let start = self.start(slot);
        &self.memory[start..start + self.key_bytes]
    }

    fn value(&self, slot: u64) -> u64 {
        let start = self.start(slot) + self.key_bytes;
        let mut value = [0; 8];
        value.copy_from_slice(&self.memory[start..start + 8]);
        u64::from_le_bytes(value)
    }

    fn set_value(&mut self, slot: u64, value: u64) {
        let start = self.start(slot) + self.key_bytes;
        self.memory[start..start + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn put(&mut self, slot: u64, key: &[u8], value: u64) {
        let start = self.start(slot);
        self.memory[start..start + self.key_bytes].copy_from_slice(key);
        self.set_value(slot, value);
    }

    fn copy(&mut self, from: u64, to: u64) {
        let start = self.start(from);
        let end = start + self.stride();
        let target = self.start(to);
        self.memory.copy_within(start..end, target);
    }
}

/// Zeros, which take RAM as they are touched.
///
/// # Errors
/// [`Error::Unsupported`] where the system does not give so much.
pub(super) fn zeroed<T: Clone + Default>(count: u64) -> Result<Vec<T>> {
    let bytes = count.saturating_mul(size_of::<T>() as u64);
    let refused = || Error::Unsupported {
        what: format!(
            "the backend inram needs {} MiB of RAM more than there is",
            bytes >> 20
        ),
    };
    let count = usize::try_from(count).map_err(|_| refused())?;
    // Asked for and given back: a refusal of what follows would end the program.
    Vec::<T>::new()
        .try_reserve_exact(count)
        .map_err(|_| refused())?;
    Ok(vec![T::default(); count])
}
