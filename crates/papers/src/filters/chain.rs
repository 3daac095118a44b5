//! `flash-chain`: a chain of Bloom filters of one size; the newest in RAM, full ones on flash, each written once
//! (dissertation §3.2.2).
//!
//! The chain is best for inserts, since every page is written once and in order; a query of an absent key reads a page
//! of every filter.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::{Dir, Disk, ReadAt};

use super::page_shape::{Full, PAGE_BYTES, PageShape, all_set, page_of, set};
use super::saved::{self, Saved, put_checksum, put_counts, put_pages, put_shape};
use onefold_index::{Filter, Result};

/// The filter `flash-chain`: Bloom filters of one size, the newest in RAM, full ones on flash.
pub struct Chain {
    disk: Arc<dyn Disk>,
    shape: PageShape,
    pages: u32,
    active: Vec<u8>,
    keys: Vec<u32>,
    /// Number of keys in the filter in RAM.
    keys_in_all: u64,
    /// Number of filters on flash.
    full: u64,
    closes_when: Full,
}

impl Chain {
    /// A chain of filters of `pages` pages of `shape`, one in RAM, the others on `disk`, which is empty.
    pub fn new(disk: Arc<dyn Disk>, pages: u32, shape: PageShape) -> Chain {
        let active = vec![0; pages as usize * PAGE_BYTES];
        Chain {
            disk,
            shape,
            pages,
            active,
            keys: vec![0; pages as usize],
            keys_in_all: 0,
            full: 0,
            closes_when: Full::FullestPage,
        }
    }

    /// This chain with another rule for closing filters.
    pub fn closing_when(self, full: Full) -> Chain {
        Chain {
            closes_when: full,
            ..self
        }
    }

    /// The number of filters, including that in RAM.
    pub fn filters(&self) -> u64 {
        self.full + 1
    }

    /// Saves the filter in RAM, and the facts about those on flash, as file `name` of `dir`.
    ///
    /// # Errors
    /// [`Error::Io`](onefold_index::Error::Io), or [`Error::Damaged`](onefold_index::Error::Damaged) where written
    /// pages are missing; the name then belongs to the old content or to the whole new one.
    pub fn save(&mut self, dir: &dyn Dir, name: &str) -> Result<()> {
        self.disk.sync()?;
        let mut body = Vec::new();
        put_shape(&mut body, self.shape);
        put_counts(&mut body, &self.keys);
        put_pages(&mut body, &self.active);
        put_checksum(&mut body, &*self.disk, self.full * u64::from(self.pages))?;
        saved::save(dir, name, Saved::Chain, &body)
    }

    /// Loads the chain that was saved as file `name` of `dir` and has its full filters on `disk`.
    ///
    /// # Errors
    /// [`Error::Damaged`](onefold_index::Error::Damaged) where the file is not whole or holds another kind of filter,
    /// or the pages on `disk` have changed; [`Error::Io`](onefold_index::Error::Io), also where there is no file.
    pub fn load(disk: Arc<dyn Disk>, dir: &dyn Dir, name: &str) -> Result<Chain> {
        saved::load(dir, name, Saved::Chain, |reader| {
            let shape = saved::shape(reader)?;
            let keys = saved::counts(reader)?;
            let active = saved::pages(reader, keys.len())?;
            let on_flash = saved::check_pages(reader, &*disk)?;
            let pages = keys.len() as u64;
            if pages == 0 || !on_flash.is_multiple_of(pages) {
                return Err(reader
                    .damaged(format!("{on_flash} pages on flash, {pages} a filter"))
                    .into());
            }
            Ok(Chain {
                disk,
                shape,
                pages: pages as u32,
                active,
                keys_in_all: keys.iter().map(|keys| u64::from(*keys)).sum(),
                keys,
                full: on_flash / pages,
                closes_when: Full::FullestPage,
            })
        })
    }

    fn close_active(&mut self) -> Result<()> {
        self.disk
            .write_at(&self.active, self.full * self.active.len() as u64)?;
        self.full += 1;
        self.active.fill(0);
        self.keys.fill(0);
        self.keys_in_all = 0;
        Ok(())
    }

    fn in_active(&self, key: &Fingerprint) -> bool {
        let page = page_of(key, self.pages) as usize;
        all_set(
            &self.active[page * PAGE_BYTES..][..PAGE_BYTES],
            self.shape.bits(key),
        )
    }
}

impl Filter for Chain {
    fn may_contain(&mut self, keys: &[Fingerprint], present: &mut [bool]) -> Result<()> {
        for (key, present) in keys.iter().zip(present.iter_mut()) {
            *present = self.in_active(key);
        }
        // newest first; a key that was found is not searched further
        for filter in (0..self.full).rev() {
            let asked: Vec<usize> = (0..keys.len()).filter(|i| !present[*i]).collect();
            let mut buf = vec![0; asked.len() * PAGE_BYTES];
            let mut reads: Vec<ReadAt<'_>> = Vec::with_capacity(asked.len());
            for (i, buf) in asked.iter().zip(buf.chunks_exact_mut(PAGE_BYTES)) {
                let page =
                    filter * u64::from(self.pages) + u64::from(page_of(&keys[*i], self.pages));
                reads.push(ReadAt {
                    offset: page * PAGE_BYTES as u64,
                    buf,
                });
            }
            self.disk.read_many_at(&mut reads)?;
            for (i, page) in asked.iter().zip(buf.chunks_exact(PAGE_BYTES)) {
                present[*i] = all_set(page, self.shape.bits(&keys[*i]));
            }
        }
        Ok(())
    }

    fn insert(&mut self, keys: &[Fingerprint]) -> Result<()> {
        for key in keys {
            let page = page_of(key, self.pages) as usize;
            let is_full = match self.closes_when {
                Full::FullestPage => self.keys[page] >= self.shape.keys,
                Full::MeanPage => {
                    self.keys_in_all >= u64::from(self.pages) * u64::from(self.shape.keys)
                }
            };
            if is_full {
                self.close_active()?;
            }
            self.keys[page] += 1;
            self.keys_in_all += 1;
            set(
                &mut self.active[page * PAGE_BYTES..][..PAGE_BYTES],
                self.shape.bits(key),
            );
        }
        Ok(())
    }

    fn ram_bytes(&self) -> usize {
        self.active.capacity() + self.keys.capacity() * 4
    }
}
