//! A log that the prefetch cache has room for: who has read a part of it reads the rest, and asks runs for nothing that
//! it knows.

use super::super::view::{OpenLog, View};
use super::{Asking, Lookups, settle_again};
use crate::{IndexStats, Result};

use super::Answer;

/// So much of the log is read piece by piece before all of it is: one of so many parts.
const PIECEMEAL: u64 = 8;

impl Lookups {
    /// Takes the whole log into the cache, once, where that has room for it and a stream has read enough of it that it
    /// will come to the rest.
    pub(super) fn take_in(
        &mut self,
        view: &View,
        asking: &mut Vec<Asking<'_>>,
        found: &mut [Option<Answer>],
        stats: &mut IndexStats,
    ) -> Result<()> {
        let log_pages = view.log_pages();
        if self.whole
            || self.pages_read * PIECEMEAL < log_pages
            || (self.cache.capacity() as u64) < log_pages
        {
            return Ok(());
        }
        self.whole = true;
        for log in &view.logs {
            self.take_in_log(log, stats)?;
        }
        self.ask_cache(view, asking);
        settle_again(asking, found);
        Ok(())
    }

    fn take_in_log(&mut self, log: &OpenLog, stats: &mut IndexStats) -> Result<()> {
        let mut page = log.entry.first_page;
        let last = log.entry.end_page();
        while page < last {
            let end = last.min(page.saturating_add(self.pages_max as u32));
            stats.lookup_reads += 1;
            self.read_spans(&[(log, page, end)])?;
            page = end;
        }
        Ok(())
    }
}
