//! A key slot: the master key and some bytes of the slot's owner, wrapped under a password. Specified in FORMAT.md,
//! "Key slot".
//!
//! Any one slot opens the repository or volume. Besides the master key, a slot seals bytes of its owner: a repository
//! seals a copy of its configuration. The slot's other fields can be read without a password, and a code under the
//! master key proves them, so that nobody who lists keys can be misled into removing the wrong one.

use onefold_io::frame::{self, FrameKind, decode_twice, encode_twice};
use onefold_io::varint::{ByteReader, put_bytes};
use zeroize::Zeroizing;

use crate::kdf::stretch;
use crate::{Entropy, Error, KdfCost, Keys, Result, SALT_BYTES, Sealer, Secret};

/// The frame of a slot.
pub const SLOT: FrameKind = FrameKind {
    magic: *b"1FKEYSLT",
    version: 2,
};
/// Bytes of a master key.
pub const MASTER_BYTES: usize = 32;
/// Bytes of the code that proves a slot's fields.
const MAC_BYTES: usize = 32;

/// A key slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The cost of trying a password.
    pub cost: KdfCost,
    salt: [u8; SALT_BYTES],
    /// Time of creation, in seconds since 1970.
    pub created_unix_s: u64,
    /// Name of the slot's owner, as given at creation; may be empty.
    pub label: String,
    sealed: Vec<u8>,
    mac: [u8; MAC_BYTES],
}

/// A key slot as users see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyInfo {
    /// Its name: 16 hexadecimal digits.
    pub id: String,
    /// Whom it belongs to.
    pub label: String,
    /// When it was made, seconds since 1970.
    pub created_unix_s: u64,
    /// Whether somebody with the master key wrote all this. Whatever the rest says, the slot can open with its password
    /// all the same.
    pub is_proved: bool,
}

/// The readable fields of a new slot.
pub struct NewSlot<'a> {
    /// The cost of trying a password.
    pub cost: KdfCost,
    /// Name of the slot's owner; may be empty.
    pub label: &'a str,
    /// Present time, in seconds since 1970.
    pub created_unix_s: u64,
}

/// The content of a slot, opened by a password.
pub struct Unwrapped {
    /// The master key.
    pub master: Zeroizing<[u8; MASTER_BYTES]>,
    /// The owner's bytes, sealed beside the master key.
    pub payload: Vec<u8>,
}

impl Slot {
    /// Wraps `master` and `payload` under `password`.
    ///
    /// # Errors
    /// [`Error::Option`]: a cost with which no slot could be read again. [`Error::Machine`]: there is no memory for it,
    /// or no randomness.
    pub fn wrap(
        master: &Zeroizing<[u8; MASTER_BYTES]>,
        payload: &[u8],
        password: &Secret,
        new: &NewSlot<'_>,
        entropy: &Entropy,
    ) -> Result<Self> {
        new.cost.check(Error::Option)?;
        let salt = entropy.try_bytes()?;
        let mut sealed = master.to_vec();
        sealed.extend_from_slice(payload);
        let key = stretch(password, &salt, new.cost)?;
        Sealer::of_slot(&key).seal(0, &SLOT.magic, &mut sealed);
        let mut slot = Self {
            cost: new.cost,
            salt,
            created_unix_s: new.created_unix_s,
            label: new.label.into(),
            sealed,
            mac: [0; MAC_BYTES],
        };
        if let Some(mac) = Keys::from_master(master).slot_mac(&slot.fields()) {
            slot.mac = *mac.as_bytes();
        }
        Ok(slot)
    }

    /// Whether the slot was made by someone with the master key. If not, anyone may have set its label, date and cost.
    /// Without encryption nothing can be proved, and nothing is doubted.
    pub fn is_proved_by(&self, keys: &Keys) -> bool {
        let mac = keys.slot_mac(&self.fields());
        mac.is_none_or(|mac| mac == blake3::Hash::from_bytes(self.mac))
    }

    /// Opens the slot that is stored as `object`; `None` with the wrong password.
    ///
    /// # Errors
    /// [`Error::Machine`]: there is no memory for its key derivation. [`Error::Io`], damage of `object`: the sealed
    /// bytes are shorter than a master key.
    pub fn unwrap(&self, password: &Secret, object: &str) -> Result<Option<Unwrapped>> {
        let mut plain = Zeroizing::new(self.sealed.clone());
        let key = stretch(password, &self.salt, self.cost)?;
        if Sealer::of_slot(&key)
            .open(0, &SLOT.magic, &mut plain)
            .is_none()
        {
            return Ok(None);
        }
        let object = Self::sealed_object(object);
        let mut reader = ByteReader::new(&plain, &object, 0);
        let master = Zeroizing::new(reader.array()?);
        let payload = reader.rest().to_vec();
        Ok(Some(Unwrapped { master, payload }))
    }

    /// The name that errors use for the sealed bytes of the slot stored as `object`. The owner's bytes begin there at
    /// [`MASTER_BYTES`].
    pub fn sealed_object(object: &str) -> String {
        format!("{object}, its sealed content")
    }

    /// The slot as users see it under the name `id`, proved by `keys`.
    pub fn info(&self, id: String, keys: &Keys) -> KeyInfo {
        KeyInfo {
            id,
            label: self.label.clone(),
            created_unix_s: self.created_unix_s,
            is_proved: self.is_proved_by(keys),
        }
    }

    /// A name for the slot among those of its owner: 16 hexadecimal digits of its salt.
    pub fn id(&self) -> String {
        let digits = self.salt.iter().take(8).map(|byte| format!("{byte:02x}"));
        digits.collect()
    }

    /// Encodes the slot in its stored form: framed, twice.
    pub fn encode(&self) -> Vec<u8> {
        encode_twice(SLOT, &[&self.fields()[..], &self.mac].concat())
    }

    /// The stored fields, without the code that proves them.
    fn fields(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.cost.memory_kib, self.cost.passes, self.cost.lanes] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.created_unix_s.to_le_bytes());
        put_bytes(&mut out, self.label.as_bytes());
        put_bytes(&mut out, &self.sealed);
        out
    }

    /// Decodes the slot that is stored as `object`; also returns the error of a damaged second copy.
    ///
    /// # Errors
    /// Damage of `object`: both copies are damaged, or have impossible values, such as a key derivation out of bounds.
    /// Another version's slot.
    pub fn decode(bytes: &[u8], object: &str) -> Result<(Self, Option<onefold_io::Error>)> {
        let twice = decode_twice(SLOT, bytes, object)?;
        let mut reader = ByteReader::new(twice.payload, object, frame::HEADER_BYTES as u64);
        let cost = KdfCost {
            memory_kib: reader.u32()?,
            passes: reader.u32()?,
            lanes: reader.u32()?,
        };
        cost.check(|what| Error::damaged(object, what))?;
        let (salt, created_unix_s) = (reader.array()?, reader.u64()?);
        let at = reader.offset();
        let label = String::from_utf8(reader.bytes()?.to_vec())
            .map_err(|_| reader.damaged("a label that is not UTF-8".into()).at(at))?;
        let sealed = reader.bytes()?.to_vec();
        let mac = reader.array()?;
        reader.end()?;
        Ok((
            Self {
                cost,
                salt,
                created_unix_s,
                label,
                sealed,
                mac,
            },
            twice.damage,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &str = "keys/0000000000000007";

    fn wrapped(payload: &[u8], password: &Secret, passes: u32) -> Result<Slot> {
        let cost = KdfCost {
            passes,
            ..KdfCost::LEAST
        };
        let new = NewSlot {
            cost,
            label: "",
            created_unix_s: 0,
        };
        let master = Zeroizing::new([1; MASTER_BYTES]);
        Slot::wrap(&master, payload, password, &new, &Entropy::seeded(1))
    }

    #[test]
    fn what_is_sealed_and_is_no_master_key_is_told_of_its_slot() {
        let password = Secret::new("open sesame");
        let mut slot = wrapped(b"", &password, 1).unwrap();
        slot.sealed = vec![0; 20];
        let key = stretch(&password, &slot.salt, slot.cost).unwrap();
        Sealer::of_slot(&key).seal(0, &SLOT.magic, &mut slot.sealed);
        let error = slot.unwrap(&password, OBJECT).err().unwrap();
        let told = error.to_string();
        assert!(
            matches!(error, Error::Io(_)) && told.contains(OBJECT),
            "{told}"
        );
    }

    #[test]
    fn a_password_opens_what_was_sealed_and_another_does_not() {
        let (right, wrong) = (Secret::new("open sesame"), Secret::new("open barley"));
        let slot = wrapped(b"whatever its owner wants", &right, 1).unwrap();
        let opened = slot.unwrap(&right, OBJECT).unwrap().unwrap();
        assert_eq!(opened.payload, b"whatever its owner wants");
        assert_eq!(*opened.master, [1; MASTER_BYTES]);
        assert!(slot.unwrap(&wrong, OBJECT).unwrap().is_none());
    }

    #[test]
    fn only_who_has_the_master_key_proves_a_label() {
        let password = Secret::new("open sesame");
        let mut slot = wrapped(b"", &password, 1).unwrap();
        let keys = Keys::from_master(&Zeroizing::new([1; MASTER_BYTES]));
        assert!(slot.is_proved_by(&keys));
        assert!(!slot.is_proved_by(&Keys::from_master(&Zeroizing::new([2; MASTER_BYTES]))));
        slot.label = "somebody else".into();
        assert!(!slot.is_proved_by(&keys));
    }

    /// The sealed bytes of such a slot could never be opened.
    #[test]
    fn no_slot_is_made_that_could_not_be_read_again() {
        let password = Secret::new("open sesame");
        let most = wrapped(b"", &password, 64).unwrap();
        assert_eq!(Slot::decode(&most.encode(), OBJECT).unwrap().0, most);
        assert!(matches!(wrapped(b"", &password, 65), Err(Error::Option(_))));
    }
}
