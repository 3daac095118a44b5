//! How the index of a session that begins hears of what other sessions stored and deleted.

use onefold_index::ContainerId;

use super::Repository;
use crate::Result;
use crate::index::catalog::CatalogEntry;
use crate::index::hooked::Hooked;
use crate::protocol::Sorted;

impl Repository {
    /// Tells the index of containers that it missed and that are not condemned, and of those that vanished. `ingested`
    /// was read before `listed`: a container that others finish meanwhile is on neither list, or on the second only.
    ///
    /// Where a request costs much, the index is told only the hooks of containers that a catalog names. Gives those of
    /// which it knows no more than that, and what is to be cataloged of those that no catalog names.
    pub(super) fn catch_up(
        &self,
        ingested: &[ContainerId],
        listed: &[ContainerId],
        condemned: &Sorted<ContainerId>,
    ) -> Result<(Hooked, Vec<CatalogEntry>)> {
        let shared = &self.shared;
        let is_dear = shared.place.ways.is_dear();
        let hooked = || {
            if is_dear {
                shared.index.read().hooked().read_in_order()
            } else {
                Ok(Vec::new())
            }
        };
        let known = Sorted::from([ingested, &hooked()?].concat());
        let is_listed = |id: &ContainerId| listed.binary_search(id).is_ok();
        let gone = known.as_slice().iter().filter(|id| !is_listed(id));
        let gone: Vec<_> = gone.copied().collect();
        let missed = listed.iter();
        let missed = missed.filter(|id| !known.contains(id) && !condemned.contains(id));
        let missed: Vec<_> = missed.copied().collect();
        let mut unnamed = Vec::new();
        if !gone.is_empty() || !missed.is_empty() {
            shared.with_index(|index| {
                if !gone.is_empty() {
                    index.retire(&gone)?;
                }
                let is_hooked = is_dear && missed.len() > shared.place.ways.whole_max;
                let left = if is_hooked {
                    shared.tell_hooks(index, &missed)?
                } else {
                    missed.clone()
                };
                let to_catalog = if is_dear && !is_hooked {
                    shared.in_no_catalog(&left)?
                } else {
                    left.clone()
                };
                unnamed.clear();
                shared.tell_durably(index, &left, &mut |id, table| {
                    if is_dear && to_catalog.binary_search(&id).is_ok() {
                        unnamed.push(CatalogEntry::of(id, table));
                    }
                })?;
                if gone.is_empty() {
                    Ok(())
                } else {
                    index.unlist(&gone)
                }
            })?;
        }
        let mut order = hooked()?;
        order.retain(|id| ingested.binary_search(id).is_err() && is_listed(id));
        order.retain(|id| !condemned.contains(id));
        Ok((Hooked::new(order), unnamed))
    }
}
