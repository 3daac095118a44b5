//! A log that fits into the prefetch cache: a stream that has read a part of it reads the rest, and runs need not be
//! asked for its keys any more.

use super::super::log_location::LogLocation;
use super::super::open_log::OpenLog;
use super::{Lookup, PendingKey, settle_again};
use crate::Result;

/// The whole log is read once one part in this many was read piece by piece.
const PIECEMEAL: u64 = 8;

impl Lookup<'_> {
    /// Reads the whole log into the cache, once, where the cache has room for it and enough of it was read that the
    /// stream will probably come to the rest.
    pub(super) fn take_in(
        &mut self,
        asking: &mut Vec<PendingKey<'_>>,
        found: &mut [Option<LogLocation>],
    ) -> Result<()> {
        let view = self.view;
        let log_pages = view.log_pages();
        let has_room = || {
            let cache = self.lookups.cache_of(view);
            cache.is_some_and(|cache| cache.capacity() as u64 >= log_pages)
        };
        let is_due = self
            .lookups
            .pages_read()
            .is_some_and(|read| read * PIECEMEAL >= log_pages);
        if !is_due || !has_room() || !self.lookups.takes_all() {
            return Ok(());
        }
        for log in &view.logs {
            self.take_in_log(log)?;
        }
        self.ask_cache(asking);
        settle_again(asking, found);
        Ok(())
    }

    fn take_in_log(&mut self, log: &OpenLog) -> Result<()> {
        let mut page = log.entry.first_page;
        let last = log.entry.end_page();
        while page < last {
            let end = last.min(page.saturating_add(self.lookups.pages_max as u32));
            self.stats.lookup_reads += 1;
            self.read_spans(&[(log, page, end)])?;
            page = end;
        }
        Ok(())
    }
}
