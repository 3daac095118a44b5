//! Key slots as objects: each opens the repository, and seals a copy of its configuration beside the master key.

use onefold_io::hex_number;
use onefold_keys::{Entropy, Keys, MASTER_BYTES, NewSlot, Secret};
use zeroize::Zeroizing;

use crate::objects::ObjectStore;
use crate::repository::config::RepositoryConfig;
use crate::{Error, Result};

pub use crate::folders::SLOT_FOLDER;
pub use onefold_keys::{SLOT, Slot};

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

/// A new object name for a slot.
pub(crate) fn new_object(entropy: &Entropy) -> Result<String> {
    Ok(format!("{SLOT_FOLDER}/{:016x}", entropy.try_u64()?))
}

/// Wraps `master` and a copy of `config` under `password`.
pub(crate) fn wrap(
    master: &Zeroizing<[u8; MASTER_BYTES]>,
    config: &RepositoryConfig,
    password: &Secret,
    new: &NewSlot<'_>,
    entropy: &Entropy,
) -> Result<Slot> {
    let slot = Slot::wrap(master, &config.encode(), password, new, entropy);
    Ok(slot?)
}

/// The master key and the sealed configuration of the slot that is stored as `object`; `None` with the wrong password.
///
/// # Errors
/// [`Error::Machine`]: no memory for its key derivation. Damage of `object` ([`Error::is_damage`]), or another
/// version's configuration ([`Error::is_other_version`]), of what was sealed so.
pub(crate) fn unwrap(
    slot: &Slot,
    password: &Secret,
    object: &str,
) -> Result<Option<(Zeroizing<[u8; MASTER_BYTES]>, RepositoryConfig)>> {
    let Some(opened) = slot.unwrap(password, object)? else {
        return Ok(None);
    };
    let sealed = Slot::sealed_object(object);
    let config = RepositoryConfig::decode(&opened.payload, &sealed, MASTER_BYTES as u64)?;
    Ok(Some((opened.master, config)))
}

/// Checks that the slot was made so by somebody who had the master key.
///
/// # Errors
/// [`Error::Damaged`] of `object`: its label, date and cost are anybody's.
pub(crate) fn confirm(slot: &Slot, keys: &Keys, object: &str) -> Result<()> {
    if slot.is_proved_by(keys) {
        Ok(())
    } else {
        Err(Error::damaged(
            object,
            None,
            "its label, date and cost were not written with this repository's key: do not go by them; `onefold key passwd` makes the key in use anew, \
         `onefold key remove` removes one that nobody misses",
        ))
    }
}

#[cfg(test)]
mod tests {
    use onefold_keys::KdfCost;

    use super::*;

    const OBJECT: &str = "keys/0000000000000007";

    #[test]
    fn what_is_sealed_and_is_no_configuration_is_told_of_its_slot() {
        let password = Secret::new("open sesame");
        let new = NewSlot {
            cost: KdfCost::LEAST,
            label: "",
            created_unix_s: 0,
        };
        let master = Zeroizing::new([1; MASTER_BYTES]);
        let slot = Slot::wrap(&master, &[0; 8], &password, &new, &Entropy::seeded(1)).unwrap();
        let error = unwrap(&slot, &password, OBJECT).err().unwrap();
        let told = error.to_string();
        assert!(error.is_damage() && told.contains(OBJECT), "{told}");
    }
}
