//! The name of a chunk: 32 bytes of a collision-resistant hash of its content.

mod many;
mod ragged;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod transpose;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod wide;

use core::fmt;

pub use many::fingerprints;

/// A chunk's fingerprint: a value. Which hash made it, keyed or not, is the repository's choice.
///
/// Fingerprints are uniformly distributed, so any bytes of one serve as a hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// BLAKE3 of `data`.
    pub fn of(data: &[u8]) -> Self {
        Self(*blake3::hash(data).as_bytes())
    }

    /// BLAKE3 of `data` keyed with `key`: equal content has equal fingerprints only within one repository.
    pub fn keyed(key: &[u8; 32], data: &[u8]) -> Self {
        Self(*blake3::keyed_hash(key, data).as_bytes())
    }

    /// The first eight bytes, big-endian: ordered as the fingerprints themselves are.
    pub fn prefix(&self) -> u64 {
        u64::from_be_bytes(self.0[..8].try_into().expect("eight bytes"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}
