//! Reads what is left of damaged containers: a restore must not lose 16 MiB to one bad sector, and its user may not be
//! able to repair.
//!
//! The table is taken where footer and seal confirm it, whatever the header is; else the container is searched for
//! blocks, and their chunks are fingerprinted again. Invariant: a container is searched once, while others who want it
//! wait; every chunk in a table that was made so was read; RAM is one block and the tables that are kept.

use std::sync::Arc;

use onefold_index::ContainerId;

use crate::container::opened::{Opened, check_layout};
use crate::container::{self, ContainerTable};
use crate::error::chunks_are;
use crate::repair::salvage::Salvage;
use crate::repository::RepositoryState;
use crate::{Error, Result};

/// Chunks of a container whose table is made anew: twice what a container holds, for no table that somebody forged.
const CHUNKS_MAX: usize = 1 << 17;
/// Pages that a device may fail to give before the search ends: each can take seconds.
const LOST_PAGES_MAX: usize = 1024;

impl RepositoryState {
    /// A damaged container that was looked at before, whether all of it came or not.
    pub(crate) fn recovered(&self, id: ContainerId) -> Option<Arc<Opened>> {
        self.recovered.lock().get(id)
    }

    /// Whether it is worth opening again what was read by half because the device did not give the rest: it may do so
    /// now. Each look at a bad sector can take seconds, so there are not many.
    pub(crate) fn is_worth_another_look(&self, opened: &Opened) -> bool {
        if !matches!(opened.loss(), Some(loss) if loss.is_unreadable()) {
            return false;
        }
        self.recovered.lock().may_look_again(opened.header.id)
    }

    /// Returns what is left of the container that cannot be opened because of `why`; `None` where nothing is. The first
    /// call for a container logs a warning, unless the caller wants none.
    ///
    /// # Errors
    /// Failures of the device as a whole, and what another version made.
    pub(crate) fn recover(
        &self,
        id: ContainerId,
        why: &Error,
        warns: bool,
    ) -> Result<Option<Arc<Opened>>> {
        if why.is_not_found() {
            return Ok(None);
        }
        let turn = self.recovered.lock().turn(id);
        let _turn = turn.lock();
        {
            let mut recovered = self.recovered.lock();
            if let Some(opened) = recovered.get(id) {
                return Ok(Some(opened));
            }
            if recovered.is_hopeless(id) {
                return Ok(None);
            }
        }
        let opened = open_what_is_left(self, id, why)?;
        let mut recovered = self.recovered.lock();
        let Some(opened) = opened else {
            recovered.give_up(id);
            return Ok(None);
        };
        if recovered.is_untold(id) && warns {
            let chunks_are = chunks_are(opened.table.chunks.len());
            tracing::warn!(
                "{why}: {chunks_are} known to be in it all the same, and used where that can be read; run `onefold repair`"
            );
        }
        Ok(Some(recovered.keep(id, opened)))
    }

    /// Forgets the findings about a container that is gone.
    pub(crate) fn forget_recovered(&self, id: ContainerId) {
        self.recovered.lock().forget(id);
    }
}

fn open_what_is_left(
    shared: &RepositoryState,
    id: ContainerId,
    why: &Error,
) -> Result<Option<Opened>> {
    let Some(mut salvage) = Salvage::begin(shared, id)? else {
        return Ok(None);
    };
    if let Some(opened) = with_its_table(shared, &salvage)? {
        return Ok(Some(opened));
    }
    let fingerprinter = shared.keys.fingerprinter();
    let mut table = ContainerTable::default();
    salvage.blocks(LOST_PAGES_MAX, &mut |block| {
        let found = fingerprinter.fingerprints(block.chunks());
        let lines: Vec<_> = found.into_iter().zip(block.lens.iter().copied()).collect();
        table.push_found_block(block.start, block.number, block.stored_len, &lines);
        Ok(table.chunks.len() < CHUNKS_MAX)
    })?;
    if table.chunks.is_empty() {
        return Ok(None);
    }
    let header = salvage.header().clone();
    let sealer = shared.keys.container_sealer(&header.salt);
    Ok(Some(Opened::new(header, table, sealer).partly(why)))
}

/// The container by its own table, where footer and seal bear that out: of the salts of header and footer the one that
/// opens it.
fn with_its_table(shared: &RepositoryState, salvage: &Salvage<'_>) -> Result<Option<Opened>> {
    let Some(footer) = salvage.footer() else {
        return Ok(None);
    };
    let object = container::object_name(footer.header.id);
    let mut sealed = vec![0; footer.table_len as usize];
    match shared
        .objects
        .get_range(&object, footer.table_offset, &mut sealed)
    {
        Err(error) if error.is_loss() => return Ok(None),
        other => other?,
    }
    for header in salvage.headers() {
        let sealer = shared.keys.container_sealer(&header.salt);
        if let Ok(table) = footer.open_table(sealed.clone(), &sealer)
            && check_layout(&table, footer.table_offset, &object).is_ok()
        {
            return Ok(Some(Opened::new(header.clone(), table, sealer)));
        }
    }
    Ok(None)
}
