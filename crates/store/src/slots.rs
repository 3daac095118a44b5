//! Key slots: the master key, wrapped under a password. Specified in FORMAT.md, "Key slot".
//!
//! Each slot is an object of its own; any one of them opens the repository. A slot also seals a copy of the
//! configuration. Its other fields can be read without a password, and a code under the master key proves them: who
//! lists keys must not be made to remove the wrong one.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use onefold_io::frame::{self, FrameKind};
use onefold_io::varint::{ByteReader, put_bytes};
use onefold_io::{hex_number, prefer_huge_pages};
use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
use zeroize::Zeroizing;

use crate::config::{Config, decode_twice, encode_twice};
use crate::entropy::Entropy;
use crate::keys::{Keys, SALT_BYTES, Secret, slot_sealer};
use crate::objects::ObjectStore;
use crate::{Error, Result};

/// The frame of a slot.
pub const SLOT: FrameKind = FrameKind {
    magic: *b"1FKEYSLT",
    version: 2,
};
/// The folder of all slots.
pub const SLOT_FOLDER: &str = "keys";

/// The objects of all slots. What else lies in their folder is somebody else's.
pub(crate) fn listed(objects: &dyn ObjectStore) -> Result<Vec<String>> {
    let listed = match objects.list(SLOT_FOLDER) {
        // Without encryption it is not made.
        Err(error) if error.is_not_found() => Vec::new(),
        other => other?,
    };
    let names = listed.into_iter();
    Ok(names.filter(|name| id_of(name).is_some()).collect())
}

/// The 16 hexadecimal digits in a slot's object name.
pub(crate) fn id_of(object: &str) -> Option<&str> {
    let id = object.strip_prefix(SLOT_FOLDER)?.strip_prefix('/')?;
    hex_number(id, 16).map(|_| id)
}

/// What deriving a key from a password costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KdfCost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
}

impl Default for KdfCost {
    /// RFC 9106 §4, second recommended option: 64 MiB, three passes, four lanes.
    fn default() -> Self {
        Self {
            memory_kib: 64 * 1024,
            passes: 3,
            lanes: 4,
        }
    }
}

impl KdfCost {
    /// Memory that is written, in KiB, all passes together: about what trying a password takes in time.
    pub(crate) fn work_kib(self) -> u64 {
        u64::from(self.memory_kib) * u64::from(self.passes)
    }

    /// Whether it takes much more than what is made here.
    pub(crate) fn is_high(self) -> bool {
        self.work_kib() > 4 * Self::default().work_kib()
    }

    /// The least that the algorithm takes. For tests.
    pub const LEAST: Self = Self {
        memory_kib: 8,
        passes: 1,
        lanes: 1,
    };
    /// No slot may ask for more memory than this: a damaged or hostile one must not exhaust the machine.
    const MEMORY_KIB_MAX: u32 = 1 << 20;

    /// What is wrong with it is told by `error`.
    fn check(self, error: impl FnOnce(String) -> Error) -> Result<()> {
        // Eight blocks of 1 KiB a lane are the least that Argon2 takes.
        let sane = (1..=64).contains(&self.lanes)
            && (1..=64).contains(&self.passes)
            && (8 * self.lanes..=Self::MEMORY_KIB_MAX).contains(&self.memory_kib);
        if sane {
            Ok(())
        } else {
            Err(error(format!(
                "a key derivation of {self:?} is out of bounds"
            )))
        }
    }
}

/// A key slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    pub(crate) cost: KdfCost,
    salt: [u8; SALT_BYTES],
    /// When it was made, seconds since 1970.
    pub created_unix_s: u64,
    /// Whom it belongs to, as told when it was made.
    pub label: String,
    sealed: Vec<u8>,
    mac: [u8; MAC_BYTES],
}

/// Bytes of the code that proves a slot's fields.
const MAC_BYTES: usize = 32;

impl Slot {
    /// Wraps `master` and a copy of `config` under `password`.
    ///
    /// # Errors
    /// [`Error::Option`]: a `cost` with which no slot could be read again. [`Error::Machine`]: no memory for it.
    pub fn wrap(
        master: &Zeroizing<[u8; 32]>,
        config: &Config,
        password: &Secret,
        cost: KdfCost,
        label: &str,
        created_unix_s: u64,
        entropy: &Entropy,
    ) -> Result<Self> {
        cost.check(Error::Option)?;
        let salt = entropy.bytes();
        let mut sealed = master.to_vec();
        sealed.extend_from_slice(&config.encode());
        slot_sealer(&stretch(password, &salt, cost)?).seal(0, &SLOT.magic, &mut sealed);
        let mut slot = Self {
            cost,
            salt,
            created_unix_s,
            label: label.into(),
            sealed,
            mac: [0; MAC_BYTES],
        };
        if let Some(mac) = Keys::from_master(master).slot_mac(&slot.fields()) {
            slot.mac = *mac.as_bytes();
        }
        Ok(slot)
    }

    /// That it was made so by somebody who had the master key.
    ///
    /// # Errors
    /// [`Error::Damaged`] of `object`: its label, date and cost are anybody's.
    pub(crate) fn confirm(&self, keys: &Keys, object: &str) -> Result<()> {
        match keys.slot_mac(&self.fields()) {
            Some(mac) if mac != blake3::Hash::from_bytes(self.mac) => Err(Error::damaged(
                object,
                None,
                "its label, date and cost were not written with this repository's key: do not go by them; `onefold key passwd` makes the key in use anew, \
                 `onefold key remove` removes one that nobody misses",
            )),
            _ => Ok(()),
        }
    }

    /// The master key and the sealed configuration of the slot that is stored as `object`; `None` with the wrong
    /// password.
    ///
    /// # Errors
    /// [`Error::Machine`]: no memory for its key derivation. Damage of `object` ([`Error::is_damage`]), or another
    /// version's configuration ([`Error::is_other_version`]), of what was sealed so.
    pub fn unwrap(
        &self,
        password: &Secret,
        object: &str,
    ) -> Result<Option<(Zeroizing<[u8; 32]>, Config)>> {
        let mut plain = Zeroizing::new(self.sealed.clone());
        if slot_sealer(&stretch(password, &self.salt, self.cost)?)
            .open(0, &SLOT.magic, &mut plain)
            .is_none()
        {
            return Ok(None);
        }
        let object = format!("{object}, what is sealed in it");
        let mut reader = ByteReader::new(&plain, &object, 0);
        let master = Zeroizing::new(reader.array()?);
        let config = Config::decode(reader.rest(), &object, reader.offset())?;
        Ok(Some((master, config)))
    }

    /// As stored: framed, twice.
    pub fn encode(&self) -> Vec<u8> {
        encode_twice(SLOT, &[&self.fields()[..], &self.mac].concat())
    }

    /// As stored, without what proves them.
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

    /// From the stored bytes of the object `object`, and what is wrong with its second copy, if anything.
    ///
    /// # Errors
    /// Damage of `object` ([`Error::is_damage`]): both copies are, or what they say cannot be, as a key derivation out
    /// of bounds. Another version's slot ([`Error::is_other_version`]).
    pub fn decode(bytes: &[u8], object: &str) -> Result<(Self, Option<Error>)> {
        let twice = decode_twice(SLOT, bytes, object)?;
        let mut reader = ByteReader::new(twice.payload, object, frame::HEADER_BYTES as u64);
        let cost = KdfCost {
            memory_kib: reader.u32()?,
            passes: reader.u32()?,
            lanes: reader.u32()?,
        };
        cost.check(|what| Error::damaged(object, None, what))?;
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

fn stretch(password: &Secret, salt: &[u8], cost: KdfCost) -> Result<Zeroizing<[u8; 32]>> {
    let bad = |error: argon2::Error| Error::Machine(format!("key derivation: {error}"));
    let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(32)).map_err(bad)?;
    let mut memory = Vec::new();
    memory
        .try_reserve_exact(params.block_count())
        .map_err(|_| bad(argon2::Error::OutOfMemory))?;
    prefer_huge_pages(memory.spare_capacity_mut());
    // The system hands pages out slowly: all cores ask for them, as they do for the lanes.
    let blocks = (0..params.block_count()).into_par_iter();
    blocks.map(|_| Block::new()).collect_into_vec(&mut memory);
    let mut key = Zeroizing::new([0; 32]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into_with_memory(password.bytes(), salt, &mut key[..], &mut memory[..])
        .map_err(bad)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Encryption;

    const OBJECT: &str = "keys/0000000000000007";

    /// A slot in which `plain` is sealed.
    fn sealing(plain: &[u8], password: &Secret) -> Slot {
        let (cost, salt, mut sealed) = (KdfCost::LEAST, [3; SALT_BYTES], plain.to_vec());
        slot_sealer(&stretch(password, &salt, cost).unwrap()).seal(0, &SLOT.magic, &mut sealed);
        Slot {
            cost,
            salt,
            created_unix_s: 0,
            label: String::new(),
            sealed,
            mac: [0; MAC_BYTES],
        }
    }

    #[test]
    fn what_is_sealed_and_means_nothing_is_told_of_its_slot() {
        let password = Secret::new("open sesame");
        for bytes in [20, 40] {
            let slot = sealing(&vec![0; bytes], &password);
            let error = slot.unwrap(&password, OBJECT).unwrap_err();
            let told = error.to_string();
            assert!(error.is_damage() && told.contains(OBJECT), "{told}");
        }
    }

    /// Nobody could open what is sealed in it.
    #[test]
    fn no_slot_is_made_that_could_not_be_read_again() {
        let config = Config {
            repository: [7; 16],
            encryption: Encryption::Aes256Gcm,
            chunker: "sieve".into(),
            chunk_bytes_mean: 8192,
            index: "strata".into(),
        };
        let (master, password) = (Zeroizing::new([1; 32]), Secret::new("open sesame"));
        let made = |passes| {
            let cost = KdfCost {
                passes,
                ..KdfCost::LEAST
            };
            let entropy = Entropy::seeded(1);
            Slot::wrap(&master, &config, &password, cost, "", 0, &entropy)
        };
        let most = made(64).unwrap();
        assert_eq!(Slot::decode(&most.encode(), OBJECT).unwrap().0, most);
        assert!(matches!(made(65), Err(Error::Option(_))));
    }
}
