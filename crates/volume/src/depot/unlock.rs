//! From a password to the keys of an encrypted depot (FORMAT.md, "Key slot"). The slots stand in the configuration.
//! Each seals the master key and the configuration itself, with the key of the fingerprints, which is nowhere else.

use onefold_io::Dir;
use onefold_keys::{Entropy, KdfCost, Keys, MASTER_BYTES, NewSlot, Secret, Slot};
use zeroize::Zeroizing;

use super::config::Config;
use super::{CONFIG, Depot, read_config};
use crate::log::Seals;
use crate::{Error, Result};

/// The password of a depot that is to be encrypted.
#[derive(Clone, Debug)]
pub struct NewPassword {
    /// The password.
    pub password: Secret,
    /// The cost of trying one.
    pub cost: KdfCost,
    /// Whom it belongs to; may be empty, and anybody can read it.
    pub label: String,
    /// Present time, in seconds since 1970.
    pub created_unix_s: u64,
}

/// A configuration whose key of the fingerprints is there, and what its key slot holds.
pub(super) struct UnlockedConfig {
    pub config: Config,
    pub master: Zeroizing<[u8; MASTER_BYTES]>,
    /// Name of the slot that the password opens.
    pub slot: String,
}

impl Depot {
    /// Whether the depot in `folder` is encrypted, so that a password opens it.
    ///
    /// # Errors
    /// [`Error::NoDepot`]; [`Error::Damaged`].
    pub fn is_encrypted(folder: &dyn Dir) -> Result<bool> {
        Ok(read_config(folder)?.is_encrypted())
    }

    /// Fails where the password does not open the depot in `folder`. Nothing is written, whoever has the depot open.
    ///
    /// # Errors
    /// [`Error::WrongPassword`]; [`Error::NoDepot`]; [`Error::Damaged`].
    pub fn try_password(folder: &dyn Dir, password: &Secret) -> Result<()> {
        unlock(read_config(folder)?, Some(password), &Entropy::system()).map(drop)
    }
}

/// Draws the keys of a new depot and puts them into a slot of its configuration.
pub(super) fn lock_up(
    mut config: Config,
    new: Option<&NewPassword>,
    entropy: &Entropy,
) -> Result<(Config, Seals)> {
    let Some(new) = new else {
        return Ok((config, Seals::none()));
    };
    let master = Zeroizing::new(entropy.try_bytes::<MASTER_BYTES>()?);
    config.slots = vec![new_slot(&config, &master, new, entropy)?];
    config.check()?;
    let seals = Seals::new(Keys::from_master(&master), entropy.clone());
    Ok((config, seals))
}

/// A slot that opens `config`, of which the key of the fingerprints is there, with a new password.
pub(super) fn new_slot(
    config: &Config,
    master: &Zeroizing<[u8; MASTER_BYTES]>,
    new: &NewPassword,
    entropy: &Entropy,
) -> Result<Slot> {
    let sealed = Zeroizing::new(config.sealed_fields(config.hash_key));
    let slot = NewSlot {
        cost: new.cost,
        label: &new.label,
        created_unix_s: new.created_unix_s,
    };
    Ok(Slot::wrap(master, &sealed, &new.password, &slot, entropy)?)
}

/// The configuration with the key of the fingerprints, and the keys that everything is sealed with.
///
/// # Errors
/// [`Error::NoPassword`]; [`Error::WrongPassword`]; [`Error::Damaged`] where the configuration is not what was sealed.
pub(super) fn unlock(
    config: Config,
    password: Option<&Secret>,
    entropy: &Entropy,
) -> Result<(Config, Seals)> {
    if !config.is_encrypted() {
        return Ok((config, Seals::none()));
    }
    let unlocked = unlock_slot(config, password)?;
    let keys = Keys::from_master(&unlocked.master);
    Ok((unlocked.config, Seals::new(keys, entropy.clone())))
}

/// Opens a slot of an encrypted depot.
///
/// # Errors
/// Those of [`unlock`].
pub(super) fn unlock_slot(mut config: Config, password: Option<&Secret>) -> Result<UnlockedConfig> {
    let place = || "the folder".to_string();
    let password = password.ok_or_else(|| Error::NoPassword { place: place() })?;
    for slot in &config.slots {
        let Some(opened) = slot.unwrap(password, CONFIG)? else {
            continue;
        };
        let sealed = Zeroizing::new(opened.payload);
        let slot = slot.id();
        config.hash_key = hash_key_in(&sealed, &config)?;
        return Ok(UnlockedConfig {
            config,
            master: opened.master,
            slot,
        });
    }
    Err(Error::WrongPassword { place: place() })
}

/// The key of the fingerprints in what a slot has sealed. All else there must be what the configuration says.
fn hash_key_in(sealed: &[u8], config: &Config) -> Result<[u8; 32]> {
    let key = (sealed.get(Config::HASH_KEY_AT..)).and_then(|rest| rest.first_chunk::<32>());
    match key.filter(|key| config.sealed_fields(**key) == sealed) {
        Some(key) => Ok(*key),
        None => Err(Error::Damaged {
            place: format!("{CONFIG} at offset 0"),
            what: "somebody changed it: expected the settings that its key slot has sealed".into(),
        }),
    }
}
