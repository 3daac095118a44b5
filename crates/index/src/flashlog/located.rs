//! Where a key was found, and what of that is still true: the end of every lookup and of every walk over pages.

use onefold_chunk::Fingerprint;

use super::FlashLog;
use crate::strata::log::Said;
use crate::{IndexStats, Location, Result};

/// Where a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// In a write buffer.
    Buffer,
    /// In this page of the log.
    Page(u32),
}

/// What is said of a key, and where; `None` where nothing is.
pub type Located = Option<(At, Said)>;

impl FlashLog {
    /// Answers a lookup: locations in containers that are not retired. Counts it in `stats`.
    pub fn answer(
        &self,
        located: Vec<Located>,
        found: &mut [Option<Location>],
        stats: &mut IndexStats,
    ) {
        for (slot, located) in found.iter_mut().zip(located) {
            *slot = located
                .and_then(|(_, said)| said)
                .filter(|container| !self.is_retired(container))
                .map(|container| Location { container });
            stats.hits += u64::from(slot.is_some());
        }
        stats.lookups += found.len() as u64;
    }

    /// Shows those of `keys`, records at `at`, that a lookup finds there: the newest of their keys.
    pub fn visit_live(
        &self,
        keys: &[Fingerprint],
        located: Vec<Located>,
        at: At,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        for (key, located) in keys.iter().zip(located) {
            if let Some((place, Some(container))) = located
                && place == at
                && !self.is_retired(&container)
            {
                visit(*key, Location { container })?;
            }
        }
        Ok(())
    }
}
