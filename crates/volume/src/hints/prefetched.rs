//! Chunks that were read with the hint PREFETCH, by their hashes: they are asked for before the index (report chapter
//! 5). A copy writes them soon; then they are not needed any more.
//!
//! Invariant: at most [`PREFETCHED_MAX`] entries, and each address has one.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use parking_lot::Mutex;

/// Chunks at most: 512 MiB of chunks of 4 KiB, since a copy is written back some seconds after it was read. In RAM they
/// take 16 MiB.
pub const PREFETCHED_MAX: usize = 1 << 17;

/// Bytes of a hash.
const HASH_BYTES: usize = 16;
/// Rounded bytes of an entry in both tables and in the order.
const ENTRY_BYTES: usize = 120;

/// Half of a fingerprint.
type ChunkHash = [u8; HASH_BYTES];

/// From hashes to addresses `A` of one engine. Readers add, the writer takes.
pub struct Prefetched<A>(Mutex<PrefetchedEntries<A>>);

struct PrefetchedEntries<A> {
    by_hash: HashMap<ChunkHash, (A, u64)>,
    by_address: HashMap<A, ChunkHash>,
    /// Hashes with their numbers, the oldest first; those that were taken meanwhile, too.
    order: VecDeque<(ChunkHash, u64)>,
    next: u64,
}

impl<A> Default for Prefetched<A> {
    fn default() -> Self {
        Self(Mutex::new(PrefetchedEntries {
            by_hash: HashMap::new(),
            by_address: HashMap::new(),
            order: VecDeque::new(),
            next: 0,
        }))
    }
}

impl<A: Copy + Eq + Hash> Prefetched<A> {
    /// Remembers that `address` holds the chunk of this hash. The oldest entry makes room.
    pub fn insert(&self, hash: ChunkHash, address: A) {
        let mut entries = self.0.lock();
        entries.forget(&address);
        if let Some((old, _)) = entries.by_hash.get(&hash).copied() {
            entries.forget(&old);
        }
        while entries.order.len() >= PREFETCHED_MAX {
            if let Some((oldest, number)) = entries.order.pop_front() {
                entries.end(&oldest, number);
            }
        }
        let number = entries.next;
        entries.next += 1;
        entries.order.push_back((hash, number));
        entries.by_hash.insert(hash, (address, number));
        entries.by_address.insert(address, hash);
    }

    /// The address of the chunk of this hash, which is forgotten with that.
    pub fn take(&self, hash: &ChunkHash) -> Option<A> {
        let mut entries = self.0.lock();
        let (address, _) = entries.by_hash.get(hash).copied()?;
        entries.forget(&address);
        Some(address)
    }

    /// The address holds something else from now on, or nothing.
    pub fn forget(&self, address: &A) {
        self.0.lock().forget(address);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.lock().by_hash.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of RAM, about.
    pub fn ram_bytes(&self) -> u64 {
        (self.0.lock().by_hash.capacity() * ENTRY_BYTES) as u64
    }
}

impl<A: Copy + Eq + Hash> PrefetchedEntries<A> {
    fn forget(&mut self, address: &A) {
        if let Some(hash) = self.by_address.remove(address) {
            self.by_hash.remove(&hash);
        }
        if self.by_hash.is_empty() {
            // A copy has ended: the next one may be long in coming.
            self.order = VecDeque::new();
            self.by_hash.shrink_to_fit();
            self.by_address.shrink_to_fit();
        }
    }

    /// Ends the entry of this number, if it is there yet.
    fn end(&mut self, hash: &ChunkHash, number: u64) {
        if let Some((address, found)) = self.by_hash.get(hash).copied()
            && found == number
        {
            self.forget(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> ChunkHash {
        let mut hash = [0; HASH_BYTES];
        hash[..8].copy_from_slice(&number.to_le_bytes());
        hash
    }

    #[test]
    fn each_is_taken_once_and_not_after_its_address_was_forgotten() {
        let prefetched = Prefetched::default();
        prefetched.insert(hash(1), 10u64);
        prefetched.insert(hash(2), 20);
        prefetched.insert(hash(3), 30);
        assert_eq!(prefetched.take(&hash(1)), Some(10));
        assert_eq!(prefetched.take(&hash(1)), None);
        prefetched.forget(&20);
        assert_eq!(prefetched.take(&hash(2)), None);
        // The address holds another chunk by now, and another address the same one.
        prefetched.insert(hash(4), 30);
        assert_eq!(prefetched.take(&hash(3)), None);
        prefetched.insert(hash(4), 40);
        prefetched.forget(&30);
        assert_eq!(prefetched.take(&hash(4)), Some(40));
        assert!(prefetched.is_empty());
    }

    #[test]
    fn the_oldest_makes_room() {
        let prefetched = Prefetched::default();
        let more = 100;
        for number in 0..PREFETCHED_MAX as u64 + more {
            prefetched.insert(hash(number), number);
        }
        assert_eq!(prefetched.len(), PREFETCHED_MAX);
        assert_eq!(prefetched.take(&hash(more - 1)), None);
        assert_eq!(prefetched.take(&hash(more)), Some(more));
        // One and the same chunk, again and again, pushes the others out and takes no room itself.
        for _ in 0..2 * PREFETCHED_MAX {
            prefetched.insert(hash(7), 7);
        }
        assert_eq!(prefetched.len(), 1);
        assert!(prefetched.0.lock().order.len() <= PREFETCHED_MAX);
    }
}
