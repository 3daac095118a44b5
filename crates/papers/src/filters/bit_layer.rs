//! One layer of page-sized Bloom filters on flash, with pending updates in RAM.
//!
//! Updates are flushed by page group, 1 MB or an erase block: one flush reads and rewrites a run of pages, and takes
//! the group with the most updates ("dirtiest first"). Invariant: a bit that was set is set on flash or in the
//! buffer. The buffer's [`Accounting`] defines how much RAM an update counts for.

use std::collections::HashMap;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::{Disk, ReadAt};

use super::buffering::{BufferOptions, Buffering, Victim};
use super::page_shape::{PAGE_BYTES, PageShape, all_set, set};
use onefold_index::Result;

/// Number of updates by which a page's list grows.
const GROWTH: usize = 16;

/// The answer of a layer for a key.
#[derive(Clone, Copy)]
pub struct Answer {
    /// Whether all bits of the key are set.
    pub is_present: bool,
    /// Whether the page was read for the answer.
    pub was_read: bool,
}

/// One layer of page-sized Bloom filters on flash, with pending updates in RAM.
pub struct BitLayer {
    disk: Arc<dyn Disk>,
    /// First page of the layer on the disk.
    first: u64,
    pages: u32,
    group_pages: u32,
    shape: PageShape,
    buffer: BufferOptions,
    updates: HashMap<u32, Vec<u16>>,
    held_bits: usize,
    /// Number of updates of each group.
    dirt: Vec<u32>,
    /// Number of keys in each page of this layer.
    keys: Vec<u32>,
    /// Sum of `keys`.
    keys_in_all: u64,
}

impl BitLayer {
    /// A layer of `pages` empty pages from page `first` of `disk`, which has zeros there or ends before.
    pub fn new(
        disk: Arc<dyn Disk>,
        first: u64,
        pages: u32,
        group_pages: u32,
        shape: PageShape,
        buffer: BufferOptions,
    ) -> Result<BitLayer> {
        let end = (first + u64::from(pages)) * PAGE_BYTES as u64;
        if disk.len()? < end {
            disk.set_len(end)?;
        }
        let groups = pages.div_ceil(group_pages) as usize;
        Ok(BitLayer {
            disk,
            first,
            pages,
            group_pages,
            shape,
            buffer,
            updates: HashMap::new(),
            held_bits: 0,
            dirt: vec![0; groups],
            keys: vec![0; pages as usize],
            keys_in_all: 0,
        })
    }

    /// The numbers of keys in the pages, for saving. Nothing is buffered after [`flush`](Self::flush).
    pub fn keys(&self) -> &[u32] {
        &self.keys
    }

    /// Restores the saved numbers of keys, one for each page.
    pub fn restore_keys(&mut self, keys: Vec<u32>) {
        debug_assert_eq!(keys.len(), self.pages as usize);
        self.keys_in_all = keys.iter().map(|keys| u64::from(*keys)).sum();
        self.keys = keys;
    }

    /// The number of pages.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// The first page behind the layer on the disk.
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.pages)
    }

    /// Whether `page` holds as many keys as its shape allows.
    pub fn page_is_full(&self, page: u32) -> bool {
        self.keys[page as usize] >= self.shape.keys
    }

    /// Whether all pages together hold as many keys as their shape allows: half of the pages then hold more.
    pub fn is_full_on_the_mean(&self) -> bool {
        self.keys_in_all >= u64::from(self.pages) * u64::from(self.shape.keys)
    }

    /// Sets the bits of `key` in `page`; flushes first where the buffer has no room.
    pub fn insert(&mut self, page: u32, key: &Fingerprint) -> Result<()> {
        self.keys[page as usize] += 1;
        self.keys_in_all += 1;
        let of_page = self.updates.entry(page).or_default();
        if of_page.is_empty() {
            self.held_bits += self.buffer.accounting.page_bits();
        }
        for bit in self.shape.bits(key) {
            if let Err(place) = of_page.binary_search(&bit) {
                if of_page.len() == of_page.capacity() {
                    // doubling would leave a third of the buffer's RAM empty
                    of_page.reserve_exact(GROWTH);
                }
                of_page.insert(place, bit);
                self.held_bits += self.buffer.accounting.update_bits;
                self.dirt[(page / self.group_pages) as usize] += 1;
            }
        }
        while self.must_flush(page) {
            match self.buffer.accounting.victim {
                Victim::Dirtiest => self.flush_dirtiest()?,
                Victim::Overflowing => self.flush_group((page / self.group_pages) as usize)?,
            }
        }
        Ok(())
    }

    /// For each of `asked` (page, key): whether its bits are all set. At most one read a key, in one batch; no read
    /// where the buffer has all bits.
    pub fn ask(&self, asked: &[(u32, &Fingerprint)]) -> Result<Vec<Answer>> {
        let mut answers: Vec<Answer> = asked
            .iter()
            .map(|(page, key)| self.is_buffered(*page, key))
            .map(|is_buffered| Answer {
                is_present: is_buffered,
                was_read: !is_buffered,
            })
            .collect();
        let unsure: Vec<usize> = (0..asked.len()).filter(|i| answers[*i].was_read).collect();
        let mut buf = vec![0; unsure.len() * PAGE_BYTES];
        let mut reads: Vec<ReadAt<'_>> = Vec::with_capacity(unsure.len());
        for (i, buf) in unsure.iter().zip(buf.chunks_exact_mut(PAGE_BYTES)) {
            reads.push(ReadAt {
                offset: self.offset(asked[*i].0),
                buf,
            });
        }
        self.disk.read_many_at(&mut reads)?;
        for (i, bytes) in unsure.iter().zip(buf.chunks_exact_mut(PAGE_BYTES)) {
            let (page, key) = asked[*i];
            set(
                bytes,
                self.updates.get(&page).into_iter().flatten().copied(),
            );
            answers[*i].is_present = all_set(bytes, self.shape.bits(key));
        }
        Ok(answers)
    }

    /// Writes all buffered updates, group by group.
    pub fn flush(&mut self) -> Result<()> {
        (0..self.dirt.len())
            .filter(|group| self.dirt[*group] > 0)
            .collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|group| self.flush_group(group))
    }

    /// RAM of the layer in bytes, counters of keys included.
    pub fn ram_bytes(&self) -> usize {
        // hashbrown: a control byte beside each slot, 8 slots in 7 used at most
        let lines = self.updates.capacity() * 8 / 7 * (size_of::<(u32, Vec<u16>)>() + 1);
        let updates: usize = self.updates.values().map(Vec::capacity).sum();
        lines + updates * 2 + self.keys.capacity() * 4 + self.dirt.capacity() * 4
    }

    fn offset(&self, page: u32) -> u64 {
        (self.first + u64::from(page)) * PAGE_BYTES as u64
    }

    /// Whether all bits of `key` are among the pending updates of `page`.
    pub fn is_buffered(&self, page: u32, key: &Fingerprint) -> bool {
        self.updates.get(&page).is_some_and(|of_page| {
            self.shape
                .bits(key)
                .all(|bit| of_page.binary_search(&bit).is_ok())
        })
    }

    fn must_flush(&self, page: u32) -> bool {
        match self.buffer.buffering {
            Buffering::Pooled => self.held_bits > self.buffer.bytes * 8,
            Buffering::Compartments => {
                let share = self.buffer.bytes * 8 / self.pages as usize;
                self.updates
                    .get(&page)
                    .is_some_and(|of_page| self.buffer.accounting.bits_of(of_page) > share)
            }
        }
    }

    fn flush_dirtiest(&mut self) -> Result<()> {
        let dirtiest = (0..self.dirt.len())
            .max_by_key(|group| self.dirt[*group])
            .expect("a group");
        self.flush_group(dirtiest)
    }

    /// Reads the pages of a group that have updates, as runs of neighbours, sets the bits, and writes the pages back.
    fn flush_group(&mut self, group: usize) -> Result<()> {
        let first = group as u32 * self.group_pages;
        let pages = self.group_pages.min(self.pages - first) as usize;
        let mut bytes = vec![0; pages * PAGE_BYTES];
        self.disk.read_at(&mut bytes, self.offset(first))?;
        for (page, bytes) in (first..).zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
            if let Some(of_page) = self.updates.get(&page) {
                set(bytes, of_page.iter().copied());
            }
        }
        self.disk.write_at(&bytes, self.offset(first))?;
        for page in first..first + pages as u32 {
            if let Some(of_page) = self.updates.remove(&page) {
                self.held_bits -= self.buffer.accounting.bits_of(&of_page);
            }
        }
        self.dirt[group] = 0;
        Ok(())
    }
}
