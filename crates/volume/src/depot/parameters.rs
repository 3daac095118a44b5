//! Parameters of metadata backends, and the limits that they must keep.

/// Default size of a cache, in bytes.
const CACHE_BYTES: u64 = 64 << 20;
/// Default writes of a transaction: one of the sizes that the report measures (§4.2).
const TRANSACTION_WRITES: u64 = 1000;
pub(super) const CACHE_BYTES_MIN: u64 = 64 << 10;
pub(super) const CACHE_BYTES_MAX: u64 = 1 << 40;
pub(super) const TRANSACTION_WRITES_MAX: u64 = 1 << 40;

/// Parameters of a backend. They are a depot's for ever, but for the cache, which may be another at each opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Bytes of metadata pages in RAM, of `dtb` and `cbt`.
    pub cache_bytes: u64,
    /// Writes of a transaction of `cbt`; 0: it ends at a flush alone.
    pub transaction_writes: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            cache_bytes: CACHE_BYTES,
            transaction_writes: TRANSACTION_WRITES,
        }
    }
}

impl Parameters {
    /// The limit that is broken, in words.
    pub(super) fn amiss(&self) -> Option<String> {
        let is_possible = (CACHE_BYTES_MIN..=CACHE_BYTES_MAX).contains(&self.cache_bytes)
            && self.transaction_writes <= TRANSACTION_WRITES_MAX;
        (!is_possible).then(|| {
            format!(
                "a cache of {} bytes and transactions of {} writes, where {CACHE_BYTES_MIN} to {CACHE_BYTES_MAX} and up to {TRANSACTION_WRITES_MAX} are expected",
                self.cache_bytes, self.transaction_writes
            )
        })
    }
}
