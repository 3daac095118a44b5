//! Roots that a reader keeps reading for a long time, forgotten or not, while sweeps go on beside it.
//!
//! Sweeps wait for a session without a hold, and not for one with a hold. What it holds is marked like what is not
//! forgotten, so its chunks stay; they may be moved, and are found as anybody finds what a sweep has moved.
//!
//! Invariant: a root is held only if it was there, not forgotten, after the hold became visible, or if the hold that
//! this one follows had it. A sweep that did not see the hold lists such a root, and one that sees it marks the root.

use std::collections::HashSet;

use onefold_io::ErrorKind;

use crate::folders::ROOT_FOLDER;
use crate::registry::{Living, Pin};
use crate::repository::Repository;
use crate::root;
use crate::{Error, Result, RootId};

/// Roots that are kept readable until this is dropped.
pub struct Hold {
    roots: Vec<RootId>,
    /// None in a place that is only read, where nobody can sweep from here, and where there is nothing to hold.
    pin: Option<Box<dyn Pin>>,
}

impl Hold {
    /// The roots that are held: those that were asked for and are there. Sorted.
    pub fn roots(&self) -> &[RootId] {
        &self.roots
    }

    /// Makes sure that the hold still holds, and shows that the reader lives.
    ///
    /// # Errors
    /// [`Error::PinLost`]: it holds nothing any more.
    pub fn confirm(&self) -> Result<()> {
        self.pin.as_ref().map_or(Ok(()), |pin| pin.confirm())
    }
}

impl Repository {
    /// Keeps those of the `wanted` roots readable that are there, or that `before` holds, which is dropped after a
    /// while: a sweep may be reading who is there.
    ///
    /// # Errors
    /// [`Error::Io`]: the hold cannot be made visible, or the roots not be listed.
    pub fn hold(&self, wanted: &[RootId], before: Option<&Hold>) -> Result<Hold> {
        let mut roots = wanted.to_vec();
        roots.sort_unstable();
        roots.dedup();
        let registry = &self.shared.place.registry;
        let pin = if roots.is_empty() {
            None
        } else {
            match registry.begin(&self.shared.options.pin, &roots) {
                Err(Error::Io(error))
                    if matches!(error.kind, ErrorKind::Denied | ErrorKind::NoSpace) =>
                {
                    None
                }
                begun => Some(begun?),
            }
        };
        let there = self.roots()?;
        let held = before.map_or(&[][..], Hold::roots);
        let is_kept =
            |root: &RootId| there.binary_search(root).is_ok() || held.binary_search(root).is_ok();
        roots.retain(is_kept);
        Ok(Hold { roots, pin })
    }

    /// Roots that readers hold, whoever they are. To be asked after roots were listed.
    pub(crate) fn held_roots(&self) -> Result<HashSet<RootId>> {
        let living = || match self.shared.place.registry.living() {
            // A place that is only read: who looks there deletes nothing.
            Err(Error::Io(error)) if error.kind == ErrorKind::Denied => Ok(Vec::new()),
            living => living,
        };
        // A reader takes a new hold before it lets go of the old one: one look could come between the two.
        let (first, second) = (living()?, living()?);
        let holds = |living: Vec<Living>| {
            let holders = living.into_iter().filter(|session| !session.is_stale);
            holders.flat_map(|session| session.holds)
        };
        Ok(holds(first).chain(holds(second)).collect())
    }

    /// Removes what is left of forgotten roots that nobody holds. For the holder of the sweep's lock.
    pub(crate) fn clear_forgotten(&self) -> Result<()> {
        let objects = &self.shared.objects;
        let forgotten = root::forgotten_ids(&objects.list(ROOT_FOLDER)?);
        if forgotten.is_empty() {
            return Ok(());
        }
        let held = self.held_roots()?;
        let gone = forgotten.iter().filter(|root| !held.contains(root));
        let gone: Vec<_> = gone.map(RootId::forgotten_object).collect();
        objects.delete_all(&gone)
    }
}
