//! Pages of runs that were read last, in RAM.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::run_id::RunId;
use super::run_page::RunPage;
use crate::Result;
use crate::log::layout::PAGE_BYTES;

/// RAM of a cached page in bytes: the page, and its entry in the table.
pub const CACHED_PAGE_BYTES: usize = PAGE_BYTES + 160;

/// A cache by use: where it is full, the eighth that was not used for longest goes.
pub struct PageCache {
    pages: Mutex<CachedPages>,
    pages_max: AtomicUsize,
    reads: AtomicU64,
}

#[derive(Default)]
struct CachedPages {
    by_place: HashMap<(RunId, u32), (Arc<RunPage>, u64)>,
    uses: u64,
}

impl PageCache {
    /// An empty cache of some bytes; it keeps eight pages at least.
    pub fn new(bytes: usize) -> Self {
        let cache = Self {
            pages: Mutex::default(),
            pages_max: AtomicUsize::new(0),
            reads: AtomicU64::new(0),
        };
        cache.limit(bytes);
        cache
    }

    /// Keeps at most these bytes from now on.
    pub fn limit(&self, bytes: usize) {
        let pages_max = (bytes / CACHED_PAGE_BYTES).max(8);
        self.pages_max.store(pages_max, Ordering::Relaxed);
        let mut pages = self.pages.lock();
        while pages.by_place.len() > pages_max {
            pages.evict();
        }
    }

    /// The page from the cache, or from `read`, which takes it from the disk.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn get(
        &self,
        run: RunId,
        no: u32,
        read: impl FnOnce() -> Result<RunPage>,
    ) -> Result<Arc<RunPage>> {
        if let Some(page) = self.pages.lock().used(run, no) {
            return Ok(page);
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        let page = Arc::new(read()?);
        let mut pages = self.pages.lock();
        if pages.by_place.len() >= self.pages_max.load(Ordering::Relaxed) {
            pages.evict();
        }
        pages.uses += 1;
        let uses = pages.uses;
        pages.by_place.insert((run, no), (Arc::clone(&page), uses));
        Ok(page)
    }

    /// Pages that were read from the disk.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// RAM in bytes.
    pub fn ram_bytes(&self) -> u64 {
        (self.pages.lock().by_place.len() * CACHED_PAGE_BYTES) as u64
    }
}

impl CachedPages {
    fn used(&mut self, run: RunId, no: u32) -> Option<Arc<RunPage>> {
        self.uses += 1;
        let (page, used) = self.by_place.get_mut(&(run, no))?;
        *used = self.uses;
        Some(Arc::clone(page))
    }

    fn evict(&mut self) {
        let mut by_use: Vec<u64> = self.by_place.values().map(|(_, used)| *used).collect();
        let at = by_use.len() / 8;
        let (_, oldest_kept, _) = by_use.select_nth_unstable(at);
        self.by_place.retain(|_, (_, used)| *used > *oldest_kept);
    }
}
