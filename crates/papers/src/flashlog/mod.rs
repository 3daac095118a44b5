//! The common parts of the papers' stores on flash: a log of record pages, and a journal of the records in write
//! buffers.
//!
//! ```text
//! <name>-log       record pages in the order in which buffers filled; pages before `head` were collected
//! <name>-journal   record pages with what buffers held at each checkpoint, and how many log pages were durable then
//! ```
//!
//! A store buffers records by page and partition, so a checkpoint would leave pages half empty. Instead it appends the
//! content of buffers to the journal, which is made anew (by renaming `<name>-journal-tmp`) when it is twice as long as
//! the part that counts. Invariant: each record has a number (`seq`); a partition's pages hold all of its records up
//! to the highest number in them, so a journal record counts only if its number is higher. A torn end of either file is
//! cut off; a damaged page that was durable is damage. One opener at a time.

mod candidates;
mod journal;
mod located;
mod page;
mod shape;

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::{Dir, Disk, LockGuard, ReadAt, if_there};

pub use candidates::UnreadPages;
pub use located::{Locate, Located, RecordPlace};
pub use page::{LogRecord, PageHead, RECORDS, RecordKind, RecordPage};
pub use shape::{read_or_write_shape, replace_file};

use crate::retirements::Retirements;
use onefold_index::alone;
use onefold_index::strata::log::Said;
use onefold_index::strata::page::PAGE_BYTES;
use onefold_index::{ContainerId, Error, Result};

/// Largest number of a record. No store reaches it, so a reader may count on from any valid number.
const SEQ_MAX: u64 = 1 << 62;

/// A log of record pages on flash, and the journal of what is still in write buffers.
pub struct FlashLog {
    dir: Arc<dyn Dir>,
    disk: Arc<dyn Disk>,
    journal: Arc<dyn Disk>,
    /// Whether the journal's name is durable: not after it was made anew, until the folder is synced.
    is_name_durable: bool,
    name: &'static str,
    /// Number of the first live page.
    head: u32,
    discarded: u32,
    pages: u32,
    journal_pages: u32,
    /// Records up to this number are in the log or the journal.
    journaled: u64,
    seq: u64,
    retired: Retirements,
    /// Two numbers of the store's own, which a checkpoint keeps; zeros in a new log.
    pub notes: [u64; 2],
    /// Bytes written to both files.
    pub bytes_written: u64,
    _alone: Box<dyn LockGuard>,
}

impl FlashLog {
    /// Opens log and journal of `name` in `dir`, or begins them. The caller must scan the pages, then apply the
    /// [`journaled`](Self::journaled) records.
    pub fn open(dir: Arc<dyn Dir>, name: &'static str) -> Result<FlashLog> {
        let alone = alone(&*dir, name)?;
        let disk = open_or_create(&*dir, &format!("{name}-log"))?;
        let journal = open_or_create(&*dir, &format!("{name}-journal"))?;
        dir.sync()?;
        let mut log = FlashLog {
            dir,
            disk,
            journal,
            is_name_durable: true,
            name,
            head: 0,
            discarded: 0,
            pages: 0,
            journal_pages: 0,
            journaled: 0,
            seq: 0,
            retired: Retirements::default(),
            notes: [0; 2],
            bytes_written: 0,
            _alone: alone,
        };
        log.scan_journal()?;
        Ok(log)
    }

    /// Finds the last whole page; a torn end behind the durable pages is cut off.
    fn recover_end(&mut self, committed: u32) -> Result<()> {
        let path = self.path();
        let there = pages_of(&*self.disk)?;
        if self.head > committed {
            let what = format!(
                "pages before {} were collected, of {committed} that were durable",
                self.head
            );
            return Err(Error::damaged(&path, 0, what));
        }
        if there < committed {
            let what = format!("{there} pages, of which {committed} were durable");
            return Err(Error::damaged(
                &path,
                u64::from(there) * PAGE_BYTES as u64,
                what,
            ));
        }
        self.pages = committed;
        while self.pages < there {
            match read_page(&*self.disk, &path, self.pages) {
                Ok(page) => {
                    let newest = page.records().map(|record| record.seq).max();
                    self.seq = self.seq.max(newest.unwrap_or(0));
                    self.pages += 1;
                }
                Err(Error::Damaged { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        if self.seq > SEQ_MAX {
            let what = format!("record {}, the last can be {SEQ_MAX}", self.seq);
            return Err(Error::damaged(&path, 0, what));
        }
        self.journaled = self.seq;
        if self.pages < there {
            self.disk
                .set_len(u64::from(self.pages) * PAGE_BYTES as u64)?;
            self.disk.sync()?;
        }
        Ok(())
    }

    /// The range of live pages.
    pub fn range(&self) -> std::ops::Range<u32> {
        self.head..self.pages
    }

    /// The first live page as of the last checkpoint.
    pub fn durable_head(&self) -> u32 {
        self.discarded
    }

    /// Makes a record with the next number. A retired container is back by it.
    pub fn next_record(&mut self, key: &Fingerprint, said: Said) -> LogRecord {
        self.seq += 1;
        if let Some(container) = said {
            self.retired.told(container);
        }
        LogRecord {
            key: *key,
            kind: RecordKind::Says(said),
            seq: self.seq,
            link: 0,
        }
    }

    /// Appends a page of partition `owner`; durable after the next checkpoint.
    pub fn append(&mut self, page: &mut RecordPage, owner: u32) -> Result<u32> {
        let number = self.pages;
        let head = PageHead {
            owner,
            ..PageHead::default()
        };
        let bytes = page.seal(number, head);
        self.disk
            .write_at(bytes, u64::from(number) * PAGE_BYTES as u64)?;
        self.pages += 1;
        self.bytes_written += PAGE_BYTES as u64;
        Ok(number)
    }

    /// Cuts the log before page `page`: pages from there on were not durable.
    pub fn truncate(&mut self, page: u32) -> Result<()> {
        self.pages = page;
        self.disk.set_len(u64::from(page) * PAGE_BYTES as u64)?;
        Ok(self.disk.sync()?)
    }

    /// Takes back the pages from `page` on, which were appended since the last checkpoint: the next pages are written
    /// in their place.
    pub fn take_back(&mut self, page: u32) {
        self.pages = page;
    }

    /// Reads one page of the log.
    pub fn read(&self, page: u32) -> Result<RecordPage> {
        read_page(&*self.disk, &self.path(), page)
    }

    /// Reads pages of the log, in one batch.
    pub fn read_many(&self, pages: &[u32]) -> Result<Vec<RecordPage>> {
        read_many(&*self.disk, pages)?
            .into_iter()
            .zip(pages)
            .map(|(bytes, page)| RecordPage::check(bytes, &self.path(), *page))
            .collect()
    }

    /// Whether the container is retired.
    pub fn is_retired(&self, container: &ContainerId) -> bool {
        self.retired.contains(container)
    }

    /// Retires containers from now on; durable after the next checkpoint.
    pub fn retire(&mut self, containers: &[ContainerId]) {
        self.retired.retire(containers);
    }

    /// Drops the pages before `page`. Their space is freed by the checkpoint that makes this durable.
    pub fn advance_head(&mut self, page: u32) {
        self.head = self.head.max(page.min(self.pages));
    }

    fn discard_collected(&mut self) -> Result<()> {
        if self.head > self.discarded {
            let pages = u64::from(self.head - self.discarded);
            self.disk.discard(
                u64::from(self.discarded) * PAGE_BYTES as u64,
                pages * PAGE_BYTES as u64,
            )?;
            self.discarded = self.head;
        }
        Ok(())
    }

    /// Bytes of the live pages of the log and of the journal.
    pub fn disk_bytes(&self) -> u64 {
        u64::from(self.pages - self.head + self.journal_pages) * PAGE_BYTES as u64
    }

    /// RAM of the log's state, in bytes.
    pub fn ram_bytes(&self) -> usize {
        size_of::<FlashLog>() + self.retired.ram_bytes()
    }

    fn path(&self) -> String {
        format!("{}-log", self.name)
    }
}

/// Opens an existing file, or creates it.
pub fn open_or_create(dir: &dyn Dir, name: &str) -> Result<Arc<dyn Disk>> {
    Ok(match if_there(dir.open_write(name))? {
        Some(disk) => disk,
        None => dir.create(name)?,
    })
}

/// Reads pages by their numbers, in one batch, unchecked.
pub fn read_many(disk: &dyn Disk, pages: &[u32]) -> Result<Vec<Vec<u8>>> {
    let mut bytes = vec![vec![0; PAGE_BYTES]; pages.len()];
    let mut reads: Vec<ReadAt<'_>> = Vec::with_capacity(pages.len());
    for (page, buf) in pages.iter().zip(&mut bytes) {
        reads.push(ReadAt {
            offset: u64::from(*page) * PAGE_BYTES as u64,
            buf,
        });
    }
    disk.read_many_at(&mut reads)?;
    Ok(bytes)
}

fn read_page(disk: &dyn Disk, path: &str, page: u32) -> Result<RecordPage> {
    let mut bytes = vec![0; PAGE_BYTES];
    disk.read_at(&mut bytes, u64::from(page) * PAGE_BYTES as u64)
        .map_err(|error| Error::from_read(error, path))?;
    RecordPage::check(bytes, path, page)
}

fn pages_of(disk: &dyn Disk) -> Result<u32> {
    Ok((disk.len()? / PAGE_BYTES as u64).min(u64::from(u32::MAX - 1)) as u32)
}

fn damaged_before(path: &str, first: u32, whole: u32) -> Error {
    let what = format!("a damaged page before page {whole}, which is whole");
    Error::damaged(path, u64::from(first) * PAGE_BYTES as u64, what)
}
