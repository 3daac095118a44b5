//! Pages set aside: a write is acknowledged only when each of its chunks is sure to find a page, so that a full device
//! is told before the acknowledgement.

use crate::FreeSpace;

/// Pages of the data device as the engine told last, and how many of them are promised to staged chunks.
#[derive(Default, Debug)]
pub(super) struct Pages {
    claimable_data: u64,
    claimable_metadata: u64,
    claimed: u64,
}

impl Pages {
    /// What the engine says now.
    pub fn update(&mut self, space: FreeSpace) {
        self.claimable_data = space.claimable_data;
        self.claimable_metadata = space.claimable_metadata;
    }

    /// Sets `count` pages aside, all or none. Metadata of a file system may use the reserve.
    #[must_use]
    pub fn claim(&mut self, count: u64, is_metadata: bool) -> bool {
        let claimable = match is_metadata {
            true => self.claimable_metadata,
            false => self.claimable_data,
        };
        let is_there = claimable >= self.claimed + count;
        if is_there {
            self.claimed += count;
        }
        is_there
    }

    /// So many pages are used by the engine, or not needed.
    pub fn give_back(&mut self, count: u64) {
        self.claimed -= count;
    }
}
