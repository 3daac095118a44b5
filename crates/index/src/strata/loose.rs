//! Loose pages: the newest pages of the log, of which no run speaks yet. Every opener of the index holds their records
//! in RAM, exactly.
//!
//! A run takes at least a page for its records, one for its filter and a footer, and is written again by each merge
//! that it passes; a small session writes its log pages alone. Invariant: loose pages are newer than all pages that
//! runs speak of; at most [`LOOSE_RECORDS_MAX`] records on at most [`LOOSE_PAGES_MAX`] pages are loose, whichever
//! opener wrote them, so that the least budget can hold them and opening reads 256 KiB for them. A seal that would
//! exceed this writes a run that speaks of all of them ([`seal`](super::seal)).

use std::sync::Arc;

use onefold_chunk::Fingerprint;

use super::log::{LogPage, Said, read_pages};
use super::manifest::{LOOSE_RECORDS_MAX, LoosePages};
use super::open_log::OpenLog;
use super::page::PAGE_BYTES;
use super::run::hash_of;
use super::run_page::{RunRecord, SPAN_UNKNOWN, proof_of};
use super::table::FingerprintTable;
use crate::{ContainerId, Error, Result};

/// RAM of the largest number of loose records, in bytes.
pub const LOOSE_BYTES: usize =
    LOOSE_RECORDS_MAX as usize * FingerprintTable::<LooseRecord>::RECORD_BYTES;

/// The record of a fingerprint on a loose page.
#[derive(Clone, Copy)]
pub struct LooseRecord {
    container: ContainerId,
    /// Number of the log page.
    pub page: u32,
    /// Position of the span in the page, as in a [`RunRecord`].
    span: u8,
    removed: bool,
}

impl LooseRecord {
    /// The chunk's container, or `None` for a removal.
    pub fn said(&self) -> Said {
        (!self.removed).then_some(self.container)
    }
}

/// The records of a manifest's loose pages.
#[derive(Default)]
pub struct Loose {
    /// The pages and the index that the records are of.
    pub of: LoosePages,
    newest: FingerprintTable<LooseRecord>,
    /// Pages with a record that a newer one supersedes, rising.
    superseded: Vec<u32>,
}

impl Loose {
    /// Reads the pages `of`, whose log files are open in `logs`, `at_once` pages at once.
    pub fn read(of: LoosePages, logs: &[Arc<OpenLog>], at_once: usize) -> Result<Loose> {
        let mut loose = Loose {
            of,
            newest: FingerprintTable::new(LOOSE_RECORDS_MAX as usize),
            superseded: Vec::new(),
        };
        if loose.of.records > 0 {
            let (first, mut left) = (loose.of.pages.start, loose.of.records as usize);
            let with_loose = logs.iter().filter(|log| log.entry.end_page() > first);
            for log in with_loose {
                loose.read_log(log, at_once.max(1), &mut left)?;
            }
            loose.superseded.sort_unstable();
            loose.superseded.dedup();
        }
        Ok(loose)
    }

    /// Adds the loose pages of `log`, which have at most `left` records, and subtracts these from `left`.
    fn read_log(&mut self, log: &OpenLog, at_once: usize, left: &mut usize) -> Result<()> {
        let mut buf = Vec::new();
        let (first, end) = (
            self.of.pages.start.saturating_sub(log.entry.first_page),
            log.entry.pages,
        );
        for first in (first..end).step_by(at_once) {
            let pages = at_once.min((end - first) as usize);
            read_pages(&*log.disk, log.named(), first, pages, &mut buf)?;
            for (number, bytes) in (first..).zip(buf.chunks_exact(PAGE_BYTES)) {
                let page = LogPage::checked(bytes);
                let rest = left.checked_sub(page.len());
                *left = rest.ok_or_else(|| {
                    let what = format!(
                        "{} records, expected at most {left} more without a run",
                        page.len()
                    );
                    Error::damaged(&log.path, u64::from(number) * PAGE_BYTES as u64, what)
                })?;
                self.take_in(log.entry.first_page + number, page);
            }
        }
        Ok(())
    }

    fn take_in(&mut self, number: u32, page: LogPage<'_>) {
        let spans = (0..).zip(page.spans());
        let spans = spans.flat_map(|(span, (_, records))| std::iter::repeat_n(span, records));
        for (span, (key, said)) in spans.zip(page.records()) {
            let record = LooseRecord {
                container: said.unwrap_or(ContainerId(0)),
                page: number,
                span: SPAN_UNKNOWN.min(span),
                removed: said.is_none(),
            };
            self.superseded
                .extend(self.newest.put(&key, record).map(|older| older.page));
        }
    }

    /// The newest record of `key`, whether its container is retired or not.
    #[inline]
    pub fn get(&self, key: &Fingerprint) -> Option<LooseRecord> {
        self.newest.get(key)
    }

    /// The number of fingerprints.
    pub fn len(&self) -> usize {
        self.newest.records().len()
    }

    /// The records that a run of the loose pages has, with pages counted from the first loose one.
    pub fn run_records(&self) -> impl Iterator<Item = RunRecord> + '_ {
        self.newest.records().iter().map(|(key, record)| RunRecord {
            hash: hash_of(key),
            page: record.page - self.of.pages.start,
            span: record.span,
            removed: record.removed,
            proof: proof_of(key),
        })
    }

    /// Pages with a record that a newer one supersedes, counted from the first loose page, rising.
    pub fn dead_pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.superseded
            .iter()
            .map(|page| page - self.of.pages.start)
    }

    /// RAM of the records and lists, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.newest.ram_bytes() + self.superseded.capacity() * 4 + size_of::<Loose>()
    }
}
