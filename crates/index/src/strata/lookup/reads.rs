//! The reads of a lookup: pages of runs, which prove a key, and pages of the log, which bring its neighbours into the
//! cache.

use super::super::log::Said;
use super::super::log_location::LogLocation;
use super::super::open_log::OpenLog;
use super::super::page::{PAGE_BYTES, read_pages};
use super::super::run_page::{PageAnswer, proof_of};
use super::{Lookup, PendingKey, Reference};
use crate::Result;
use onefold_chunk::Fingerprint;

/// A key and the page of a run to be asked for it.
struct PageQuestion {
    asking: usize,
    run: usize,
    page: u32,
    /// The last page of the key's partition.
    last: u32,
}

impl Lookup<'_> {
    /// Reads the run pages of all `asking`, and brings `window` log pages into the cache from each that they name, and
    /// single log pages where a record does not tell the container. Returns the newest reference of each key.
    pub(super) fn read(
        &mut self,
        asking: &[PendingKey<'_>],
        window: u32,
        found: &mut [Option<LogLocation>],
    ) -> Result<Vec<Reference>> {
        let mut references = self.read_runs(asking)?;
        // newest first; a round takes one reference of each key, so that its reads go out together
        references
            .sort_unstable_by_key(|reference| (reference.asking, std::cmp::Reverse(reference.run)));
        asking
            .iter()
            .for_each(|asked| found[asked.place] = asked.cached);
        let mut newest = Vec::new();
        while !references.is_empty() {
            let mut round: Vec<Reference> = Vec::with_capacity(references.len());
            let mut later = Vec::new();
            for reference in references.drain(..) {
                match round.last() {
                    Some(last) if last.asking == reference.asking => later.push(reference),
                    _ => round.push(reference),
                }
            }
            let wanted = round
                .iter()
                .filter(|reference| window > 0 || reference.said.is_none());
            self.read_logs(wanted, window.max(1))?;
            let mut open = Vec::new();
            for reference in &round {
                if !self.answer(&asking[reference.asking], reference, found)? {
                    open.push(reference.asking);
                }
            }
            // a key whose newest record counts for nothing is asked for in older runs
            later.retain(|reference| open.binary_search(&reference.asking).is_ok());
            references = later;
            if newest.is_empty() {
                newest = round;
            }
        }
        Ok(newest)
    }

    /// Enters the answer of a record to its key; `false` where the record counts for nothing.
    fn answer(
        &mut self,
        asked: &PendingKey<'_>,
        reference: &Reference,
        found: &mut [Option<LogLocation>],
    ) -> Result<bool> {
        let said = match reference.said {
            None => self.proof(reference.page, asked.key)?,
            known => known,
        };
        Ok(match said {
            Some(Some(container)) if self.view.retired.contains(&container) => false,
            Some(said) => {
                found[asked.place] = said.map(|container| LogLocation {
                    container,
                    page: reference.page,
                });
                true
            }
            None => false,
        })
    }

    /// Asks every run that may hold a key, all in one batch; a page that overflowed leads to the next page.
    fn read_runs(&mut self, asking: &[PendingKey<'_>]) -> Result<Vec<Reference>> {
        let view = self.view;
        let mut references = Vec::with_capacity(asking.len());
        let mut steps: Vec<PageQuestion> = Vec::new();
        for (number, asked) in asking.iter().enumerate() {
            let mut runs = asked.runs;
            while runs != 0 {
                let run = runs.trailing_zeros() as usize;
                runs &= runs - 1;
                let (page, last) = view.runs[run].page_of(asked.hash);
                steps.push(PageQuestion {
                    asking: number,
                    run,
                    page,
                    last,
                });
            }
        }
        while !steps.is_empty() {
            // no more pages at once than there are buffers for
            let waiting = steps.split_off(steps.len().min(self.lookups.pages_max));
            let wanted = steps.iter().map(|step| {
                let run = &view.runs[step.run];
                (&*run.disk, step.page, 1)
            });
            let pages = read_pages(wanted, &mut self.buf)?;
            self.stats.lookup_reads += steps.len() as u64;
            let mut next = waiting;
            for (step, bytes) in steps.iter().zip(pages.chunks_exact(PAGE_BYTES)) {
                match view.runs[step.run]
                    .check_page(bytes, step.page)?
                    .ask(asking[step.asking].hash)
                {
                    PageAnswer::Found(record)
                        if record.proof == proof_of(asking[step.asking].key) =>
                    {
                        let page = view.manifest.runs[step.run]
                            .first_page
                            .saturating_add(record.page);
                        // the log file of a record may have been dropped, with all its records
                        references.extend(view.log_of(page).map(|log| Reference {
                            asking: step.asking,
                            run: step.run,
                            page,
                            said: log.said(page, &record),
                        }));
                    }
                    PageAnswer::Next if step.page < step.last => next.push(PageQuestion {
                        page: step.page + 1,
                        ..*step
                    }),
                    _ => self.stats.false_reads += 1,
                }
            }
            steps = next;
        }
        Ok(references)
    }

    /// Brings log pages that records name into the cache, `window` pages from each, in one batch; a page in two windows
    /// is read once.
    fn read_logs<'a>(
        &mut self,
        round: impl Iterator<Item = &'a Reference>,
        window: u32,
    ) -> Result<()> {
        let view = self.view;
        let mut firsts: Vec<u32> = round.map(|reference| reference.page).collect();
        if let Some(cache) = self.lookups.cache_of(view) {
            firsts.retain(|page| !cache.holds(*page));
        }
        firsts.sort_unstable();
        firsts.dedup();
        let mut spans: Vec<(&OpenLog, u32, u32)> = Vec::with_capacity(firsts.len());
        let mut covered = 0;
        for first in firsts {
            let Some(log) = view.log_of(first) else {
                continue;
            };
            let (from, end) = (
                first.max(covered),
                first.saturating_add(window).min(log.entry.end_page()),
            );
            spans.extend((from < end).then_some((&**log, from, end)));
            covered = covered.max(end);
        }
        self.stats.lookup_reads += spans.len() as u64;
        // no more pages at once than there are buffers for
        let at_once = (self.lookups.pages_max / window as usize).max(1);
        spans
            .chunks(at_once)
            .try_for_each(|spans| self.read_spans(spans))
    }

    pub(super) fn read_spans(&mut self, spans: &[(&OpenLog, u32, u32)]) -> Result<()> {
        let wanted = spans.iter().map(|(log, from, end)| {
            let first = from - log.entry.first_page;
            (&*log.disk, first, (end - from) as usize)
        });
        let pages = read_pages(wanted, &mut self.buf)?;
        let numbers = spans
            .iter()
            .flat_map(|(log, from, end)| (*from..*end).map(move |page| (*log, page)));
        let read = numbers.zip(pages.chunks_exact(PAGE_BYTES));
        for ((log, page), bytes) in read.clone() {
            log.check_page(bytes, page - log.entry.first_page)?;
        }
        let count = (pages.len() / PAGE_BYTES) as u64;
        if let Some(mut cache) = self.lookups.cache_to_fill(self.view, count) {
            for ((log, page), bytes) in read {
                cache.insert(page, log.entry.id, bytes);
            }
        }
        Ok(())
    }

    /// The record of `key` on log page `page`. A cache smaller than a round of reads has lost the page by now: then the
    /// page is read again.
    fn proof(&mut self, page: u32, key: &Fingerprint) -> Result<Option<Said>> {
        let view = self.view;
        if let Some(cache) = self.lookups.cache_of(view)
            && let Some(page) = cache.page_of(page)
        {
            return Ok(page.find(key));
        }
        let Some(log) = view.log_of(page) else {
            return Ok(None);
        };
        let within = page - log.entry.first_page;
        let bytes = read_pages(std::iter::once((&*log.disk, within, 1)), &mut self.buf)?;
        Ok(log.check_page(bytes, within)?.find(key))
    }
}
