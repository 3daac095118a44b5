//! Which log pages come into the cache with a hit, and when: the metadata of the containers of a batch's keys are read
//! together.

use std::ops::Range;

use onefold_chunk::Fingerprint;
use onefold_io::ReadAt;

use super::{ChunkStash, LOG, UNMARKED};
use onefold_index::strata::FileId;
use onefold_index::strata::log::LogPage;
use onefold_index::strata::page::PAGE_BYTES;
use onefold_index::{Error, Result};

/// Pages of a container's metadata in the paper, 1023 chunks of 64 bytes: what a hit is thought to bring.
const CONTAINER_PAGES: usize = 16;
/// The most pages that a hit brings, 1 MiB: of a container that has more, those from the hit on.
const WINDOW_PAGES_MAX: u32 = 256;
/// What all cached pages were read from: there is one log.
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

    /// Whether nothing is to be read for a hit on `page`. Where keys are sampled a container may stand on another page,
    /// too, whose keys have no slots of their own.
    fn is_here(&self, page: u32) -> bool {
        match self.options.sample {
            0 | 1 => self.cache.holds(page),
            _ => self.window_of(page).all(|page| self.cache.holds(page)),
        }
    }

    /// The pages that come with `page`: the metadata of the containers that it has keys of, as far as half of the cache
    /// goes.
    fn window_of(&self, page: u32) -> Range<u32> {
        let pages = self.containers.pages_of(page);
        let most = (self.cache.capacity() as u32 / 2).clamp(1, WINDOW_PAGES_MAX);
        match pages.len() as u32 <= most {
            true => pages,
            false => page..pages.end.min(page + most),
        }
    }

    /// Brings the windows of `pages`, which are not in the cache, in one batch of reads.
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
            // the one that was asked for last, so that a small cache still has it
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

    /// Brings what the table says of `keys` into the cache, as far as half of it goes, in one batch of reads. Where
    /// that is less than two windows it would push out what the first of the keys need: they are then read one by one.
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
