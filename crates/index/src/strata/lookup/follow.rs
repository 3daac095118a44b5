//! Following a stream that repeats an earlier one for long: only the log is asked, which has its keys in its order.
//!
//! Where such a stream comes to the end of the cached pages, the next log pages are read, and the device is told to
//! read ahead those behind them, so that they are there in time: a device that is busy with the stream itself takes
//! milliseconds for a page, and the stream waits. Invariant: a page read for nothing costs time, never an answer.

use super::super::log_location::LogLocation;
use super::super::page::PAGE_BYTES;
use super::super::view::View;
use super::{Lookup, PendingKey, WINDOW_PAGES, settle_again};
use crate::Result;

/// Pages behind the position of a stream that are read ahead: 256 KiB, some 64 MiB of the stream.
const AHEAD_PAGES: u32 = 64;
/// Size in bytes up to which an index is read ahead as a whole: some 600,000 chunks.
const TOLD_BYTES_MAX: u64 = 32 << 20;

impl Lookup<'_> {
    /// Follows a stream from the end of the cached pages into those behind them, as long as these know its keys.
    /// `behind` is the position in the batch behind the last key that the cache knew.
    pub(super) fn go_on(
        &mut self,
        mut behind: usize,
        asking: &mut Vec<PendingKey<'_>>,
        found: &mut [Option<LogLocation>],
    ) -> Result<()> {
        let view = self.view;
        while asking.last().is_some_and(|asked| asked.place >= behind) {
            // the next page may be cached, and the stream have left it again, or it may have no records; a page two
            // further on is not the end
            let near = |page: u32| page.saturating_add(1)..page.saturating_add(3);
            let reached = self.stream.reached.take();
            let end = reached.and_then(|page| {
                let cache = self.lookups.cache_of(view)?;
                let missing = |page: u32| {
                    let log = view.log_of(page).filter(|_| !cache.holds(page));
                    log.map(|log| (page, log))
                };
                near(page).find_map(missing)
            });
            let Some((next, log)) = end else {
                break;
            };
            let end = log.entry.end_page().min(next.saturating_add(WINDOW_PAGES));
            self.stats.lookup_reads += 1;
            self.read_spans(&[(log, next, end)])?;
            tell_ahead(view, end);
            let first = asking.partition_point(|asked| asked.place < behind);
            let mut rest = asking.split_off(first);
            self.ask_cache(&mut rest);
            behind = self.reach(&rest, 1).unwrap_or(behind);
            settle_again(&mut rest, found);
            asking.append(&mut rest);
        }
        Ok(())
    }

    /// Keeps in mind the log page of the last key that the cache knows, if `in_a_row` keys in a row are known there,
    /// and returns the position in the batch behind it.
    pub(super) fn reach(&mut self, asking: &[PendingKey<'_>], in_a_row: usize) -> Option<usize> {
        let is_known = |asked: &PendingKey<'_>| asked.cached.is_some();
        let last = asking.iter().rposition(is_known)?;
        let known = asking[..=last].iter().rev();
        if known.take_while(|asked| is_known(asked)).count() >= in_a_row {
            self.stream.reached = asking[last].cached.map(|answer| answer.page);
        }
        Some(asking[last].place + 1)
    }
}

/// Tells the device to read ahead the log's pages from `page` on, which a stream comes to next.
fn tell_ahead(view: &View, page: u32) {
    let (mut page, end) = (page, page.saturating_add(AHEAD_PAGES));
    while let Some(log) = view.log_of(page).filter(|_| page < end) {
        let until = end.min(log.entry.end_page());
        let within = |page: u32| u64::from(page - log.entry.first_page) * PAGE_BYTES as u64;
        log.disk
            .will_read(within(page), within(until) - within(page));
        page = until;
    }
}

/// Tells the device to read ahead all files, if the index is small.
pub(super) fn tell_all(view: &View) {
    if view.manifest.file_bytes() <= TOLD_BYTES_MAX {
        let runs = view.runs.iter().zip(&view.manifest.runs);
        runs.for_each(|(run, entry)| run.disk.will_read(0, entry.file_bytes));
        let logs = view.logs.iter();
        logs.for_each(|log| log.disk.will_read(0, log.entry.file_bytes));
    }
}
