//! Operations that a store must have to take part.

use std::time::Instant;

use onefold_chunk::Fingerprint;

use crate::{Kind, What};

/// Any store's error.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A store of 32-byte keys and 8-byte values. Many threads may ask at once.
pub trait Store: Send + Sync {
    /// Fills `found[i]` with the value of `keys[i]`.
    fn get(&self, keys: &[Fingerprint], found: &mut [Option<u64>]) -> Result<(), Error>;

    /// Adds new keys; durable after `flush`.
    fn insert(&self, entries: &[(Fingerprint, u64)]) -> Result<(), Error>;

    /// Makes all durable.
    fn flush(&self) -> Result<(), Error>;

    /// Lets merges come to an end, if they do before `until`.
    fn settle(&self, until: Instant) -> Result<(), Error>;
}

/// Opens or creates it.
pub fn open(what: &What) -> Result<Box<dyn Store>, Error> {
    std::fs::create_dir_all(&what.dir)?;
    Ok(match what.store {
        Kind::Rocksdb => Box::new(crate::lsm::Rocks::open(what, false)?),
        Kind::RocksdbUniversal => Box::new(crate::lsm::Rocks::open(what, true)?),
        Kind::Fjall => Box::new(crate::lsm::Fjall::open(what)?),
        Kind::Redb => Box::new(crate::btrees::Redb::open(what)?),
        Kind::Lmdb => Box::new(crate::btrees::Lmdb::open(what)?),
    })
}

/// Divides a budget: a fifth for write buffers, and the rest for filters and caches.
pub fn divide(budget_mib: usize) -> (usize, usize) {
    let budget = budget_mib << 20;
    (budget / 5, budget - budget / 5)
}

/// Bits of filter a key that take two thirds of `cache` bytes, 10 at most, which all these stores take by themselves.
pub fn filter_bits(cache: usize, keys: u64) -> f64 {
    (cache as f64 * 8.0 * 2.0 / 3.0 / keys as f64).min(10.0)
}

/// A value from its bytes.
pub fn value(bytes: &[u8]) -> Result<u64, Error> {
    Ok(u64::from_le_bytes(bytes.try_into()?))
}
