//! Garbage collection, as in a log-structured file system (§4.4.2): from the oldest page on, live records move to the
//! end, and the rest is dropped.
//!
//! Invariant: a record is moved only where a lookup finds it at its page, so it is the newest of its key; a removal
//! at the head has no older record left to hide, so it is dropped. Pages before the head count for nothing at once, and
//! their space is free after the checkpoint that makes the moved records durable.

use super::{BloomStore, PendingReads};
use crate::flashlog::{Locate, RecordKind, RecordPlace, UnreadPages};
use onefold_chunk::Fingerprint;
use onefold_index::Result;

/// One written page in this many is sampled for superseded records: sampling reads a page of each unit of the chain,
/// and some pages of records.
const SAMPLED_PAGES: u32 = 4;

impl BloomStore {
    /// Samples one record of a page that is about to be written: where it supersedes an older one on flash, as many
    /// records count as garbage as the sample stands for. A key can be inserted again without a lookup (a sweep moves
    /// chunks), so only this tells the store.
    pub(super) fn sample_superseded(&mut self, number: usize) -> Result<()> {
        let (page, buffer) = (self.log.range().end, &self.partitions[number].buffer);
        if !page.is_multiple_of(SAMPLED_PAGES) || buffer.len() == 0 {
            return Ok(());
        }
        let records = buffer.len();
        let sampled = buffer.record((page / SAMPLED_PAGES) as usize % records);
        // a removal counts as garbage already, and so does the record that it removes
        if matches!(sampled.kind, RecordKind::Says(Some(_)))
            && self.is_on_flash(number, &sampled.key)?
        {
            self.garbage += records as u64 * u64::from(SAMPLED_PAGES);
        }
        Ok(())
    }

    /// Whether a page of the log has a record of the key.
    fn is_on_flash(&mut self, number: usize, key: &Fingerprint) -> Result<bool> {
        let before = self.stats;
        let mut found = [None];
        let mut search = PendingReads {
            candidates: UnreadPages {
                place: 0,
                pages: self.held_candidates(number, key),
            },
            units: self.partitions[number].units.len(),
        };
        let keys = std::slice::from_ref(key);
        let searched = self.search(keys, &mut found, vec![&mut search]);
        // this lookup is not counted: no caller asked for it
        self.stats = before;
        searched.map(|()| found[0].is_some())
    }

    /// Counts the records of `gone` retired containers as garbage, by the mean number of records in a container.
    pub(super) fn retired_garbage(&mut self, gone: u64) {
        let live = self.entries.saturating_sub(self.garbage);
        self.garbage += live / self.containers.max(1) * gone.min(self.containers);
        self.containers = self.containers.saturating_sub(gone);
    }

    /// Collects pages if the estimate of garbage exceeds the limit, until it is half of the limit, or all pages were
    /// seen once.
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

    pub(super) fn collect_all(&mut self) -> Result<()> {
        let end = self.log.range().end;
        while self.log.range().start < end {
            self.collect_page()?;
        }
        self.garbage = 0;
        self.release_units()
    }

    /// Moves the live records of the first page to the end.
    fn collect_page(&mut self) -> Result<()> {
        let page = self.log.range().start;
        let records = self.log.read(page)?;
        let live = self.live(&records, RecordPlace::Page(page))?;
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

    /// Releases units that speak of collected pages alone, except the last unit of a partition.
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
