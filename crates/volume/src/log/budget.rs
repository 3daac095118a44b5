//! The RAM budget: one number, divided among the parts of an engine.
//!
//! The number covers what grows with the depot or is a cache: hash index, map, zones, caches. Program, staging and
//! buffers take some 48 MiB besides, and five zones 20 MiB at most once some were cleaned. By default the budget is a byte
//! for each 4 KiB of the data device, and 64 MiB at least.
//!
//! | part | share |
//! |---|---|
//! | hash index | 3/4 |
//! | memtables | 1/32, and up to twice as much for the recent runs that they become |
//! | relocations | 1/64 |
//! | zones | 65 bytes each |
//! | bits of a mark | 2 MiB at most |
//! | fences of map runs; caches of map pages, rows and checks | the rest |
//!
//! Where little is left, caches shrink first, then the index, which only costs duplicates. A budget that the zones alone
//! would use up is refused.

use super::layout::Layout;
use super::map::memtable::ENTRY_RAM_BYTES;
use super::map::settle::MergeSizes;
use super::mark::mark_bytes;
use super::sizes::{LogSizes, RECENT_EXTENT_BYTES};
use crate::{Error, Result};

/// The smallest budget that is chosen without being asked for.
const DEFAULT_MIN: u64 = 64 << 20;
/// The hash index needs this much.
const INDEX_MIN: u64 = 16 << 20;
/// Caches need this much together.
const CACHES_MIN: u64 = 3 << 19;
/// Memtables hold at least this many extents: they take as many as a group has.
const MEMTABLE_ENTRIES_MIN: u64 = 8192;
/// Relocations need room for some steps of cleaning.
const RELOCATIONS_MIN: u64 = 256;
/// RAM of a zone's entry in the tables, in bytes.
const ZONE_BYTES: u64 = 65;
/// RAM of a relocation, in bytes.
const RELOCATION_BYTES: u64 = 256;
/// Journal that recovery may have to read, in bytes.
const CHECKPOINT_BYTES: u64 = 1 << 30;

/// How much RAM each part may take.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// RAM of the hash index, in bytes.
    pub index_bytes: u64,
    /// Sizes of all else.
    pub sizes: LogSizes,
}

impl Budget {
    /// The budget of a device where nobody asks for another: a byte a page.
    pub fn default_bytes(device_bytes: u64) -> u64 {
        (device_bytes / 4096).max(DEFAULT_MIN)
    }

    /// Divides `ram_bytes`.
    ///
    /// # Errors
    /// [`Error::Invalid`]: that is too little for a device of so many zones.
    pub fn divide(ram_bytes: u64, layout: &Layout) -> Result<Self> {
        let least = fixed_bytes(layout, MEMTABLE_ENTRIES_MIN, RELOCATIONS_MIN);
        let extra = ram_bytes.checked_sub(least + CACHES_MIN + INDEX_MIN);
        let Some(extra) = extra else {
            let least = least + CACHES_MIN + INDEX_MIN;
            return Err(Error::Invalid {
                what: format!(
                    "{} MiB of RAM are too few: a depot of this size needs at least {} MiB",
                    ram_bytes >> 20,
                    least.div_ceil(1 << 20)
                ),
            });
        };
        let memtable_entries = MEMTABLE_ENTRIES_MIN + extra / 32 / ENTRY_RAM_BYTES as u64;
        let relocations = RELOCATIONS_MIN + extra / 64 / RELOCATION_BYTES;
        let fixed = fixed_bytes(layout, memtable_entries, relocations);
        let index_bytes = (ram_bytes / 4 * 3).min(ram_bytes - fixed - CACHES_MIN);
        let cache_bytes = ((ram_bytes - fixed - index_bytes) / 3) as usize;
        Ok(Self {
            index_bytes,
            sizes: LogSizes {
                ram_bytes,
                checkpoint_bytes: CHECKPOINT_BYTES,
                memtable_entries: memtable_entries as usize,
                cache_bytes,
                map_page_bytes: cache_bytes,
                relocations_max: relocations as usize,
                ballast_bytes: ballast_bytes(layout),
                merges: MergeSizes::DEPOT,
            },
        })
    }
}

/// A hundredth of the data device, within bounds: maps and the files of a checkpoint or two.
fn ballast_bytes(layout: &Layout) -> u64 {
    let device_bytes = u64::from(layout.zones) * layout.zone_bytes();
    (device_bytes / 100).clamp(4 << 20, 64 << 20)
}

/// RAM of what is no cache.
fn fixed_bytes(layout: &Layout, memtable_entries: u64, relocations: u64) -> u64 {
    let recent = RECENT_EXTENT_BYTES * (2 * MergeSizes::DEPOT.recent_max as u64 + 1);
    memtable_entries * (ENTRY_RAM_BYTES as u64 + recent)
        + relocations * RELOCATION_BYTES
        + u64::from(layout.zones) * ZONE_BYTES
        + mark_bytes(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least sum of all parts that the budget may promise.
    fn sum(budget: &Budget, layout: &Layout) -> u64 {
        let sizes = &budget.sizes;
        budget.index_bytes
            + 2 * sizes.cache_bytes as u64
            + sizes.map_page_bytes as u64
            + (sizes.memtable_entries * ENTRY_RAM_BYTES) as u64
            + u64::from(layout.zones) * ZONE_BYTES
            + sizes.relocations_max as u64 * RELOCATION_BYTES
    }

    #[test]
    fn a_byte_a_page_is_divided_for_devices_of_every_size() {
        for device_bytes in [64 << 20, 10 << 30, 256 << 30, 1 << 40, 16 << 40] {
            let layout = Layout::new(device_bytes, 4096).expect("large enough");
            let ram_bytes = Budget::default_bytes(device_bytes);
            let budget = Budget::divide(ram_bytes, &layout).expect("enough");
            assert!(sum(&budget, &layout) <= ram_bytes, "{budget:?}");
            assert!(budget.index_bytes >= ram_bytes / 3 * 2, "{budget:?}");
            assert!(budget.sizes.map_page_bytes >= 512 << 10, "{budget:?}");
        }
    }

    #[test]
    fn caches_shrink_before_the_index_and_too_little_is_refused() {
        let layout = Layout::new(1 << 40, 4096).expect("large enough");
        let divide = |mib: u64| Budget::divide(mib << 20, &layout);
        let (much, some) = (divide(256).expect("much"), divide(96).expect("enough"));
        assert!(some.sizes.cache_bytes < much.sizes.cache_bytes / 2);
        let little = divide(48).expect("little is enough");
        assert!(little.index_bytes < 36 << 20, "{little:?}");
        let refused = divide(20).expect_err("too little");
        assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
    }
}
