//! The translation layer: the place of each page, and the cost of an update in place behind it.
//!
//! Invariant: a page has one place or none; one clean block is always left; the pages of a block that is emptied are
//! moved before anything else is written.

use std::collections::{BTreeSet, HashMap};

use super::queue::ChannelQueue;
use super::{FlashCounts, FlashModel};
use crate::modelled::Account;

/// A page of a disk: the disk's number and the page's.
pub(super) type Logical = (u64, u64);

/// The account of a flash: the place of each page, and the figures.
pub struct Flash {
    pub(super) model: FlashModel,
    pub(super) counts: FlashCounts,
    pub(super) places: HashMap<Logical, u32>,
    pages: Vec<Option<Logical>>,
    valid: Vec<u32>,
    clean: Vec<u32>,
    /// Full blocks, as pairs (valid pages, block).
    full: BTreeSet<(u32, u32)>,
    open: u32,
    /// Number of pages of the open block that are written.
    used: u32,
}

impl Flash {
    /// Reads the pages of one call.
    pub(super) fn read_pages(&mut self, pages: impl Iterator<Item = Logical>) {
        let mut queue = ChannelQueue::new(&self.model);
        let mut before = None;
        for page in pages {
            if before.is_none_or(|(disk, number)| (disk, number + 1) != page) {
                self.counts.modelled_us += self.model.read_command_us;
            }
            before = Some(page);
            self.counts.page_reads += 1;
            queue.put(self.channel_of(page), self.model.read_us);
        }
        self.counts.modelled_us += queue.end();
    }

    pub(super) fn channel_of(&self, page: Logical) -> u32 {
        // a page that was never written has a place, too
        let place = self.places.get(&page).copied();
        let (place, channels) = (place.unwrap_or(page.1 as u32), self.model.channels.max(1));
        // each stripe of neighbours begins at another channel, so that no stride of a caller's writes uses a single
        // channel
        let stripe = (place / channels).wrapping_mul(0x9e37_79b9) >> 16;
        (place % channels + stripe) % channels
    }

    /// The part of the device that is busy when one channel is.
    fn part(&self) -> f64 {
        1.0 / f64::from(self.model.channels.max(1))
    }

    /// Writes a page to a new place; `false`: the flash is full.
    pub(super) fn write(&mut self, page: Logical) -> bool {
        if !self.places.contains_key(&page)
            && self.places.len() >= self.model.capacity_pages as usize
        {
            return false;
        }
        self.forget(page);
        self.append(page);
        while self.clean.is_empty() {
            self.collect();
        }
        true
    }

    fn append(&mut self, page: Logical) {
        let place = self.open * self.model.block_pages + self.used;
        self.pages[place as usize] = Some(page);
        self.places.insert(page, place);
        self.valid[self.open as usize] += 1;
        self.used += 1;
        self.counts.page_writes += 1;
        if self.used == self.model.block_pages {
            self.full
                .insert((self.valid[self.open as usize], self.open));
            self.open = self
                .clean
                .pop()
                .expect("a clean block is kept at all times");
            self.used = 0;
        }
    }

    pub(super) fn forget(&mut self, page: Logical) {
        let Some(place) = self.places.remove(&page) else {
            return;
        };
        self.pages[place as usize] = None;
        let block = place / self.model.block_pages;
        let valid = self.valid[block as usize];
        self.valid[block as usize] -= 1;
        if self.full.remove(&(valid, block)) {
            self.full.insert((valid - 1, block));
        }
    }

    /// Empties and erases the block with the fewest valid pages.
    fn collect(&mut self) {
        let (_, block) = self.full.pop_first().expect("more blocks than capacity");
        let first = block * self.model.block_pages;
        let moved: Vec<Logical> = (first..first + self.model.block_pages)
            .filter_map(|place| self.pages[place as usize].take())
            .collect();
        // erased in the account before its pages are written elsewhere: they stand in a spare buffer meanwhile
        self.valid[block as usize] = 0;
        self.clean.push(block);
        self.counts.block_erases += 1;
        let each = self.model.read_us + self.model.write_us;
        self.counts.modelled_us += (self.model.erase_us + moved.len() as f64 * each) * self.part();
        self.counts.page_reads += moved.len() as u64;
        self.counts.page_moves += moved.len() as u64;
        for page in moved {
            self.append(page);
        }
    }
}

impl Account for Flash {
    type Model = FlashModel;
    type Counts = FlashCounts;

    fn new(model: FlashModel) -> Self {
        let blocks = model.capacity_pages.div_ceil(model.block_pages) + model.spare_blocks.max(2);
        Self {
            model,
            counts: FlashCounts::default(),
            places: HashMap::new(),
            pages: vec![None; (blocks * model.block_pages) as usize],
            valid: vec![0; blocks as usize],
            clean: (1..blocks).rev().collect(),
            full: BTreeSet::new(),
            open: 0,
            used: 0,
        }
    }

    fn counts(&self) -> FlashCounts {
        self.counts
    }

    fn drop_disk(&mut self, number: u64) {
        let pages: Vec<Logical> = self
            .places
            .keys()
            .filter(|(disk, _)| *disk == number)
            .copied()
            .collect();
        pages.into_iter().for_each(|page| self.forget(page));
    }
}
