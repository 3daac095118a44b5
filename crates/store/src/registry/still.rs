//! A repository that is held still while somebody copies its files: no prune and no repair deletes anything.
//!
//! Invariant: prunes and repairs take `locks/sweep` exclusively, who holds still takes it shared, so that several
//! may copy at once. A pin stands beside the lock. Where the lock is lost, as when a network file system frees the
//! locks of a machine that slept, or somebody deletes the lock's file, the next sweep either sees the pin, and deletes
//! nothing that was there before it, or takes it for a dead one's, and removes it: so a pin that is still there at the
//! end proves that nothing was deleted.

use onefold_keys::Entropy;

use crate::registry::{Held, Lock, Pin, PinInfo};
use crate::repository::Repository;
use crate::repository::place::IntoPlace;
use crate::{Error, Result};

/// A repository from which nothing is deleted but snapshots.
pub struct HeldStill {
    pin: Box<dyn Pin>,
    _lock: Box<dyn Held>,
}

impl HeldStill {
    /// Holds the repository in `place` still; no password is needed for that. `info` is what others see of it.
    ///
    /// # Errors
    /// [`Error::NoRepository`]; [`Error::Locked`] while a prune or a repair is running; [`Error::Io`] where nothing can
    /// be written there.
    pub fn begin(place: impl IntoPlace, info: &PinInfo) -> Result<Self> {
        let place = place.into_place(&Entropy::system());
        match Repository::config_at(&place) {
            // Its containers can be copied all the same.
            Err(error) if !error.is_unusable() => return Err(error),
            _ => {}
        }
        let lock = place.registry.share(Lock::Sweep)?;
        Ok(Self {
            pin: place.registry.begin(info, &[])?,
            _lock: lock,
        })
    }

    /// Lets go, and says whether it was held still all the time.
    ///
    /// # Errors
    /// [`Error::NotStill`] where it was not; [`Error::Io`] where that cannot be looked at.
    pub fn finish(self) -> Result<()> {
        match self.pin.confirm() {
            Err(Error::PinLost { object }) => Err(Error::NotStill { object }),
            confirmed => confirmed,
        }
    }
}
