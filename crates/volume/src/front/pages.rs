//! Pages set aside: a write is acknowledged only when each of its chunks is sure to find a page, so that a full device
//! is told before the acknowledgement.

use crate::FreeSpace;

/// Pages of the data device as the engine told last, and how many of them are promised to staged chunks.
#[derive(Default, Debug)]
pub(super) struct Pages {
    free: u64,
    reserved: u64,
    claimed: u64,
}

impl Pages {
    /// What the engine says now.
    pub fn update(&mut self, space: FreeSpace) {
        self.free = space.free;
        self.reserved = space.reserved;
    }

    /// Sets `count` pages aside, all or none. Metadata of a file system may use the reserve.
    #[must_use]
    pub fn claim(&mut self, count: u64, is_metadata: bool) -> bool {
        let kept = match is_metadata {
            true => 0,
            false => self.reserved,
        };
        let is_there = self.free.saturating_sub(kept) >= self.claimed + count;
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
