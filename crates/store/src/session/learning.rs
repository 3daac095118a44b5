//! Lookups of a session: its index has only the hooks of some containers, and learns the rest of these when it meets a
//! hook. The session tells other machines of its own containers in its turn.
//!
//! Invariant: nothing is referred to because of a hook before the container's own table was read.

use onefold_chunk::Fingerprint;
use onefold_index::{ContainerId, Location};

use super::SessionState;
use crate::error::tolerate;
use crate::index::insert_table;
use crate::{Result, index::catalog};

/// Number of containers whose living chunks may be on the way into one that is not stored yet.
const SOURCES_IN_FLIGHT: usize = 256;

impl SessionState {
    pub(crate) fn lookup(
        &self,
        keys: &[Fingerprint],
        found: &mut [Option<Location>],
    ) -> Result<()> {
        self.shared.look_up(keys, found)?;
        if self.hooked.is_empty() {
            return Ok(());
        }
        loop {
            let met = found.iter().flatten().map(|location| location.container);
            let met: Vec<_> = met.collect();
            if !self.learn(&met)? {
                return Ok(());
            }
            // The learned chunks may lead to further containers, whose hooks are not among these keys.
            self.shared.look_up(keys, found)?;
        }
    }

    /// Tells the index all chunks of those containers of `met` of which it has only the hooks. Whether there were any.
    fn learn(&self, met: &[ContainerId]) -> Result<bool> {
        if self.hooked.to_learn(met).is_empty() {
            return Ok(false);
        }
        let _learning = self.learning.lock();
        // Another may have learned them meanwhile.
        let to_learn = self.hooked.to_learn(met);
        self.shared.open_many(&to_learn, &mut |id, opened| {
            // No chunk of a damaged container is referred to, whatever its hooks are.
            let opened = tolerate(opened, |error| {
                tracing::warn!("{error}: what is in it counts as new");
                self.found_damaged.lock().insert(id);
            })?;
            if let Some(opened) = opened {
                let table = &opened.table;
                self.shared
                    .with_index(|index| insert_table(&mut **index, id, table))?;
                self.learned.lock().insert(id);
            }
            Ok(())
        })?;
        self.hooked.learned(&to_learn);
        Ok(true)
    }

    /// Whether the index knows all of this container, which it learns now if it had only the hooks.
    pub(super) fn has_learned(&self, container: ContainerId) -> bool {
        let has_learned = self.hooked.is_empty() || self.learn(&[container]).is_ok();
        has_learned && self.learned.lock().contains(&container)
    }

    /// Learns of the containers to which a sweep copied what lives of `gone`. Whether there was anything to learn.
    pub(super) fn follow(&self, gone: ContainerId) -> Result<bool> {
        if self.hooked.is_empty() {
            return Ok(false);
        }
        let forwarding = match self.forwarding.get() {
            Some(forwarding) => forwarding,
            None => {
                let read = self.shared.forwarding()?;
                self.forwarding.get_or_init(|| read)
            }
        };
        self.learn(forwarding.of(gone))
    }

    /// Takes note of containers whose living chunks this session has copied.
    pub(crate) fn copied(&self, sources: &[ContainerId]) {
        if self.ways().is_dear() {
            self.uncataloged.lock().sources.extend(sources);
        }
    }

    /// Tells other machines of what is in no catalog yet, if that is so much.
    pub(super) fn catalog(&self, containers_min: usize) {
        let mut uncataloged = self.uncataloged.lock();
        if uncataloged.entries.len() < containers_min || self.options().dry_run {
            return;
        }
        let catalog = std::mem::take(&mut *uncataloged);
        // Some of what was copied may be in containers that are not stored yet.
        let in_flight = catalog.sources.len().saturating_sub(SOURCES_IN_FLIGHT);
        uncataloged.sources = catalog.sources[in_flight..].to_vec();
        drop(uncataloged);
        let (keys, entropy) = (&self.shared.keys, &self.options().entropy);
        catalog::put(self.objects(), &catalog, keys, entropy);
    }
}
