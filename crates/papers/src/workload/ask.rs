//! The keys that `bench index` inserts, and the orders in which it then looks them up: the same for every index and
//! every other store.

use onefold_chunk::Fingerprint;
use onefold_io::Random;

use super::generate::key_of;
use onefold_index::ContainerId;

/// Chunks of a container: 16 MiB of 12 KiB chunks.
const CHUNKS_A_CONTAINER: u64 = 1400;
/// Bits of a key number under one seed.
const NUMBER_BITS: u32 = 44;

/// The order in which a filled index is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Keys that the index does not have.
    Absent,
    /// Keys that the index has, in the order of insertion.
    Stream,
    /// Keys that the index has, at random.
    Random,
}

/// Endless numbers of keys for asking an index of `keys` keys; numbers below `keys` are present.
#[derive(Clone, Debug)]
pub struct Asked {
    order: Order,
    keys: u64,
    random: Random,
    next: u64,
}

impl Asked {
    /// `start` is the number where a stream begins, and the seed of random numbers.
    pub fn new(order: Order, keys: u64, start: u64) -> Asked {
        Asked {
            order,
            keys,
            random: Random(start),
            next: start,
        }
    }
}

impl Iterator for Asked {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.next += 1;
        let random = self.random.next();
        Some(match self.order {
            Order::Absent => self.keys + random % (1 << (NUMBER_BITS - 4)),
            Order::Stream => (self.next - 1) % self.keys,
            Order::Random => random % self.keys,
        })
    }
}

/// Key `number` of a seed; numbers below 2^44 give different keys.
pub fn seeded_key(seed: u64, number: u64) -> Fingerprint {
    key_of(number | seed << NUMBER_BITS)
}

/// The container of chunk `number`: containers fill up in the order of the stream, and have random names.
pub fn container_of(number: u64) -> ContainerId {
    ContainerId(Random(number / CHUNKS_A_CONTAINER).next())
}
