//! The keys derived from the master key: one for each purpose. Specified in FORMAT.md, "Sealing".

use onefold_chunk::Fingerprint;
use onefold_chunk::digest::Digester;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::{Entropy, Error, Result, SALT_BYTES, Sealer};

/// All keys of a repository or a volume, or their absence in one without encryption.
#[derive(Clone)]
pub struct Keys(Option<Box<Derived>>);

#[derive(Clone, Zeroize, ZeroizeOnDrop)]
struct Derived {
    fingerprint: [u8; 32],
    chunker: [u8; 32],
    digest: [u8; 32],
    object: [u8; 32],
    container: [u8; 32],
    slot: [u8; 32],
}

impl Keys {
    /// The absence of keys, without encryption: fingerprints are unkeyed, nothing is sealed.
    pub fn none() -> Self {
        Self(None)
    }

    /// Derives all keys from the master key.
    pub fn from_master(master: &Zeroizing<[u8; 32]>) -> Self {
        let derive = |context: &str| blake3::derive_key(context, &master[..]);
        Self(Some(Box::new(Derived {
            fingerprint: derive("onefold v1 fingerprint key"),
            chunker: derive("onefold v1 chunker key"),
            digest: derive("onefold v1 digest key"),
            object: derive("onefold v1 object sealing key"),
            container: derive("onefold v1 container sealing key"),
            slot: derive("onefold v2 key slot key"),
        })))
    }

    /// The key for cut points, where there is one.
    pub fn chunker_key(&self) -> Option<&[u8; 32]> {
        self.0.as_ref().map(|keys| &keys.chunker)
    }

    /// The fingerprinter for chunks.
    pub fn fingerprinter(&self) -> Fingerprinter {
        Fingerprinter(self.0.as_ref().map(|keys| keys.fingerprint))
    }

    /// The digester for whole files; `None` without encryption, where everybody who reads the repository could make two
    /// files with one digest.
    pub fn digester(&self) -> Option<Digester> {
        self.0.as_ref().map(|keys| Digester::new(&keys.digest))
    }

    /// Whether anything is sealed: the repository is encrypted.
    pub fn seals(&self) -> bool {
        self.0.is_some()
    }

    /// A code over the fields of a key slot, made with the master key, which proves that they are unchanged; `None`
    /// without encryption.
    pub(crate) fn slot_mac(&self, fields: &[u8]) -> Option<blake3::Hash> {
        let keys = self.0.as_ref()?;
        Some(blake3::keyed_hash(&keys.slot, fields))
    }

    /// The sealer of the container with this salt.
    pub fn container_sealer(&self, salt: &[u8; SALT_BYTES]) -> Sealer {
        Sealer::new(self.0.as_ref().map(|keys| &keys.container), salt)
    }

    /// `plain` sealed as an object of the kind and name `identity`: salt, ciphertext, tag; or `plain` itself without
    /// encryption.
    ///
    /// # Errors
    /// [`Error::Machine`]: the system has no randomness for the salt.
    pub fn seal_object(&self, identity: &[u8], plain: &[u8], entropy: &Entropy) -> Result<Vec<u8>> {
        let Some(keys) = &self.0 else {
            return Ok(plain.to_vec());
        };
        let salt: [u8; SALT_BYTES] = entropy.try_bytes()?;
        let mut body = plain.to_vec();
        Sealer::new(Some(&keys.object), &salt).seal(0, identity, &mut body);
        Ok([&salt[..], &body].concat())
    }

    /// Opens an object that [`seal_object`](Self::seal_object) made; errors name it `object`.
    ///
    /// # Errors
    /// [`Error::Damaged`] of `object`: its seal does not hold, or it is shorter than its salt.
    pub fn open_object(&self, identity: &[u8], stored: &[u8], object: &str) -> Result<Vec<u8>> {
        let Some(keys) = &self.0 else {
            return Ok(stored.to_vec());
        };
        let Some((salt, body)) = stored.split_first_chunk::<SALT_BYTES>() else {
            return Err(Error::damaged(object, "shorter than its salt"));
        };
        let mut body = body.to_vec();
        match Sealer::new(Some(&keys.object), salt).open(0, identity, &mut body) {
            Some(()) => Ok(body),
            None => Err(Error::damaged(
                object,
                "its seal does not hold: it was changed, or is not what it is named",
            )),
        }
    }
}

/// Fingerprints chunks with the repository's key, by default with none; cheap to copy into threads.
#[derive(Clone, Default)]
pub struct Fingerprinter(Option<[u8; 32]>);

impl Fingerprinter {
    /// The fingerprint of a chunk's bytes.
    pub fn fingerprint(&self, data: &[u8]) -> Fingerprint {
        match &self.0 {
            Some(key) => Fingerprint::keyed(key, data),
            None => Fingerprint::of(data),
        }
    }

    /// The fingerprints of chunks, in order: much faster than one after the other.
    pub fn fingerprints<'a>(&self, chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Fingerprint> {
        onefold_chunk::fingerprints(self.0.as_ref(), chunks)
    }
}
