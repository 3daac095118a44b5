//! Garbage collection, as in a log-structured file system (§4.4.2): the oldest pages first; what is live moves to the
//! end, the rest goes.
//!
//! Always holds: a record is moved only where a lookup finds it at its page, so it is the newest of its key; a removal
//! at the head has nothing older left to hide, so it goes. Pages before the head count for nothing at once, and their
//! space is free after the checkpoint that makes the moved records durable.

use super::BloomStore;
use crate::flashlog::{At, Locate};
use onefold_index::Result;

impl BloomStore {
    /// Collects if the estimate of garbage says so, until the estimate is half of what is allowed, or all was seen
    /// once.
    pub(super) fn collect_garbage(&mut self) -> Result<()> {
        let allowed = (self.entries as f64 * self.options.garbage_max) as u64;
        if self.garbage <= allowed {
            return Ok(());
        }
        let end = self.log.range().end;
        while self.garbage > allowed / 2 && self.log.range().start < end {
            self.collect_page()?;
        }
        if self.log.range().start >= end {
            self.garbage = 0;
        }
        self.release_units()
    }

    /// Collects all pages that are there now; durable after the next checkpoint.
    ///
    /// # Errors
    /// [`Error::Io`](onefold_index::Error::Io), or [`Error::Damaged`](onefold_index::Error::Damaged) for a page that is not what was
    /// written: it and those behind it are not collected.
    pub fn collect_all(&mut self) -> Result<()> {
        let end = self.log.range().end;
        while self.log.range().start < end {
            self.collect_page()?;
        }
        self.garbage = 0;
        self.release_units()
    }

    /// Moves the live records of the first page.
    fn collect_page(&mut self) -> Result<()> {
        let page = self.log.range().start;
        let records = self.log.read(page)?;
        let live = self.live(&records, At::Page(page))?;
        self.entries = self.entries.saturating_sub(records.len() as u64);
        self.garbage = self
            .garbage
            .saturating_sub((records.len() - live.len()) as u64);
        self.log.advance_head(page + 1);
        for (key, location) in live {
            self.put(&key, Some(location.container))?;
        }
        Ok(())
    }

    /// Gives back units, but the last of a partition, that speak of collected pages alone.
    fn release_units(&mut self) -> Result<()> {
        let head = self.log.range().start;
        for number in 0..self.partitions.len() {
            while self.partitions[number].units.len() > 1 {
                let oldest = self.partitions[number].units[0];
                let slice = &self.units.read(&[self.units.page(oldest, 0)])?[0];
                if slice.pointer(slice.head().filters - 1) >= head {
                    break;
                }
                self.partitions[number].units.remove(0);
                self.units.release(oldest);
            }
        }
        Ok(())
    }
}
