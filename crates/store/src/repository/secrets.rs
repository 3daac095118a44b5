//! The key slots of an opened repository: list, add, remove.

use onefold_keys::{Entropy, KdfCost, KeyInfo, NewSlot, Secret};

use crate::registry::Lock;
use crate::repository::slots::{self, SLOT_FOLDER};
use crate::repository::{Repository, read_slot};
use crate::session::SessionKind;
use crate::{Error, Result};

impl Repository {
    /// All key slots that can be read; of others a warning tells.
    ///
    /// # Errors
    /// [`Error::Io`]: the folder of slots cannot be listed, or the device fails at one.
    pub fn keys(&self) -> Result<Vec<KeyInfo>> {
        let objects = &*self.shared.objects;
        let mut keys = Vec::new();
        for name in slots::listed(objects)? {
            let slot = match read_slot(objects, &name) {
                // Removed since it was listed.
                Err(error) if error.is_not_found() => continue,
                Err(error) if error.is_unusable() => {
                    tracing::warn!("{error}");
                    continue;
                }
                other => other?,
            };
            let id = name[SLOT_FOLDER.len() + 1..].to_string();
            keys.push(slot.info(id, &self.shared.keys));
        }
        Ok(keys)
    }

    /// The names of all key slots, whether they can be read or not.
    ///
    /// # Errors
    /// [`Error::Io`]: the folder of slots cannot be listed.
    pub fn key_names(&self) -> Result<Vec<String>> {
        let slots = slots::listed(&*self.shared.objects)?;
        let ids = slots.iter().filter_map(|slot| slots::id_of(slot));
        Ok(ids.map(str::to_owned).collect())
    }

    /// The name of the slot that this repository was opened with; none without encryption.
    pub fn current_key(&self) -> Option<&str> {
        self.unlocked
            .as_ref()
            .map(|unlocked| unlocked.slot.as_str())
    }

    /// Adds a slot that opens with `password`; gives its name.
    ///
    /// # Errors
    /// [`Error::Option`] where the repository is not encrypted, or `cost` cannot be; [`Error::Machine`]: no memory for
    /// it.
    pub fn add_key(
        &self,
        password: &Secret,
        label: &str,
        cost: KdfCost,
        now_unix_s: u64,
    ) -> Result<String> {
        let none = || Error::Option("the repository is not encrypted: it has no keys".into());
        let master = &self.unlocked.as_ref().ok_or_else(none)?.master;
        let entropy: &Entropy = &self.shared.options.entropy;
        let new = NewSlot {
            cost,
            label,
            created_unix_s: now_unix_s,
        };
        let slot = slots::wrap(master, self.config(), password, &new, entropy)?;
        let object = slots::new_object(entropy)?;
        // In a session, so that no sweep takes the unfinished slot for one of the dead.
        let session = self.session(SessionKind::Pinned)?;
        let objects = &*self.shared.objects;
        objects.put_if_absent(&object, &[&slot.encode()])?;
        session.finish()?;
        Ok(object[SLOT_FOLDER.len() + 1..].to_string())
    }

    /// Removes the slot `id`, never the last one that was made with the repository's key.
    ///
    /// # Errors
    /// [`Error::Option`] for that one, or where none is named `id`; [`Error::Locked`] while another removes one: of two
    /// that each saw two slots, both could go. Those of [`keys`](Self::keys).
    pub fn remove_key(&self, id: &str) -> Result<()> {
        let _lock = self.shared.place.registry.lock(Lock::Keys)?;
        let object = format!("{SLOT_FOLDER}/{id}");
        if !slots::listed(&*self.shared.objects)?.contains(&object) {
            return Err(Error::Option(format!("no key is named \"{id}\"")));
        }
        // The one in use opens, whatever its label.
        let opens = |key: &KeyInfo| key.is_proved || self.current_key() == Some(&key.id);
        let mut others = self.keys()?.into_iter().filter(|key| key.id != id);
        if !others.any(|key| opens(&key)) {
            return Err(Error::Option(
                "this is the last key: without it nothing could be read again".into(),
            ));
        }
        self.shared.objects.delete(&object)
    }
}
