//! Opens a repository whose configuration is lost, in the file and in its copy. Each key slot of an encrypted
//! repository seals a third copy.
//!
//! Invariant: a configuration is taken from a slot only if the password opens that slot and the key in it opens a
//! snapshot. Another repository's slot may lie there, with the same password: with its configuration nothing could be
//! read any more.

use onefold_keys::{Keys, Secret};
use zeroize::Zeroizing;

use super::unlock::{cheapest_first, read_slot, try_slot};
use crate::folders::ROOT_FOLDER;
use crate::objects::ObjectStore;
use crate::repository::config::{CONFIG_OBJECT, RepositoryConfig};
use crate::repository::slots::{self, SLOT_FOLDER};
use crate::root;
use crate::{Error, Result};

/// The configuration that the password opens in a key slot.
///
/// # Errors
/// [`Error::WrongPassword`]; [`Error::Damaged`] where what opens is not this repository's, or no slot can be read.
pub(super) fn from_slots(objects: &dyn ObjectStore, secret: &Secret) -> Result<RepositoryConfig> {
    let names = slots::listed(objects)?;
    let (mut opened, mut failed) = (Vec::<RepositoryConfig>::new(), None);
    for name in cheapest_first(objects, &names) {
        let tried = read_slot(objects, name).and_then(|slot| {
            let Some((master, config)) = try_slot(&slot, name, secret)? else {
                return Ok(None);
            };
            slots::confirm(&slot, &Keys::from_master(&master), name)?;
            proves(objects, &master, name)?;
            Ok(Some(config))
        });
        match tried {
            Ok(Some(config)) if !opened.contains(&config) => opened.push(config),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!("{error}");
                failed = Some(error);
            }
        }
    }
    match (opened.pop(), failed) {
        (Some(config), _) if opened.is_empty() => {
            tracing::warn!("{CONFIG_OBJECT} is in no copy what the key slots say: theirs is used");
            Ok(config)
        }
        (Some(_), _) => {
            let what = "the password opens key slots of several repositories, and no snapshot tells which is this one's: move those aside that are not";
            Err(Error::damaged(SLOT_FOLDER, None, what))
        }
        (None, Some(failed)) => Err(failed),
        (None, None) => Err(Error::WrongPassword { slots: names.len() }),
    }
}

/// Checks that the key in the slot opens a snapshot, if there are any.
fn proves(objects: &dyn ObjectStore, master: &Zeroizing<[u8; 32]>, slot: &str) -> Result<()> {
    let listed = match objects.list(ROOT_FOLDER) {
        Err(error) if error.is_not_found() => Vec::new(),
        listed => listed?,
    };
    let (ids, keys) = (root::ids(&listed), Keys::from_master(master));
    let opens = |id| root::read(objects, &keys, id).is_ok();
    if ids.is_empty() || ids.iter().any(opens) {
        Ok(())
    } else {
        Err(Error::damaged(
            slot,
            None,
            "the password opens it, and its key opens no snapshot: it is another repository's, or all snapshots are damaged",
        ))
    }
}
