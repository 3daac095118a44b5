//! From a folder and a password to the configuration and the master key.

use onefold_io::ErrorKind;
use zeroize::Zeroizing;

use crate::config::{self, CONFIG, CONFIG_COPY_OBJECT, CONFIG_OBJECT, Config};
use crate::keys::Secret;
use crate::objects::ObjectStore;
use crate::slots::{SLOT_FOLDER, Slot};
use crate::{Error, Result};

/// The configuration, from whichever of its copies can be read.
pub(super) fn read_config(objects: &dyn ObjectStore) -> Result<Config> {
    let first = read_config_object(objects, CONFIG_OBJECT);
    match first {
        Ok(config) => Ok(config),
        Err(error) if error.is_loss() => match read_config_object(objects, CONFIG_COPY_OBJECT) {
            Ok(config) => {
                tracing::warn!("{error}: its copy is used; `onefold repair` restores it");
                Ok(config)
            }
            Err(_) => match error {
                Error::Io(error) if error.kind == ErrorKind::NotFound => Err(Error::NoRepository {
                    what: error.to_string(),
                }),
                other => Err(other),
            },
        },
        Err(error) => Err(error),
    }
}

fn read_config_object(objects: &dyn ObjectStore, name: &str) -> Result<Config> {
    let bytes = objects.get(name)?;
    Config::decode(config::decode_twice(CONFIG, &bytes, name)?.payload)
}

/// What a password opened.
pub(crate) struct Unlocked {
    pub(crate) master: Zeroizing<[u8; 32]>,
    /// The name of the slot that it opened.
    pub(crate) slot: String,
}

/// Tries every slot. The configuration that is sealed in the slot must be the one in the clear.
pub(crate) fn unlock(
    objects: &dyn ObjectStore,
    config: &Config,
    secret: &Secret,
) -> Result<Unlocked> {
    let names = objects.list(SLOT_FOLDER)?;
    let mut damage = None;
    for (name, _) in &names {
        let slot = match objects
            .get(name)
            .and_then(|bytes| Slot::decode(&bytes, name))
        {
            Ok((slot, _)) => slot,
            Err(error) => {
                tracing::warn!("{error}");
                damage = Some(error);
                continue;
            }
        };
        if let Some((master, sealed)) = slot.unwrap(secret)? {
            if sealed != *config {
                return Err(Error::damaged(
                    CONFIG_OBJECT,
                    None,
                    "it differs from the copy sealed in the key slot",
                ));
            }
            let slot = name[SLOT_FOLDER.len() + 1..].to_string();
            return Ok(Unlocked { master, slot });
        }
    }
    match damage {
        Some(error) => Err(error),
        None if names.is_empty() => Err(Error::damaged(SLOT_FOLDER, None, "no key slot is left")),
        None => Err(Error::WrongPassword { slots: names.len() }),
    }
}
