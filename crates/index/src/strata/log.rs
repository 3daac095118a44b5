//! The fingerprint log: insertions and removals in their order, which keeps the locality of the stream.
//!
//! A log file is pages of 4 KiB and a footer of such pages, which stay as they are once the manifest names the file.
//! Its writer may add more pages and another footer behind them. Pages of all log files are numbered in one
//! sealed tail; a run may speak of several. Containers are stored as runs, because a stream fills one container for
//! some thousand chunks: 127 records a page instead of 102.

use onefold_chunk::Fingerprint;
use onefold_io::Disk;

use super::page::{PAGE_BYTES, check_page_of, seal_page_of};
use crate::{ContainerId, Error, Result};

/// Bytes of a page's header: checksum 8, records 1, spans 1.
pub const HEADER_BYTES: usize = 10;
/// Bytes of a span in a page: container 8, records and the tombstone bit 1.
const SPAN_BYTES: usize = 9;
const FINGERPRINT_BYTES: usize = 32;
/// Largest number of records on a page: a count fits seven bits, and the eighth bit of its byte says "removed".
pub const PAGE_RECORDS_MAX: usize = 127;
const REMOVED: u8 = 0x80;

/// Content of a record besides its fingerprint: the chunk's container, or `None` for a removal.
pub type Said = Option<ContainerId>;

/// A log page whose checksum and shape were checked.
#[derive(Clone, Copy)]
pub struct LogPage<'a>(&'a [u8]);

impl<'a> LogPage<'a> {
    /// Checks checksum and shape of page `page` of the file `path` with this mark; `page` counts within the file.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the page is not what was written.
    pub fn check(bytes: &'a [u8], mark: u64, path: &str, page: u32) -> Result<LogPage<'a>> {
        check_page_of(bytes, mark, path, page)?;
        let (records, spans) = (bytes[8] as usize, bytes[9] as usize);
        let fits = records <= PAGE_RECORDS_MAX
            && HEADER_BYTES + spans * SPAN_BYTES + records * FINGERPRINT_BYTES <= PAGE_BYTES;
        let sum = || {
            bytes[HEADER_BYTES..]
                .chunks_exact(SPAN_BYTES)
                .take(spans)
                .map(|span| usize::from(span[8] & !REMOVED))
                .sum::<usize>()
        };
        if !fits || sum() != records {
            return Err(Error::damaged(
                path,
                u64::from(page) * PAGE_BYTES as u64,
                format!("log page with {records} records in {spans} spans"),
            ));
        }
        Ok(LogPage(bytes))
    }

    /// Wraps a page that [`LogPage::check`] accepted before.
    pub fn checked(bytes: &'a [u8]) -> LogPage<'a> {
        LogPage(bytes)
    }

    /// Whether the page holds no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of records on the page.
    pub fn len(&self) -> usize {
        self.0[8] as usize
    }

    /// The fingerprint of record `i`.
    #[inline]
    pub fn fingerprint(&self, i: usize) -> &'a [u8; 32] {
        let at = HEADER_BYTES + self.0[9] as usize * SPAN_BYTES + i * FINGERPRINT_BYTES;
        self.0[at..at + FINGERPRINT_BYTES]
            .try_into()
            .expect("32 bytes")
    }

    /// The container of record `i`, or `None` for a removal.
    #[inline]
    pub fn said(&self, i: usize) -> Said {
        let mut left = i;
        for (said, records) in self.spans() {
            if left < records {
                return said;
            }
            left -= records;
        }
        None
    }

    /// The record of `key`, if it is on this page.
    pub fn find(&self, key: &Fingerprint) -> Option<Said> {
        (0..self.len())
            .find(|i| self.fingerprint(*i) == &key.0)
            .map(|i| self.said(i))
    }

    /// All records of the page, in their order.
    pub fn records(self) -> impl Iterator<Item = (Fingerprint, Said)> + 'a {
        let said = self
            .spans()
            .flat_map(|(said, records)| std::iter::repeat_n(said, records));
        (0..self.len())
            .map(move |i| Fingerprint(*self.fingerprint(i)))
            .zip(said)
    }

    /// Spans of the page in order: what neighbouring records say, and the number of records.
    pub fn spans(self) -> impl Iterator<Item = (Said, usize)> + 'a {
        self.0[HEADER_BYTES..]
            .chunks_exact(SPAN_BYTES)
            .take(self.0[9] as usize)
            .map(|span| {
                let container = ContainerId(u64::from_le_bytes(
                    span[..8].try_into().expect("eight bytes"),
                ));
                (
                    (span[8] & REMOVED == 0).then_some(container),
                    usize::from(span[8] & !REMOVED),
                )
            })
    }
}

/// Packs records into pages.
///
/// Invariant: `first` is the number in the file of the first of `pages`.
#[derive(Default)]
pub struct LogPacker {
    /// Mark of the file, so that a page of another file fails its checksum here.
    pub mark: u64,
    /// Number in the file of the first of `pages`.
    pub first: u32,
    fingerprints: Vec<u8>,
    spans: Vec<(Said, u8)>,
    /// Bytes of complete pages that wait to be written.
    pub pages: Vec<u8>,
}

impl LogPacker {
    /// A packer for the file with this mark.
    pub fn of(mark: u64) -> Self {
        Self {
            mark,
            ..Self::default()
        }
    }

    /// Adds a record. Its page is the number of complete pages before it.
    pub fn push(&mut self, key: &Fingerprint, said: Said) {
        let joins = self.spans.last().is_some_and(|(last, _)| *last == said);
        let spans = self.spans.len() + usize::from(!joins);
        let records = self.fingerprints.len() / FINGERPRINT_BYTES + 1;
        if records > PAGE_RECORDS_MAX
            || HEADER_BYTES + spans * SPAN_BYTES + records * FINGERPRINT_BYTES > PAGE_BYTES
        {
            self.close_page();
        }
        match self.spans.last_mut() {
            Some((last, records)) if *last == said => *records += 1,
            _ => self.spans.push((said, 1)),
        }
        self.fingerprints.extend_from_slice(&key.0);
    }

    /// The position of the last record's span in its page.
    pub fn last_span(&self) -> usize {
        self.spans.len().saturating_sub(1)
    }

    /// Completes the last page.
    pub fn close_page(&mut self) {
        if self.fingerprints.is_empty() {
            return;
        }
        let start = self.pages.len();
        self.pages.extend_from_slice(&[0; 8]);
        self.pages
            .push((self.fingerprints.len() / FINGERPRINT_BYTES) as u8);
        self.pages.push(self.spans.len() as u8);
        for (said, records) in self.spans.drain(..) {
            self.pages
                .extend_from_slice(&said.map_or(0, |container| container.0).to_le_bytes());
            self.pages
                .push(records | if said.is_none() { REMOVED } else { 0 });
        }
        self.pages.append(&mut self.fingerprints);
        self.pages.resize(start + PAGE_BYTES, 0);
        let page = self.first + (start / PAGE_BYTES) as u32;
        seal_page_of(&mut self.pages[start..], self.mark, page);
    }
}

/// Reads `pages` pages from page `first` on of the log file `path` with this mark, and checks each.
///
/// # Errors
/// [`Error::Io`] where pages cannot be read, [`Error::Damaged`] where one is not what was written.
pub fn read_pages(
    disk: &dyn Disk,
    (path, mark): (&str, u64),
    first: u32,
    pages: usize,
    buf: &mut Vec<u8>,
) -> Result<()> {
    buf.resize(pages * PAGE_BYTES, 0);
    disk.read_at(buf, u64::from(first) * PAGE_BYTES as u64)
        .map_err(|error| Error::from_read(error, path))?;
    for (i, bytes) in buf.chunks_exact(PAGE_BYTES).enumerate() {
        LogPage::check(bytes, mark, path, first + i as u32)?;
    }
    Ok(())
}
