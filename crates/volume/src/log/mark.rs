//! Marking: which chunks live, found by reading the maps once. There are no counts.
//!
//! Bits for the pages of all zones of a large device would take more RAM than the rest of the engine, so a mark tracks
//! some thousand zones; the others keep the count of the last mark that tracked them.
//!
//! A packed page lives while one of its chunks does.

use std::collections::{HashMap, HashSet};

use parking_lot::RwLock;

use super::layout::{Address, Layout, WHOLE, ZoneId};
use super::map::extent::Extent;
use super::map::merge::Merge;
use super::zones::Zones;
use crate::Result;

/// RAM of the bits of tracked zones, in bytes. Tests track a few zones at a time.
const TRACKED_BYTES: usize = if cfg!(test) { 1 << 10 } else { 2 << 20 };

/// How many zones a mark tracks at most.
pub fn tracked_max(layout: &Layout) -> usize {
    TRACKED_BYTES / (words(layout) * 8 + 64)
}

/// RAM of the bits of all zones that a mark tracks.
pub fn mark_bytes(layout: &Layout) -> u64 {
    let tracked = tracked_max(layout).min(layout.zones as usize);
    (tracked * (words(layout) * 8 + 64)) as u64
}

/// Result of a mark.
pub struct Marks {
    layout: Layout,
    /// Bits of each tracked zone: one for each page at which a mapped chunk begins.
    bits: HashMap<ZoneId, Vec<u64>>,
    /// Zones that are gone and that maps name: their relocations are needed.
    pub named: HashSet<ZoneId>,
    /// LBNs that are mapped.
    pub mapped: u64,
}

impl Marks {
    /// Nothing is marked yet.
    pub fn new(layout: &Layout, tracked: impl IntoIterator<Item = ZoneId>) -> Self {
        let none = |zone| (zone, vec![0; words(layout)]);
        Self {
            layout: *layout,
            bits: tracked.into_iter().map(none).collect(),
            named: HashSet::new(),
            mapped: 0,
        }
    }

    /// Marks all chunks of a part that so many heads share. A chunk that a newer level hides is not marked: nobody
    /// reads it again.
    ///
    /// # Errors
    /// A run cannot be read.
    pub fn add(&mut self, mut map: Merge, heads: u64, zones: &RwLock<Zones>) -> Result<()> {
        while let Some(extent) = map.next()? {
            self.mapped += extent.mapped() * heads;
            if let Some(target) = extent.target {
                self.mark(&extent, target, zones);
            }
        }
        Ok(())
    }

    fn mark(&mut self, extent: &Extent, target: Address, zones: &RwLock<Zones>) {
        let chunk_pages = self.layout.chunk_pages;
        if let Some(bits) = self.bits.get_mut(&target.zone) {
            let pages = (target.page..).step_by(chunk_pages as usize);
            let count = if target.slot == WHOLE {
                extent.chunks
            } else {
                1
            };
            pages.take(count as usize).for_each(|page| set(bits, page));
            return;
        }
        let zones = zones.read();
        if zones.get(target.zone).is_some() {
            return;
        }
        self.named.insert(target.zone);
        for ahead in 0..extent.chunks {
            let old = extent.target_at(ahead, chunk_pages);
            let new = old.and_then(|old| zones.relocations.resolve(old, chunk_pages));
            if let Some(new) = new
                && let Some(bits) = self.bits.get_mut(&new.zone)
            {
                set(bits, new.page);
            }
        }
    }

    /// Tracked zones, and the pages of their living chunks.
    pub fn live_pages(&self) -> impl Iterator<Item = (ZoneId, u64)> + '_ {
        self.bits.iter().map(|(zone, bits)| {
            let chunks: u32 = bits.iter().map(|word| word.count_ones()).sum();
            (
                *zone,
                u64::from(chunks) * u64::from(self.layout.chunk_pages),
            )
        })
    }

    /// First pages of a tracked zone's living chunks, in order.
    pub fn living(&self, zone: ZoneId) -> Vec<u16> {
        let Some(bits) = self.bits.get(&zone) else {
            return Vec::new();
        };
        let pages = 0..=(bits.len() * 64 - 1) as u16;
        let is_set = |page: &u16| bits[usize::from(*page) / 64] >> (page % 64) & 1 == 1;
        pages.filter(is_set).collect()
    }
}

fn words(layout: &Layout) -> usize {
    (layout.zone_pages as usize).div_ceil(64)
}

fn set(bits: &mut [u64], page: u32) {
    bits[page as usize / 64] |= 1 << (page % 64);
}
