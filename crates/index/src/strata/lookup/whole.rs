//! A log that the prefetch cache has room for: who has read a part of it reads the rest, and asks runs for nothing that
//! it knows.

use super::super::view::OpenLog;
use super::{Answer, Asking, Lookup, settle_again};
use crate::Result;

/// So much of the log is read piece by piece before all of it is: one of so many parts.
const PIECEMEAL: u64 = 8;

impl Lookup<'_> {
    /// Takes the whole log into the cache, once, where that has room for it and a stream has read enough of it that it
    /// will come to the rest.
    pub(super) fn take_in(
        &mut self,
        asking: &mut Vec<Asking<'_>>,
        found: &mut [Option<Answer>],
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
