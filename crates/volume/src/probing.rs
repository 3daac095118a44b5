//! Linear probing: the slots of a hash table as a ring. Files keep tables so, hence where a key's search begins is part
//! of a format (FORMAT.md, "Tables of the backend `dtb`").

use onefold_io::mix64;

/// A ring of so many slots.
#[derive(Clone, Copy)]
pub(crate) struct Ring(pub u64);

impl Ring {
    /// The slot at which the search for a key begins.
    pub fn home(self, key: &[u8]) -> u64 {
        let mut first = [0; 8];
        let bytes = key.len().min(8);
        first[..bytes].copy_from_slice(&key[..bytes]);
        let spread = mix64(u64::from_le_bytes(first));
        ((u128::from(spread) * u128::from(self.0)) >> 64) as u64
    }

    /// The next slot.
    pub fn after(self, slot: u64) -> u64 {
        if slot + 1 == self.0 { 0 } else { slot + 1 }
    }

    /// Number of steps from one slot to another.
    pub fn distance(self, from: u64, to: u64) -> u64 {
        if to >= from {
            to - from
        } else {
            to + self.0 - from
        }
    }
}
