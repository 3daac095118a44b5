//! A simulated store's registers.

use onefold_io::ErrorKind;

use super::SimStore;
use super::world::{ChangeOutcome, RequestedChange, error};
use crate::Result;
use crate::registry::registers::{Expect, Register, Registers, Version};

impl Registers for SimStore {
    fn read(&self, name: &str) -> Result<Option<Register>> {
        let world = &mut *self.world.lock();
        world.read(self.process, name)?;
        let found = world.registers.get(name);
        Ok(found.map(|(bytes, version)| Register {
            bytes: bytes.clone(),
            version: Version(version.to_string()),
            age_s: None,
        }))
    }

    fn write(&self, name: &str, expect: &Expect, bytes: &[u8]) -> Result<Version> {
        let change = RequestedChange::Write {
            name: name.into(),
            expect: expect.clone(),
            bytes: bytes.to_vec(),
        };
        match self.world.lock().change(self.process, name, change)? {
            ChangeOutcome::Written(version) => Ok(Version(version.to_string())),
            _ => Err(error(
                "swap",
                name,
                ErrorKind::Exists,
                "it is not as expected",
            )),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let world = &mut *self.world.lock();
        world.read(self.process, folder)?;
        let prefix = format!("{folder}/");
        let below = world.registers.range(prefix.clone()..);
        let below = below.take_while(|(name, _)| name.starts_with(&prefix));
        Ok(below.map(|(name, _)| name.clone()).collect())
    }

    fn remove(&self, name: &str) -> Result<()> {
        let change = RequestedChange::Remove(name.into());
        self.world.lock().change(self.process, name, change)?;
        Ok(())
    }
}
