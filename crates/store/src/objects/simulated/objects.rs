//! A simulated store's objects.

use onefold_io::ErrorKind;

use super::SimStore;
use super::world::{ChangeOutcome, RequestedChange, World, error};
use crate::objects::{CONTAINERS, OBJECT_BYTES_MAX, ObjectStore};
use crate::repository::slots::SLOT_FOLDER;
use crate::{Error, Result};

impl SimStore {
    fn change(&self, name: &str, change: RequestedChange) -> Result<()> {
        match self.world.lock().change(self.process, name, change)? {
            ChangeOutcome::Refused => Err(error(
                "create",
                name,
                ErrorKind::Exists,
                "the name is taken",
            )),
            _ => Ok(()),
        }
    }

    /// Reads an object, and returns the result of `of` on its bytes.
    fn look<T>(&self, name: &str, of: impl FnOnce(&mut World, &[u8]) -> Result<T>) -> Result<T> {
        let world = &mut *self.world.lock();
        world.read(self.process, name)?;
        match world.objects.get(name).cloned() {
            Some(bytes) => of(world, &bytes),
            None => Err(error("open", name, ErrorKind::NotFound, "no such object")),
        }
    }

    fn all_below(&self, folder: &str) -> Result<Vec<(String, u64)>> {
        let world = &mut *self.world.lock();
        world.read(self.process, folder)?;
        let prefix = format!("{folder}/");
        let below = world.objects.range(prefix.clone()..);
        let below = below.take_while(|(name, _)| name.starts_with(&prefix));
        let found: Vec<_> = below
            .map(|(name, bytes)| (name.clone(), bytes.len() as u64))
            .collect();
        if found.is_empty() && !world.folders.contains(folder) {
            Err(error(
                "open folder",
                folder,
                ErrorKind::NotFound,
                "no such folder",
            ))
        } else {
            Ok(found)
        }
    }
}

fn put(name: &str, parts: &[&[u8]], if_absent: bool) -> RequestedChange {
    RequestedChange::Put {
        name: name.into(),
        bytes: parts.concat(),
        if_absent,
    }
}

impl ObjectStore for SimStore {
    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.change(name, put(name, parts, false))
    }

    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.change(name, put(name, parts, true))
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.look(name, |_, bytes| {
            if bytes.len() as u64 > OBJECT_BYTES_MAX && !name.starts_with(CONTAINERS) {
                let what = format!("{} bytes, at most {OBJECT_BYTES_MAX} can be", bytes.len());
                return Err(Error::damaged(name, Some(OBJECT_BYTES_MAX), what));
            }
            Ok(bytes.to_vec())
        })
    }

    fn get_range(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.look(name, |world, bytes| {
            let end = offset.saturating_add(buf.len() as u64);
            let is_short = world.strikes(world.faults.short);
            match bytes.get(offset as usize..end as usize) {
                Some(range) if !is_short => {
                    buf.copy_from_slice(range);
                    Ok(())
                }
                _ => Err(error(
                    "read",
                    name,
                    ErrorKind::Short,
                    "the object ends too early",
                )),
            }
        })
    }

    fn get_tail(&self, name: &str, bytes_max: usize) -> Result<(Vec<u8>, u64)> {
        self.look(name, |_, bytes| {
            let from = bytes.len().saturating_sub(bytes_max);
            Ok((bytes[from..].to_vec(), bytes.len() as u64))
        })
    }

    fn forget_cached(&self, _name: &str) {}

    fn len(&self, name: &str) -> Result<u64> {
        self.look(name, |_, bytes| Ok(bytes.len() as u64))
    }

    fn list_past(
        &self,
        prefix: &str,
        _failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<String>> {
        let all = self.all_below(prefix)?.into_iter();
        Ok(all.map(|(name, _)| name).collect())
    }

    fn lengths_past(
        &self,
        prefix: &str,
        _failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<(String, u64)>> {
        self.all_below(prefix)
    }

    fn ages(&self, prefix: &str) -> Result<Vec<(String, Option<u64>)>> {
        let all = self.all_below(prefix)?.into_iter();
        let world = self.world.lock();
        let age_s = |name: &String| Some((world.now_ms - world.put_ms.get(name)?) / 1000);
        Ok(all.map(|(name, _)| (name.clone(), age_s(&name))).collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.change(name, RequestedChange::Delete(name.into()))
    }

    /// Every object that is there is durable.
    fn keep(&self, _names: &[String]) -> Result<()> {
        Ok(())
    }

    fn has_folder(&self, folder: &str) -> Result<bool> {
        let world = &mut *self.world.lock();
        world.read(self.process, folder)?;
        Ok(world.folders.contains(folder))
    }

    fn make_folder(&self, folder: &str) -> Result<()> {
        self.change(folder, RequestedChange::MakeFolder(folder.into()))
    }

    fn left_over(&self) -> Result<Vec<String>> {
        let world = &mut *self.world.lock();
        world.read(self.process, "")?;
        let is_slot = |name: &String| name.starts_with(&format!("{SLOT_FOLDER}/"));
        match world.objects.keys().find(|name| !is_slot(name)) {
            Some(other) => Err(Error::NotEmpty {
                what: format!("there is \"{other}\""),
            }),
            None => Ok(world.objects.keys().cloned().collect()),
        }
    }
}
