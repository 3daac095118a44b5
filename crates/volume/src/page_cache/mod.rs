//! Pages of a metadata device behind a cache that writes back: what `dtb` and `cbt` read and write through, in place of
//! the report's *dm-bufio* (§3.6.2).
//!
//! Invariants:
//! 1. No more pages are in RAM than the budget says.
//! 2. When a change would make more than 75 % of them dirty, all dirty pages are written first. Where there is no room
//!    for another page, the one that was used longest ago goes, alone. There is no timer.
//! 3. A page is checked when it is read, and sealed when it is written, as its format says.

mod recent;

use std::collections::HashMap;
use std::sync::Arc;

use onefold_io::{Disk, PageBuffer, WriteAt};

use self::recent::RecentFrames;
use crate::Result;

/// Bytes of a page: dm-bufio's unit (report §3.6.2).
pub(crate) const PAGE_BYTES: usize = 4096;
/// A cache has at least this many pages.
pub(crate) const PAGES_MIN: usize = 16;
/// All dirty pages are written when more than this part of the cache would be dirty, in percent (report §3.6.2).
const DIRTY_PERCENT_MAX: usize = 75;
/// Pages that are written together.
const WRITES_AT_ONCE: usize = 256;

/// Checks and checksums of pages on their way from and to the device.
pub(crate) trait PageFormat {
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged): these bytes are not what was written there.
    fn check(&self, page: u64, bytes: &[u8]) -> Result<()>;

    /// Puts checksums in place.
    fn seal(&self, page: u64, bytes: &mut [u8]);
}

/// Pages of a disk by their number, of which some are in RAM.
pub(crate) struct PageCache<F> {
    disk: Arc<dyn Disk>,
    format: F,
    frames_max: usize,
    frames: Vec<CachedPage>,
    at: HashMap<u64, usize>,
    recent: RecentFrames,
    dirty: usize,
    reads: u64,
    writes: u64,
}

/// A page in RAM.
struct CachedPage {
    page: u64,
    bytes: PageBuffer,
    is_dirty: bool,
}

impl<F: PageFormat> PageCache<F> {
    /// A cache of at most `bytes`, and of 16 pages at least.
    pub fn new(disk: Arc<dyn Disk>, format: F, bytes: u64) -> Self {
        let pages = usize::try_from(bytes / PAGE_BYTES as u64).unwrap_or(usize::MAX);
        Self {
            disk,
            format,
            frames_max: pages.max(PAGES_MIN),
            frames: Vec::new(),
            at: HashMap::new(),
            recent: RecentFrames::default(),
            dirty: 0,
            reads: 0,
            writes: 0,
        }
    }

    /// The device, for what does not go through the cache.
    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    pub fn format_mut(&mut self) -> &mut F {
        &mut self.format
    }

    /// Pages read from the device.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Pages written to the device.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Bytes of pages in RAM.
    pub fn ram_bytes(&self) -> u64 {
        (self.frames.len() * PAGE_BYTES) as u64
    }

    /// # Errors
    /// The device failed, or the page is damaged.
    pub fn read(&mut self, page: u64) -> Result<&[u8]> {
        let frame = self.load(page)?;
        Ok(&self.frames[frame].bytes)
    }

    /// A page that will be changed.
    ///
    /// # Errors
    /// The device failed, or the page is damaged.
    pub fn change(&mut self, page: u64) -> Result<&mut [u8]> {
        let frame = self.load(page)?;
        self.mark(frame)?;
        Ok(&mut self.frames[frame].bytes)
    }

    /// A page whose old content nobody needs: zeros.
    ///
    /// # Errors
    /// The device failed.
    pub fn make(&mut self, page: u64) -> Result<&mut [u8]> {
        let frame = match self.at.get(&page) {
            Some(frame) => *frame,
            None => self.room_for(page)?,
        };
        self.recent.touch(frame);
        self.frames[frame].bytes.fill(0);
        self.mark(frame)?;
        Ok(&mut self.frames[frame].bytes)
    }

    /// Drops a page that nothing names any more, unwritten.
    pub fn forget(&mut self, page: u64) {
        if let Some(frame) = self.at.remove(&page) {
            let gone = &mut self.frames[frame];
            self.dirty -= usize::from(std::mem::take(&mut gone.is_dirty));
            gone.page = u64::MAX;
            self.recent.put_last(frame);
        }
    }

    /// Writes all dirty pages, in the order of their places.
    ///
    /// # Errors
    /// The device failed: any of them may be written or not, and they stay dirty.
    pub fn write_back(&mut self) -> Result<()> {
        let is_dirty = |frame: &usize| self.frames[*frame].is_dirty;
        let mut all: Vec<usize> = (0..self.frames.len()).filter(is_dirty).collect();
        all.sort_unstable_by_key(|frame| self.frames[*frame].page);
        for some in all.chunks(WRITES_AT_ONCE) {
            self.write(some)?;
        }
        Ok(())
    }

    fn write(&mut self, frames: &[usize]) -> Result<()> {
        for frame in frames {
            let frame = &mut self.frames[*frame];
            self.format.seal(frame.page, &mut frame.bytes);
        }
        let writes: Vec<_> = frames
            .iter()
            .map(|frame| WriteAt {
                offset: self.frames[*frame].page * PAGE_BYTES as u64,
                data: &self.frames[*frame].bytes,
            })
            .collect();
        self.writes += writes.len() as u64;
        self.disk.write_many_at(&writes)?;
        for frame in frames {
            self.frames[*frame].is_dirty = false;
        }
        self.dirty -= frames.len();
        Ok(())
    }

    /// Marks a page as dirty. Its content is still the old one, so it may be written with the others before.
    fn mark(&mut self, frame: usize) -> Result<()> {
        if self.frames[frame].is_dirty {
            return Ok(());
        }
        if (self.dirty + 1) * 100 > self.frames_max * DIRTY_PERCENT_MAX {
            self.write_back()?;
        }
        self.frames[frame].is_dirty = true;
        self.dirty += 1;
        Ok(())
    }

    fn load(&mut self, page: u64) -> Result<usize> {
        if let Some(frame) = self.at.get(&page) {
            self.recent.touch(*frame);
            return Ok(*frame);
        }
        let frame = self.room_for(page)?;
        self.reads += 1;
        let offset = page * PAGE_BYTES as u64;
        let bytes = &mut self.frames[frame].bytes;
        let read = self.disk.read_at(bytes, offset).map_err(Into::into);
        let checked = read.and_then(|()| self.format.check(page, &self.frames[frame].bytes));
        if let Err(error) = checked {
            self.forget(page);
            return Err(error);
        }
        Ok(frame)
    }

    /// A clean frame of the page's, with bytes that mean nothing.
    fn room_for(&mut self, page: u64) -> Result<usize> {
        let frame = if self.frames.len() < self.frames_max {
            self.frames.push(CachedPage {
                page: u64::MAX,
                bytes: PageBuffer::zeroed(PAGE_BYTES),
                is_dirty: false,
            });
            self.recent.add();
            self.frames.len() - 1
        } else {
            let oldest = self.recent.oldest();
            if self.frames[oldest].is_dirty {
                self.write(&[oldest])?;
            }
            self.at.remove(&self.frames[oldest].page);
            self.recent.touch(oldest);
            oldest
        };
        self.frames[frame].page = page;
        self.at.insert(page, frame);
        Ok(frame)
    }
}

#[cfg(test)]
mod tests;
