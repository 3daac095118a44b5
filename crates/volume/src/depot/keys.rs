//! Passwords of an encrypted depot: each key slot of its configuration opens it with one.
//!
//! A change writes the copies at the beginning of the data device, then the copy in the folder, and last the
//! configuration, which counts: where it has changed, no copy opens with what was removed. All slots hold one master
//! key, which never changes.

use std::sync::Arc;

use onefold_io::Dir;
use onefold_keys::{Entropy, KeyInfo, Keys, Secret, Slot};

use super::config::SLOTS_MAX;
use super::data::{self, HEAD_COPY_BYTES};
use super::unlock::{NewPassword, UnlockedConfig, new_slot, unlock_slot};
use super::{OpenDevice, lock, read_config, write_config};
use crate::{Error, Result};

/// The key slots of a depot, opened by one of them.
pub struct DepotKeys {
    folder: Arc<dyn Dir>,
    devices: OpenDevice,
    unlocked: UnlockedConfig,
}

impl DepotKeys {
    /// Opens a slot of the depot in `folder`, whoever has the depot open.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the depot is not encrypted; [`Error::NoDepot`]; [`Error::NoPassword`];
    /// [`Error::WrongPassword`]; [`Error::Damaged`].
    pub fn open(
        folder: Arc<dyn Dir>,
        devices: OpenDevice,
        password: Option<&Secret>,
    ) -> Result<Self> {
        let config = read_config(&*folder)?;
        if !config.is_encrypted() {
            return Err(Error::Invalid {
                what: "the depot is not encrypted: it has no keys".into(),
            });
        }
        Ok(Self {
            folder,
            devices,
            unlocked: unlock_slot(config, password)?,
        })
    }

    /// All key slots, in the order in which passwords are tried.
    pub fn list(&self) -> Vec<KeyInfo> {
        let keys = Keys::from_master(&self.unlocked.master);
        let slots = self.unlocked.config.slots.iter();
        slots.map(|slot| slot.info(slot.id(), &keys)).collect()
    }

    /// The name of the slot that the password opens.
    pub fn current(&self) -> &str {
        &self.unlocked.slot
    }

    /// Adds a slot that opens with a new password; returns its name.
    ///
    /// # Errors
    /// [`Error::Invalid`] where there is no room for one more; those of a change: [`Error::Held`] while another has the
    /// depot open, [`Error::WrongPassword`] where the slot in use was removed meanwhile, a device failed.
    pub fn add(&mut self, new: &NewPassword, entropy: &Entropy) -> Result<String> {
        let slot = new_slot(&self.unlocked.config, &self.unlocked.master, new, entropy)?;
        let id = slot.id();
        self.change(|slots| {
            slots.push(slot);
            Ok(())
        })?;
        Ok(id)
    }

    /// Puts a slot with a new password in place of the one in use, which opens nothing any more; returns its name.
    ///
    /// # Errors
    /// Those of [`add`](Self::add).
    pub fn replace_current(&mut self, new: &NewPassword, entropy: &Entropy) -> Result<String> {
        let slot = new_slot(&self.unlocked.config, &self.unlocked.master, new, entropy)?;
        let (id, old) = (slot.id(), self.unlocked.slot.clone());
        self.change(|slots| {
            slots.retain(|slot| slot.id() != old);
            slots.push(slot);
            Ok(())
        })?;
        self.unlocked.slot.clone_from(&id);
        Ok(id)
    }

    /// Removes the slot `id`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the slot in use, and where none is named `id`; errors of a change as of
    /// [`add`](Self::add).
    pub fn remove(&mut self, id: &str) -> Result<()> {
        if id == self.unlocked.slot {
            return Err(Error::Invalid {
                what: "this is the key in use: give the password of another one to remove it"
                    .into(),
            });
        }
        self.change(|slots| {
            let count = slots.len();
            slots.retain(|slot| slot.id() != id);
            if slots.len() == count {
                Err(Error::Invalid {
                    what: format!("no key is named \"{id}\""),
                })
            } else {
                Ok(())
            }
        })
    }

    /// Changes the slots that are there now, and writes all copies of the configuration.
    fn change(&mut self, edit: impl FnOnce(&mut Vec<Slot>) -> Result<()>) -> Result<()> {
        let folder = &*self.folder;
        let _lock = lock(folder)?;
        let mut slots = read_config(folder)?.slots;
        if !slots.iter().any(|slot| slot.id() == self.unlocked.slot) {
            return Err(Error::WrongPassword {
                place: "the folder".into(),
            });
        }
        edit(&mut slots)?;
        let mut config = self.unlocked.config.clone();
        config.slots = slots;
        let encoded = config.encode();
        if config.slots.len() > SLOTS_MAX || encoded.len() > HEAD_COPY_BYTES {
            return Err(Error::Invalid {
                what: format!(
                    "{} keys in {} bytes, where at most {SLOTS_MAX} in {HEAD_COPY_BYTES} are expected: remove one first",
                    config.slots.len(),
                    encoded.len()
                ),
            });
        }
        let data = data::open(folder, &self.devices, &config)?;
        data::rewrite_head(&*data.disk, &config)?;
        write_config(folder, &encoded)?;
        self.unlocked.config = config;
        Ok(())
    }
}
