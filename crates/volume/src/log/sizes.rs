//! Sizes of an engine's parts: RAM, and how much is written before a checkpoint.

use super::map::settle::MergeSizes;

/// How large the parts of an engine may become.
#[derive(Clone, Copy, Debug)]
pub struct LogSizes {
    /// The budget that was divided, in bytes.
    pub ram_bytes: u64,
    /// Journal that recovery may have to read, in bytes: then a checkpoint is made.
    pub checkpoint_bytes: u64,
    /// Extents of all memtables: then a checkpoint is made.
    pub memtable_entries: usize,
    /// RAM of the caches of rows and of checks, in bytes each.
    pub cache_bytes: usize,
    /// RAM of the cache of map pages, in bytes.
    pub map_page_bytes: usize,
    /// Relocations at most: then the map is rewritten.
    pub relocations_max: usize,
    /// Bytes of ballast in the folder: room for maps and the manifest where its file system is full. 0: none.
    pub ballast_bytes: u64,
    /// When levels of the map are merged.
    pub merges: MergeSizes,
}

/// RAM of an extent in each of the recent runs, in bytes: pages in RAM.
pub const RECENT_EXTENT_BYTES: u64 = 10;

impl LogSizes {
    /// RAM of recent runs' pages, in bytes: of one volume all, of many those that were written last.
    pub fn pinned_bytes_max(&self) -> u64 {
        let runs = 2 * self.merges.recent_max as u64 + 1;
        self.memtable_entries as u64 * RECENT_EXTENT_BYTES * runs
    }
}
