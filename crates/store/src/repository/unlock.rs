//! Opens a repository's folder with a password: reads the configuration, and the master key.

use std::collections::HashSet;

use onefold_keys::{KdfCost, Secret};
use zeroize::Zeroizing;

use crate::folders::{CONTAINER_FOLDER, ROOT_FOLDER};
use crate::objects::ObjectStore;
use crate::repository::config::{
    self, CONFIG, CONFIG_COPY_OBJECT, CONFIG_OBJECT, RepositoryConfig,
};
use crate::repository::slots::{self, SLOT_FOLDER, Slot};
use crate::{Error, Result};

/// The configuration, from whichever of its copies can be read.
pub(super) fn read_config(objects: &dyn ObjectStore) -> Result<RepositoryConfig> {
    let first = read_config_object(objects, CONFIG_OBJECT);
    match first {
        Ok(config) => Ok(config),
        Err(error) if error.is_loss() => match read_config_object(objects, CONFIG_COPY_OBJECT) {
            Ok(config) => {
                tracing::warn!("{error}: its copy is used; `onefold repair` restores it");
                Ok(config)
            }
            Err(copy) if error.is_not_found() && copy.is_not_found() => {
                let what = error.to_string();
                let missed = is_missed(objects)?;
                Err(missed.unwrap_or(Error::NoRepository { what }))
            }
            // The damage of a file that is there counts, not the missing one.
            Err(copy) if error.is_not_found() || copy.is_other_version() => Err(copy),
            Err(_) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Returns the error of a repository without its configuration and the copy. An interrupted `init` leaves neither
/// snapshots nor containers, and is no repository.
fn is_missed(objects: &dyn ObjectStore) -> Result<Option<Error>> {
    for folder in [ROOT_FOLDER, CONTAINER_FOLDER] {
        let listed = match objects.list(folder) {
            Err(error) if error.is_not_found() => continue,
            listed => listed?,
        };
        if !listed.is_empty() {
            let what =
                format!("it is missing, and so is its copy, of a repository that has {folder}");
            return Ok(Some(Error::damaged(CONFIG_OBJECT, None, what)));
        }
    }
    Ok(None)
}

fn read_config_object(objects: &dyn ObjectStore, name: &str) -> Result<RepositoryConfig> {
    let bytes = objects.get(name)?;
    let twice = config::decode_twice(CONFIG, &bytes, name)?;
    RepositoryConfig::decode(twice.payload, name, twice.offset)
}

/// Result of opening a key slot with a password.
pub(crate) struct Unlocked {
    pub(crate) master: Zeroizing<[u8; 32]>,
    /// The name of the slot that it opened.
    pub(crate) slot: String,
}

/// Largest number of times that slots are listed again where a listed one is gone: others change their passwords
/// meanwhile.
const LISTED_AGAIN_MAX: u32 = 16;

/// Tries every slot, the cheapest first: whoever can write to the storage can put one there that takes minutes. The
/// configuration that is sealed in the slot must be the one in the clear.
pub(crate) fn unlock(
    objects: &dyn ObjectStore,
    config: &RepositoryConfig,
    secret: &Secret,
) -> Result<Unlocked> {
    let (mut tried, mut damage, mut foreign) = (HashSet::new(), None, None);
    let mut is_wrong = false;
    let mut listed_again = 0;
    loop {
        let names = slots::listed(objects)?;
        let mut gone = None;
        for name in cheapest_first(objects, &names) {
            if tried.contains(name) {
                continue;
            }
            match read_slot(objects, name).and_then(|slot| try_slot(&slot, name, secret)) {
                Ok(Some((master, sealed))) if sealed == *config => {
                    let slot = name[SLOT_FOLDER.len() + 1..].to_string();
                    return Ok(Unlocked { master, slot });
                }
                // Another repository's with the same password, perhaps: the next may be this one's.
                Ok(Some(_)) => {
                    damage = Some(differing(name));
                    tried.insert(name.clone());
                }
                Ok(None) => {
                    is_wrong = true;
                    tried.insert(name.clone());
                }
                // The slot that replaces it was there before it went, but perhaps not when slots were listed.
                Err(error) if error.is_not_found() => gone = Some(error),
                // Another's, of a later version perhaps: it says nothing of this password.
                Err(error) if error.is_other_version() => {
                    tracing::warn!("{error}");
                    foreign = Some(error);
                    tried.insert(name.clone());
                }
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
        return Err(match damage.or(gone).or(foreign.filter(|_| !is_wrong)) {
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

/// Slots by what trying a password costs, as far as they can be read.
pub(super) fn cheapest_first<'a>(
    objects: &dyn ObjectStore,
    names: &'a [String],
) -> Vec<&'a String> {
    let work = |name: &String| read_slot(objects, name).map_or(0, |slot| slot.cost.work_kib());
    let mut names: Vec<_> = names.iter().collect();
    names.sort_by_cached_key(|name| work(name));
    names
}

/// Opens the slot with the password. A slot that takes long is announced first.
pub(super) fn try_slot(
    slot: &Slot,
    name: &str,
    secret: &Secret,
) -> Result<Option<(Zeroizing<[u8; 32]>, RepositoryConfig)>> {
    if slot.cost.is_high() {
        let KdfCost {
            memory_kib, passes, ..
        } = slot.cost;
        let mib = memory_kib >> 10;
        tracing::warn!(
            "{name} asks for {mib} MiB of memory and {passes} passes over it: trying the password there takes long"
        );
    }
    slots::unwrap(slot, secret, name)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use onefold_io::MemDir;
    use onefold_keys::{Entropy, NewSlot};

    use super::*;
    use crate::objects::LocalObjects;
    use crate::repository::config::Encryption;

    #[test]
    fn slots_are_tried_from_the_cheapest_on() {
        let entropy = Entropy::seeded(1);
        let objects = LocalObjects::new(Arc::new(MemDir::new()), entropy.clone());
        let config = RepositoryConfig {
            repository: [7; 16],
            encryption: Encryption::Aes256Gcm,
            chunker: "sieve".into(),
            chunk_bytes_mean: 8192,
            index: "strata".into(),
        };
        let (master, secret) = (Zeroizing::new([1; 32]), Secret::new("open sesame"));
        for (digit, passes) in [(0, 64), (1, 1), (2, 9)] {
            let cost = KdfCost {
                passes,
                ..KdfCost::LEAST
            };
            let new = NewSlot {
                cost,
                label: "",
                created_unix_s: 0,
            };
            let slot = slots::wrap(&master, &config, &secret, &new, &entropy).unwrap();
            let name = format!("{SLOT_FOLDER}/{digit:016x}");
            objects.put_if_absent(&name, &[&slot.encode()]).unwrap();
        }
        let names = slots::listed(&objects).unwrap();
        let digits = cheapest_first(&objects, &names);
        assert_eq!(digits, [&names[1], &names[2], &names[0]]);
        let opened = unlock(&objects, &config, &secret).unwrap();
        assert_eq!(opened.slot, "0000000000000001");
    }
}
