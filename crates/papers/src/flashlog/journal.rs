//! The journal: the content of write buffers at each checkpoint, written and read a piece at a time, because sorting it
//! as a whole may take more than RAM.

use std::collections::HashSet;

use onefold_chunk::Fingerprint;
use onefold_io::{Disk, rename_over};

use super::page::{LogRecord, PageHead, RECORDS, RecordKind, RecordPage};
use super::{FlashLog, damaged_before, pages_of, read_page};
use crate::retirements::Retirements;
use onefold_index::strata::page::PAGE_BYTES;
use onefold_index::{ContainerId, Error, Result};

/// Bytes of the journal that are written at once.
const JOURNAL_WRITE_BYTES: usize = 64 * PAGE_BYTES;
/// Number of records that are sorted at once.
const JOURNAL_WINDOW: usize = 8192;
/// Number of journal pages that are always allowed.
const JOURNAL_PAGES_MIN: u32 = 16;

impl FlashLog {
    /// Finds the end of the journal's last whole batch and the retired containers; cuts off a torn end.
    pub(super) fn scan_journal(&mut self) -> Result<()> {
        let path = self.journal_path();
        let there = pages_of(&*self.journal)?;
        let (mut retired, mut gone) = (Vec::new(), HashSet::new());
        let (mut last, mut broken) = (PageHead::default(), None);
        for number in 0..there {
            let page = match read_page(&*self.journal, &path, number) {
                Err(Error::Damaged { .. }) => None,
                other => Some(other?),
            };
            match (page, broken) {
                // a batch begins where the one before ended; otherwise the page is left of a torn batch
                (Some(page), None) if page.head().owner == self.journal_pages => {
                    let head = page.head();
                    retired.extend(page.records().filter_map(|record| match record.kind {
                        RecordKind::Retires(container) => Some((container, true)),
                        RecordKind::Returns(container) => Some((container, false)),
                        RecordKind::Says(_) => None,
                    }));
                    if number + 1 - head.owner == head.batch {
                        for (container, is_gone) in retired.drain(..) {
                            if is_gone {
                                gone.insert(container)
                            } else {
                                gone.remove(&container)
                            };
                        }
                        last = head;
                        self.journal_pages = number + 1;
                    }
                }
                (Some(page), Some(first)) if page.head().owner > first => {
                    return Err(damaged_before(&path, first, number));
                }
                (None, None) => broken = Some(number),
                _ => {}
            }
        }
        if self.journal_pages < there {
            self.journal
                .set_len(u64::from(self.journal_pages) * PAGE_BYTES as u64)?;
            self.journal.sync()?;
        }
        self.retired = Retirements::of(gone);
        (self.head, self.discarded, self.seq) = (last.head, last.head, last.seq);
        self.notes = last.notes;
        self.recover_end(last.committed)
    }

    /// The number of pages in the journal.
    pub fn journal_pages(&self) -> u32 {
        self.journal_pages
    }

    /// The records on a page of the journal, in the order in which they are to be applied.
    pub fn journaled(&self, page: u32) -> Result<Vec<LogRecord>> {
        let page = read_page(&*self.journal, &self.journal_path(), page)?;
        let says = |record: &LogRecord| matches!(record.kind, RecordKind::Says(_));
        Ok(page.records().filter(says).collect())
    }

    /// Makes the log durable and, in the journal, the content of the buffers.
    pub fn checkpoint<'a>(
        &mut self,
        buffers: impl Iterator<Item = &'a RecordPage> + Clone,
    ) -> Result<()> {
        self.disk.sync()?;
        let above = |since: u64| {
            let records = buffers.clone().flat_map(RecordPage::records);
            records.filter(|record| record.seq > since).count()
        };
        let held = above(0) + self.retired.gone().len();
        let news = above(self.journaled) + self.retired.unsaid_len();
        let (held_pages, news_pages) = (pages_for(held), pages_for(news));
        // after a collection, old journal records could count again for keys that were dropped with their removal
        let is_long = self.journal_pages + news_pages > 2 * held_pages + JOURNAL_PAGES_MIN;
        if is_long || self.head > self.discarded {
            let retired = self
                .retired
                .gone()
                .iter()
                .map(|container| (*container, true));
            let name = self.journal_path();
            // from here on the old journal has no name, whatever fails
            let temporary = format!("{name}-tmp");
            self.journal = rename_over(&*self.dir, &temporary, &name, |disk| {
                self.write_batch(&**disk, (0, held_pages), retired, (buffers, 0))
            })?;
            self.is_name_durable = false;
            self.journal_pages = held_pages;
            self.bytes_written += u64::from(held_pages) * PAGE_BYTES as u64;
        } else {
            let place = (self.journal_pages, news_pages);
            let retired = self.retired.unsaid();
            self.write_batch(&*self.journal, place, retired, (buffers, self.journaled))?;
            self.journal.sync()?;
            self.journal_pages += news_pages;
            self.bytes_written += u64::from(news_pages) * PAGE_BYTES as u64;
        }
        self.retired.said();
        self.journaled = self.seq;
        if !self.is_name_durable {
            self.dir.sync()?;
            self.is_name_durable = true;
        }
        self.discard_collected()
    }

    /// Writes a batch of `pages` pages from page `first` of a journal on: retired containers and those that are back,
    /// then buffered records above a number, in the order of numbers, so that applying them fills no buffer sooner than
    /// it was filled.
    fn write_batch<'a>(
        &self,
        journal: &dyn Disk,
        (first, pages): (u32, u32),
        retired: impl Iterator<Item = (ContainerId, bool)>,
        (buffers, mut since): (impl Iterator<Item = &'a RecordPage> + Clone, u64),
    ) -> Result<()> {
        let head = PageHead {
            owner: first,
            head: self.head,
            committed: self.pages,
            batch: pages,
            seq: self.seq,
            notes: self.notes,
        };
        let windows = std::iter::from_fn(|| {
            let window = lowest(buffers.clone(), since, JOURNAL_WINDOW);
            since = window.last()?.seq;
            Some(window)
        });
        let mut records = retired.map(retirement).chain(windows.flatten());
        let (mut bytes, mut page) = (Vec::with_capacity(JOURNAL_WRITE_BYTES), RecordPage::new());
        let mut at = u64::from(first) * PAGE_BYTES as u64;
        for number in 0..pages {
            page.clear();
            let of_page = records.by_ref().take(RECORDS);
            of_page.for_each(|record| page.put(record));
            bytes.extend_from_slice(page.seal(first + number, head));
            if bytes.len() == JOURNAL_WRITE_BYTES || number + 1 == pages {
                journal.write_at(&bytes, at)?;
                at += bytes.len() as u64;
                bytes.clear();
            }
        }
        Ok(())
    }

    fn journal_path(&self) -> String {
        format!("{}-journal", self.name)
    }
}

/// The number of pages, at least one: a batch without records still says how far the log is durable.
fn pages_for(records: usize) -> u32 {
    records.div_ceil(RECORDS).max(1) as u32
}

/// The `most` records with the lowest numbers above `since`, in order: buffers may hold more than RAM is there to sort.
fn lowest<'a>(
    buffers: impl Iterator<Item = &'a RecordPage>,
    since: u64,
    most: usize,
) -> Vec<LogRecord> {
    let (mut lowest, mut below) = (Vec::new(), u64::MAX);
    for record in buffers.flat_map(RecordPage::records) {
        if record.seq > since && record.seq < below {
            lowest.push(record);
        }
        if lowest.len() == 2 * most {
            let (_, highest, _) = lowest.select_nth_unstable_by_key(most - 1, |record| record.seq);
            below = highest.seq;
            lowest.truncate(most);
        }
    }
    lowest.sort_unstable_by_key(|record| record.seq);
    lowest.truncate(most);
    lowest
}

/// The record for a container that is retired, or back.
fn retirement((container, is_gone): (ContainerId, bool)) -> LogRecord {
    let kind = if is_gone {
        RecordKind::Retires(container)
    } else {
        RecordKind::Returns(container)
    };
    LogRecord {
        key: Fingerprint([0; 32]),
        kind,
        seq: 0,
        link: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of any size, one after the other, return all records in order, each once.
    #[test]
    fn windows_give_every_record_in_order() {
        let mut pages = vec![RecordPage::new(); 5];
        for seq in 1..=300u64 {
            let record = LogRecord {
                key: Fingerprint([seq as u8; 32]),
                kind: RecordKind::Says(None),
                seq,
                link: 0,
            };
            let page = &mut pages[(seq * 7 % 5) as usize];
            if !page.is_full() {
                page.put(record);
            }
        }
        let mut expected: Vec<u64> = pages
            .iter()
            .flat_map(RecordPage::records)
            .map(|record| record.seq)
            .collect();
        expected.sort_unstable();
        for (since, most) in [(0, 1), (0, 7), (40, 64), (299, 3), (0, 1000)] {
            let (mut found, mut last) = (Vec::new(), since);
            loop {
                let window = lowest(pages.iter(), last, most);
                assert!(window.len() <= most);
                let Some(newest) = window.last() else { break };
                last = newest.seq;
                found.extend(window.iter().map(|record| record.seq));
            }
            let rest: Vec<u64> = expected
                .iter()
                .copied()
                .filter(|seq| *seq > since)
                .collect();
            assert_eq!(found, rest);
        }
    }
}
