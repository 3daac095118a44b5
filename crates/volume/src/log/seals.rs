//! Keys of a depot's parts, where it is encrypted: one for each filling of a zone, each table, each run of the map and
//! each file, from a salt that is drawn for it alone.
//!
//! Invariant: nothing is sealed with a salt that was read back. That is why no nonce repeats, whatever is written
//! again after a crash (docs/decisions/volume-nonces-never-repeat.md).

use std::sync::Arc;

use onefold_io::frame::{FrameKind, decode_whole, encode_frame};
use onefold_keys::{Entropy, Fingerprinter, Keys, SALT_BYTES, TAG_BYTES};

use super::checks::CRC_BYTES;
use super::page_sealer::{PageSealer, SealingKey};
#[cfg(test)]
use super::used_nonces::{Used, UsedNonces};
use crate::Result;

/// The frame of a sealed file.
const SEALED: FrameKind = FrameKind {
    magic: *b"1FVSEALD",
    version: 1,
};

/// Random bytes that give a key of their own.
pub type Salt = [u8; SALT_BYTES];

/// The keys of a depot, or their absence in one that is not encrypted.
#[derive(Clone)]
pub struct Seals {
    keys: Keys,
    entropy: Entropy,
    #[cfg(test)]
    used: Used,
}

impl Seals {
    /// Nothing is sealed.
    pub fn none() -> Self {
        Self::new(Keys::none(), Entropy::system())
    }

    /// Seals with these keys, and salts from `entropy`.
    pub fn new(keys: Keys, entropy: Entropy) -> Self {
        Self {
            keys,
            entropy,
            #[cfg(test)]
            used: Used::default(),
        }
    }

    /// Whether anything is sealed.
    pub fn are_on(&self) -> bool {
        self.keys.seals()
    }

    /// Bytes of a page's check.
    pub fn check_bytes(&self) -> u32 {
        if self.are_on() {
            TAG_BYTES as u32
        } else {
            CRC_BYTES
        }
    }

    /// A salt for something that is begun; `None` where nothing is sealed.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn new_salt(&self) -> Result<Option<Salt>> {
        if self.are_on() {
            Ok(Some(self.entropy.try_bytes()?))
        } else {
            Ok(None)
        }
    }

    /// The sealer of the pages of the thing with this salt. There is a salt exactly where pages are sealed.
    pub fn pages(&self, salt: Option<Salt>) -> PageSealer {
        debug_assert_eq!(salt.is_some(), self.are_on());
        let Some(salt) = salt else {
            return PageSealer::Crc32c;
        };
        PageSealer::Aead(Arc::new(SealingKey {
            sealer: self.keys.container_sealer(&salt),
            #[cfg(test)]
            used: UsedNonces {
                salt,
                used: Arc::clone(&self.used),
            },
        }))
    }

    /// Names hashes for the hash index; `None` where it is told the hashes of rows.
    pub fn rehash(&self) -> Option<Fingerprinter> {
        self.are_on().then(|| self.keys.fingerprinter())
    }

    /// A file of the depot's folder as it is stored, of which `plain` are the bytes.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn seal_file(&self, name: &str, plain: Vec<u8>) -> Result<Vec<u8>> {
        if !self.are_on() {
            return Ok(plain);
        }
        let sealed = (self.keys).seal_object(name.as_bytes(), &plain, &self.entropy)?;
        Ok(encode_frame(SEALED, &sealed))
    }

    /// The bytes of the file `name` that is stored as `stored`.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged): it is not what was sealed under this name.
    pub fn open_file(&self, name: &str, stored: Vec<u8>) -> Result<Vec<u8>> {
        if !self.are_on() {
            return Ok(stored);
        }
        let sealed = decode_whole(SEALED, &stored, name, 0)?;
        Ok(self.keys.open_object(name.as_bytes(), sealed, name)?)
    }
}

#[cfg(test)]
impl Seals {
    /// Keys of tests, with salts that do not repeat among copies.
    pub fn of_tests() -> Self {
        let keys = Keys::from_master(&zeroize::Zeroizing::new([0x5E; 32]));
        Self::new(keys, Entropy::seeded(1))
    }

    /// How many messages were sealed.
    pub fn sealed(&self) -> usize {
        self.used.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_opens_under_its_own_name_alone() {
        let seals = Seals::of_tests();
        let stored = seals
            .seal_file("manifest", b"plain".to_vec())
            .expect("seeded");
        let again = seals
            .seal_file("manifest", b"plain".to_vec())
            .expect("seeded");
        assert!(stored != again && !stored.windows(5).any(|found| found == b"plain"));
        let opened = seals.open_file("manifest", stored.clone());
        assert_eq!(opened.expect("our own"), b"plain");
        assert!(seals.open_file("zones-1", stored.clone()).is_err());
        for at in 0..stored.len() {
            let mut stored = stored.clone();
            stored[at] ^= 1;
            assert!(seals.open_file("manifest", stored).is_err(), "byte {at}");
        }
        let none = Seals::none();
        let stored = none
            .seal_file("manifest", b"plain".to_vec())
            .expect("as it is");
        assert_eq!(stored, b"plain");
        assert!(
            seals.open_file("manifest", stored).is_err(),
            "it is not sealed"
        );
    }
}
