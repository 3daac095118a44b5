//! Sealing: AES-256-GCM under a key that seals nothing else.
//!
//! No key seals two messages under one nonce: each key is derived from a random salt that is stored beside its
//! messages, and the nonce is the message's number under that key.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use zeroize::Zeroizing;

/// Bytes that sealing adds to what it seals.
pub const TAG_BYTES: usize = 16;
/// Bytes of the random salt that makes a sealing key unique.
pub const SALT_BYTES: usize = 16;

/// Seals numbered messages under one key that belongs to them alone.
pub struct Sealer(Option<LessSafeKey>);

impl Sealer {
    /// The sealer whose key `key` and `salt` give; without a key it leaves messages as they are.
    pub(crate) fn new(key: Option<&[u8; 32]>, salt: &[u8; SALT_BYTES]) -> Self {
        Self(key.map(|key| {
            let own = Zeroizing::new(*blake3::keyed_hash(key, salt).as_bytes());
            aes(&own)
        }))
    }

    /// The sealer of a key slot. Its key comes from a salted password and seals one message only.
    pub(crate) fn of_slot(key: &Zeroizing<[u8; 32]>) -> Self {
        Self(Some(aes(key)))
    }

    /// Seals `message` in place as number `number`, bound to `identity`. Each number may be used once.
    pub fn seal(&self, number: u32, identity: &[u8], message: &mut Vec<u8>) {
        if let Some(key) = &self.0 {
            key.seal_in_place_append_tag(nonce(number), Aad::from(identity), message)
                .expect("messages stay far below 64 GiB");
        }
    }

    /// Opens a message that `seal` made, in place; `None` where the seal does not hold.
    pub fn open(&self, number: u32, identity: &[u8], message: &mut Vec<u8>) -> Option<()> {
        let plain_bytes = self.open_in(number, identity, message)?.len();
        message.truncate(plain_bytes);
        Some(())
    }

    /// Seals `message` where it lies, as [`seal`](Self::seal) does, and returns the tag, which is stored elsewhere.
    /// Without a key the tag is zeros.
    pub fn seal_in(&self, number: u32, identity: &[u8], message: &mut [u8]) -> [u8; TAG_BYTES] {
        let Some(key) = &self.0 else {
            return [0; TAG_BYTES];
        };
        let tag = key
            .seal_in_place_separate_tag(nonce(number), Aad::from(identity), message)
            .expect("messages stay far below 64 GiB");
        *tag.as_ref().first_chunk().expect("a tag has 16 bytes")
    }

    /// Opens a message that [`seal_in`](Self::seal_in) sealed, where it lies; `None` where the seal does not hold: then
    /// the bytes are anything.
    pub fn open_with(
        &self,
        number: u32,
        identity: &[u8],
        message: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> Option<()> {
        let Some(key) = &self.0 else {
            return Some(());
        };
        let (nonce, tag) = (nonce(number), Tag::from(*tag));
        key.open_in_place_separate_tag(nonce, Aad::from(identity), tag, message, 0..)
            .ok()
            .map(drop)
    }

    /// Opens a message where it lies; returns the plain bytes, at its beginning.
    pub fn open_in<'m>(
        &self,
        number: u32,
        identity: &[u8],
        message: &'m mut [u8],
    ) -> Option<&'m [u8]> {
        let Some(key) = &self.0 else {
            return Some(message);
        };
        let plain = key.open_in_place(nonce(number), Aad::from(identity), message);
        plain.ok().map(|plain| &*plain)
    }
}

fn aes(key: &Zeroizing<[u8; 32]>) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key[..]).expect("32 bytes are a key"))
}

fn nonce(number: u32) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_lies_elsewhere_proves_place_and_bytes() {
        let sealer = Sealer::new(Some(&[7; 32]), &[1; SALT_BYTES]);
        let plain = [5; 100];
        let mut sealed = plain;
        let tag = sealer.seal_in(3, b"page", &mut sealed);
        assert_ne!(sealed, plain);
        // The tag behind the message is the same.
        let mut joined = plain.to_vec();
        sealer.seal(3, b"page", &mut joined);
        assert_eq!(joined, [&sealed[..], &tag].concat());
        let opens = |number, identity: &[u8], bytes: [u8; 100], tag| {
            let mut bytes = bytes;
            let opened = sealer.open_with(number, identity, &mut bytes, &tag);
            opened.map(|()| bytes)
        };
        assert_eq!(opens(3, b"page", sealed, tag), Some(plain));
        assert_eq!(opens(4, b"page", sealed, tag), None);
        assert_eq!(opens(3, b"hole", sealed, tag), None);
        assert_eq!(opens(3, b"page", plain, tag), None);
        assert_eq!(opens(3, b"page", sealed, [0; TAG_BYTES]), None);
    }
}
