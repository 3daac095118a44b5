//! The log pages that come into the cache with a hit: the metadata of the containers of a batch's keys is read
//! together.

use std::ops::Range;

use onefold_chunk::Fingerprint;
use onefold_io::ReadAt;

use super::{ChunkStash, LOG, UNMARKED};
use onefold_index::strata::FileId;
use onefold_index::strata::log::LogPage;
use onefold_index::strata::page::PAGE_BYTES;
use onefold_index::{Error, Result};

/// Pages of a container's metadata in the paper, 1023 chunks of 64 bytes: the usual number that a hit brings.
const CONTAINER_PAGES: usize = 16;
/// Largest number of pages that a hit brings, 1 MiB: for a larger container, those from the hit on.
const WINDOW_PAGES_MAX: u32 = 256;
/// The file of all cached pages: there is one log.
const ITS_FILE: FileId = FileId {
    unique: 0,
    number: 0,
};

impl ChunkStash {
    /// Brings log page `page`, and those around it, into the cache.
    pub(super) fn fetch(&mut self, page: u32) -> Result<()> {
        if self.is_here(page) {
            return Ok(());
        }
        self.fetch_all(&[page])
    }

    /// Whether no read is needed for a hit on `page`. Where keys are sampled, the container may also stand on other
    /// pages, with keys that have no slots of their own.
    fn is_here(&self, page: u32) -> bool {
        match self.options.sample {
            0 | 1 => self.cache.holds(page),
            _ => self.window_of(page).all(|page| self.cache.holds(page)),
        }
    }

    /// The pages that come with `page`: the metadata of the containers with keys on it, at most half of the cache.
    fn window_of(&self, page: u32) -> Range<u32> {
        let pages = self.containers.pages_of(page);
        let most = (self.cache.capacity() as u32 / 2).clamp(1, WINDOW_PAGES_MAX);
        if pages.len() as u32 <= most {
            pages
        } else {
            page..pages.end.min(page + most)
        }
    }

    /// Brings the windows of `pages`, which are not in the cache, into it in one batch of reads.
    fn fetch_all(&mut self, pages: &[u32]) -> Result<()> {
        let mut windows: Vec<(u32, Range<u32>)> = Vec::new();
        for page in pages {
            if !windows.iter().any(|(_, window)| window.contains(page)) {
                windows.push((*page, self.window_of(*page)));
            }
        }
        let mut bytes: Vec<Vec<u8>> = windows
            .iter()
            .map(|(_, window)| vec![0; window.len() * PAGE_BYTES])
            .collect();
        let mut reads: Vec<ReadAt<'_>> = Vec::with_capacity(windows.len());
        for ((_, window), buf) in windows.iter().zip(&mut bytes) {
            let offset = u64::from(window.start) * PAGE_BYTES as u64;
            reads.push(ReadAt { offset, buf });
        }
        self.disk
            .read_many_at(&mut reads)
            .map_err(|error| Error::from_read(error, LOG))?;
        self.stats.lookup_reads += windows.len() as u64;
        for ((asked, window), bytes) in windows.into_iter().zip(&bytes) {
            let page_of = |number: u32| {
                let at = (number - window.start) as usize * PAGE_BYTES;
                &bytes[at..at + PAGE_BYTES]
            };
            // the requested page last, so that a small cache still has it
            let last = std::iter::once(asked);
            for number in window
                .clone()
                .rev()
                .filter(|page| *page != asked)
                .chain(last)
            {
                LogPage::check(page_of(number), UNMARKED, LOG, number)?;
                self.cache.insert(number, ITS_FILE, page_of(number));
            }
        }
        Ok(())
    }

    /// Brings the pages that the table names for `keys` into the cache, up to half of it, in one batch of reads. Where
    /// half is less than two windows, a batch would push out the pages of the first keys: then pages are read one by
    /// one.
    pub(super) fn prefetch(&mut self, keys: &[Fingerprint]) -> Result<()> {
        let most = self.cache.capacity() / 2 / CONTAINER_PAGES;
        if most < 2 {
            return Ok(());
        }
        let mut pages: Vec<u32> = Vec::new();
        for key in keys.iter().filter(|key| !self.buffer.contains_key(key)) {
            let newest = self
                .table
                .matches(key)
                .map(|slot| self.table.pages[slot] - 1);
            if let Some(page) = newest.max().filter(|page| !self.is_here(*page))
                && !pages
                    .iter()
                    .any(|there| self.window_of(*there).contains(&page))
            {
                pages.push(page);
                if pages.len() == most {
                    break;
                }
            }
        }
        self.fetch_all(&pages)
    }
}
