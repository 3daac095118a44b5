//! The name of a chunk: 32 bytes of a collision-resistant hash of its content.

mod leaf;
mod many;
mod order;
mod ragged;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod transpose;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod wide;

use core::fmt;

pub use many::fingerprints;

/// The fingerprint of a chunk. The repository chooses the hash, keyed or not.
///
/// Fingerprints are uniformly distributed, so any bytes of one serve as a hash.
///
/// ```
/// use onefold_chunk::Fingerprint;
///
/// let name = Fingerprint::of(b"abc");
/// assert!(name.to_string().starts_with("6437b3ac38465133"));
/// assert_eq!(name.prefix(), 0x6437_b3ac_3846_5133);
/// // Another repository, another name.
/// assert_ne!(Fingerprint::keyed(&[1; 32], b"abc"), Fingerprint::keyed(&[2; 32], b"abc"));
/// ```
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
