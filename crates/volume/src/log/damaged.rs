//! Chunks that are known to be damaged: no hit names them any more, so that the next equal write stores a good copy.
//!
//! Damage is a page's: what shares a packed page is damaged together. The list is in RAM alone. After an opening a read or a check finds the damage again.

use std::collections::HashSet;

use parking_lot::RwLock;

use super::layout::Address;

/// More damaged chunks than this are not kept in mind: a device with as many has to be replaced.
const CHUNKS_MAX: usize = 1 << 16;

/// Addresses of damaged chunks. An id of a zone is given once, so an address that is gone does no harm.
#[derive(Default)]
pub struct DamagedChunks(RwLock<HashSet<Address>>);

impl DamagedChunks {
    /// Notes a chunk whose bytes or checks are not what was written.
    pub fn note(&self, address: Address) {
        let mut all = self.0.write();
        if all.len() < CHUNKS_MAX {
            all.insert(address.of_page());
        }
    }

    /// Whether the chunk is known to be damaged.
    pub fn has(&self, address: Address) -> bool {
        self.0.read().contains(&address.of_page())
    }

    /// Number of known damaged chunks; those of a packed page count once.
    pub fn len(&self) -> usize {
        self.0.read().len()
    }
}
