//! Pages set aside: a write is acknowledged only when each of its chunks is sure to find a page, so that a full device
//! is told before the acknowledgement. And what collection owes: garbage is collected before it is needed, a little
//! with each write, so that no write waits for all of it.

use crate::FreeSpace;

/// Below this share of free pages each written page makes the collector free some: percent.
const PACED_PERCENT: u64 = 20;
/// Below this share garbage is collected while nothing else is to be done: percent.
const IDLE_PERCENT: u64 = 30;
/// Owed pages are collected in steps of the device's pages divided by this number.
const STEP_SHARE: u64 = 256;
/// Bounds of a step, in pages: a step reads the map, and holds up the writes that wait for it.
const STEP_PAGES_MIN: u64 = 64;
const STEP_PAGES_MAX: u64 = 16_384;
/// After a collection that freed nothing, this many more pages of garbage make another worth it.
const MORE_GARBAGE: u64 = 16;

/// Pages of the data device as the engine told last, and how many of them are promised to staged chunks.
#[derive(Default, Debug)]
pub(super) struct PagePromises {
    space: FreeSpace,
    claimed: u64,
    /// Pages that the collector is to free for what was written, in hundredths.
    owed_hundredths: u64,
    /// Garbage that the last collection left because it is not worth it.
    worthless: u64,
    /// Collections in a row that freed nothing: what the engine takes for garbage may be an upper bound.
    fruitless: u32,
}

impl PagePromises {
    /// Notes the engine's pages as it tells them now.
    pub fn update(&mut self, space: FreeSpace) {
        let used = self.space.free.saturating_sub(space.free);
        self.owed_hundredths += used * pace_hundredths(&space);
        self.worthless = self.worthless.min(space.reclaimable);
        self.space = space;
    }

    /// Returns the engine's pages as it told them last.
    pub fn space(&self) -> FreeSpace {
        self.space
    }

    /// Sets `count` pages aside, all or none. Metadata of a file system may use the reserve.
    #[must_use]
    pub fn claim(&mut self, count: u64, is_metadata: bool) -> bool {
        let claimable = if is_metadata {
            self.space.claimable_metadata
        } else {
            self.space.claimable_data
        };
        let is_there = claimable >= self.claimed + count;
        if is_there {
            self.claimed += count;
        }
        is_there
    }

    /// Gives `count` pages back: the engine has used them, or they are not needed.
    pub fn give_back(&mut self, count: u64) {
        self.claimed -= count;
    }

    /// Whether a collection would find something: there is garbage besides what the last one left. After each one that
    /// freed nothing it takes twice as much, so that writes that are refused do not have the map read again and again;
    /// metadata of file systems is worth it all the same.
    pub fn has_garbage(&self, is_metadata: bool) -> bool {
        let more = if is_metadata {
            MORE_GARBAGE
        } else {
            MORE_GARBAGE << self.fruitless.saturating_sub(1).min(10)
        };
        match self.worthless {
            0 => self.space.reclaimable > 0,
            worthless => self.space.reclaimable > worthless + more,
        }
    }

    /// Something was deleted: the next collection may find more than the last ones did.
    pub fn news(&mut self) {
        self.fruitless = self.fruitless.min(1);
    }

    /// Whether the collector is behind what was written.
    pub fn owes_collection(&self) -> bool {
        // After fruitless ones it is tried less often.
        let more = (self.step_pages() << self.fruitless.min(10)).min(self.space.total / 16);
        let is_more = self.fruitless == 0 || self.space.reclaimable > self.worthless + more;
        self.owed_hundredths >= self.step_pages() * 100 && self.has_garbage(true) && is_more
    }

    /// Whether garbage is worth collecting while nothing else is to be done: pages get few, or there is as much of it as
    /// of what lives, and a host can have its room back.
    pub fn wants_idle_collection(&self) -> bool {
        let garbage = self.space.reclaimable - self.worthless;
        let is_worth_it = self.open_percent() < IDLE_PERCENT || garbage >= self.space.live();
        is_worth_it && garbage >= self.step_pages()
    }

    /// A collection was made, with which so many pages became free.
    pub fn collected(&mut self, space: FreeSpace) {
        let freed = space.free.saturating_sub(self.space.free);
        self.owed_hundredths = self.owed_hundredths.saturating_sub(freed * 100);
        self.space = space;
        self.worthless = match freed {
            0 => space.reclaimable,
            _ => 0,
        };
        self.fruitless = match freed {
            0 => self.fruitless + 1,
            _ => 0,
        };
        if freed == 0 {
            self.owed_hundredths = 0;
        }
    }

    fn step_pages(&self) -> u64 {
        (self.space.total / STEP_SHARE).clamp(STEP_PAGES_MIN, STEP_PAGES_MAX)
    }

    fn open_percent(&self) -> u64 {
        let open = self.space.free.saturating_sub(self.space.reserved);
        open * 100 / self.space.usable().max(1)
    }
}

/// Pages to be freed for each page that is written, in hundredths: none while enough is free, two where nothing is. So
/// there is no cliff, and garbage is left to gather: three quarters of what is not live may stay garbage, since zones
/// with more of it cost less to empty.
fn pace_hundredths(space: &FreeSpace) -> u64 {
    let open = space.free.saturating_sub(space.reserved);
    let wanted = (space.usable() * PACED_PERCENT / 100).min(space.left() / 4);
    match wanted {
        0 => 0,
        wanted => wanted.saturating_sub(open) * 200 / wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(free: u64, reclaimable: u64) -> FreeSpace {
        FreeSpace {
            total: 10_000,
            free,
            reclaimable,
            claimable_data: free,
            claimable_metadata: free,
            ..FreeSpace::default()
        }
    }

    #[test]
    fn the_collector_is_paced_below_a_fifth_and_never_where_a_quarter_of_the_rest_is_free() {
        for (free, reclaimable, hundredths) in [
            (5000, 4000, 0),
            (2000, 5000, 0),
            (750, 5250, 100),
            (0, 5000, 200),
            (1000, 0, 0),
            (250, 750, 0),
            (125, 875, 100),
        ] {
            assert_eq!(
                pace_hundredths(&space(free, reclaimable)),
                hundredths,
                "{free} free, {reclaimable} garbage"
            );
        }
    }

    /// Writes that each leave a page of garbage never find the device without a free page.
    #[test]
    fn steady_overwriting_settles_with_pages_free() {
        for live in [3000, 7000, 8500, 9500] {
            let mut pages = PagePromises::default();
            let mut free = 10_000 - live;
            let mut garbage = 0;
            pages.update(space(free, garbage));
            let mut least = free;
            for _ in 0..50_000 {
                free -= 10;
                garbage += 10;
                pages.update(space(free, garbage));
                while pages.owes_collection() {
                    let freed = garbage.min(100);
                    free += freed;
                    garbage -= freed;
                    pages.collected(space(free, garbage));
                }
                least = least.min(free);
            }
            assert!(least >= (10_000 - live) / 16, "{live} live: {least} free");
            assert!(
                garbage >= (10_000 - live) / 2,
                "{live} live: {garbage} are left to gather"
            );
        }
    }

    #[test]
    fn a_collection_that_freed_nothing_is_not_repeated_until_there_is_more_garbage() {
        let mut pages = PagePromises::default();
        pages.update(space(0, 500));
        assert!(pages.has_garbage(false));
        pages.collected(space(0, 400));
        assert!(!pages.has_garbage(false));
        pages.update(space(0, 410));
        assert!(!pages.has_garbage(false));
        pages.update(space(0, 420));
        assert!(pages.has_garbage(false));
        pages.update(space(0, 3));
        assert!(!pages.has_garbage(false), "fewer than were left");
    }
}
