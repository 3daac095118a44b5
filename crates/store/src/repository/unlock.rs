//! From a folder and a password to the configuration and the master key.

use std::collections::HashSet;

use zeroize::Zeroizing;

use crate::config::{self, CONFIG, CONFIG_COPY_OBJECT, CONFIG_OBJECT, Config};
use crate::keys::Secret;
use crate::objects::ObjectStore;
use crate::slots::{self, SLOT_FOLDER, Slot};
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
            Err(copy) if error.is_not_found() && copy.is_not_found() => Err(Error::NoRepository {
                what: error.to_string(),
            }),
            // Of a file that is there, what is wrong with it.
            Err(copy) if error.is_not_found() => Err(copy),
            Err(_) => Err(error),
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

/// How often slots are listed again where one that was listed is gone: others change their passwords meanwhile.
const LISTED_AGAIN_MAX: u32 = 16;

/// Tries every slot. The configuration that is sealed in the slot must be the one in the clear.
pub(crate) fn unlock(
    objects: &dyn ObjectStore,
    config: &Config,
    secret: &Secret,
) -> Result<Unlocked> {
    let (mut tried, mut damage) = (HashSet::new(), None);
    let mut listed_again = 0;
    loop {
        let names = slots::listed(objects)?;
        let mut gone = None;
        for name in &names {
            if tried.contains(name) {
                continue;
            }
            match read_slot(objects, name).and_then(|slot| slot.unwrap(secret)) {
                Ok(Some((master, sealed))) if sealed == *config => {
                    let slot = name[SLOT_FOLDER.len() + 1..].to_string();
                    return Ok(Unlocked { master, slot });
                }
                // Another repository's with the same password, perhaps: the next may be this one's.
                Ok(Some(_)) => {
                    damage = Some(differing(name));
                    tried.insert(name.clone());
                }
                Ok(None) => drop(tried.insert(name.clone())),
                // What replaces it was there before it went, but perhaps not when slots were listed.
                Err(error) if error.is_not_found() => gone = Some(error),
                // Damaged, or made for a machine with more memory: another may open.
                Err(error) => {
                    tracing::warn!("{error}");
                    damage = Some(error);
                    tried.insert(name.clone());
                }
            }
        }
        if gone.is_some() && listed_again < LISTED_AGAIN_MAX {
            listed_again += 1;
            continue;
        }
        return Err(match damage.or(gone) {
            Some(error) => error,
            None if names.is_empty() => Error::damaged(
                SLOT_FOLDER,
                None,
                "no key slot is left: nobody can open the repository without a copy of this folder",
            ),
            None => Error::WrongPassword { slots: names.len() },
        });
    }
}

/// A key slot.
pub(crate) fn read_slot(objects: &dyn ObjectStore, name: &str) -> Result<Slot> {
    Ok(Slot::decode(&objects.get(name)?, name)?.0)
}

/// Either is another repository's, or somebody changed it.
fn differing(slot: &str) -> Error {
    let what = format!("it differs from the copy sealed in the key slot {slot}");
    Error::damaged(CONFIG_OBJECT, None, what)
}
