//! The record page of the papers' stores on flash: 64 records of 63 bytes behind a header of 64, so 64 keys a page of 4
//! KiB, as the papers count.
//!
//! Invariant: the checksum covers the page and its number; a page in another's place is damage. Records keep the
//! order in which they were put, and a key stands in a page at most once.

use onefold_chunk::Fingerprint;

use onefold_index::strata::log::Said;
use onefold_index::strata::page::{PAGE_BYTES, check_page, seal_page};
use onefold_index::{ContainerId, Error, Result};

/// Records of a page.
pub const RECORDS: usize = 64;
const HEADER_BYTES: usize = 64;
const RECORD_BYTES: usize = 63;
const _: () = assert!(HEADER_BYTES + RECORDS * RECORD_BYTES == PAGE_BYTES);

/// The content of a record besides its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// The container of the key, or `None` for a removal.
    Says(Said),
    /// A retired container; there is no key.
    Retires(ContainerId),
    /// A container that is back after its retirement; there is no key.
    Returns(ContainerId),
}

/// One record of a log or journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRecord {
    /// The key; zeros where a container is retired or returns.
    pub key: Fingerprint,
    /// The content of the record.
    pub kind: RecordKind,
    /// Number of the record, which counts all records of a store.
    pub seq: u64,
    /// The page to which the record leads, plus one, or 0.
    pub link: u32,
}

/// The fields of a page's header that its writer sets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PageHead {
    /// The partition; in a journal, the first page of the checkpoint's batch.
    pub owner: u32,
    /// The first live page of the log (in a journal).
    pub head: u32,
    /// Number of log pages that are durable (in a journal).
    pub committed: u32,
    /// Number of pages of the checkpoint's batch (in a journal).
    pub batch: u32,
    /// The highest number of a record so far (in a journal).
    pub seq: u64,
    /// Two numbers of the store's own (in a journal).
    pub notes: [u64; 2],
}

/// A page of records, being filled or read from disk: the bytes are the same.
#[derive(Clone)]
pub struct RecordPage {
    bytes: Vec<u8>,
}

impl RecordPage {
    /// An empty page, which takes its RAM with the first record.
    pub const fn new() -> RecordPage {
        RecordPage { bytes: Vec::new() }
    }

    /// Checks page `page` of the file `path`.
    pub fn check(bytes: Vec<u8>, path: &str, page: u32) -> Result<RecordPage> {
        check_page(&bytes, path, page)?;
        let page_of = RecordPage { bytes };
        let kinds_fit = (0..page_of.len().min(RECORDS)).all(|i| page_of.record_bytes(i)[40] <= 3);
        if page_of.len() > RECORDS || !kinds_fit {
            let at = u64::from(page) * PAGE_BYTES as u64;
            return Err(Error::damaged(
                path,
                at,
                format!(
                    "record page with {} records, or of unknown kind",
                    page_of.len()
                ),
            ));
        }
        Ok(page_of)
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.bytes.get(8).map_or(0, |count| usize::from(*count))
    }

    /// Whether no more records fit.
    pub fn is_full(&self) -> bool {
        self.len() >= RECORDS
    }

    /// The fields of the header.
    pub fn head(&self) -> PageHead {
        let field = |at: usize| {
            self.bytes
                .get(at..at + 4)
                .map_or(0, |four| u32::from_le_bytes(four.try_into().expect("four")))
        };
        PageHead {
            owner: field(12),
            head: field(16),
            committed: field(20),
            batch: field(24),
            seq: u64::from(field(28)) | u64::from(field(32)) << 32,
            notes: [36, 44].map(|at| u64::from(field(at)) | u64::from(field(at + 4)) << 32),
        }
    }

    /// Decodes record `i`.
    pub fn record(&self, i: usize) -> LogRecord {
        let bytes = self.record_bytes(i);
        let eight = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let container = ContainerId(eight(32));
        LogRecord {
            key: Fingerprint(bytes[..32].try_into().expect("32 bytes")),
            kind: match bytes[40] {
                0 => RecordKind::Says(Some(container)),
                1 => RecordKind::Says(None),
                2 => RecordKind::Retires(container),
                _ => RecordKind::Returns(container),
            },
            seq: eight(41),
            link: u32::from_le_bytes(bytes[49..53].try_into().expect("four")),
        }
    }

    /// All records of the page, in their order.
    pub fn records(&self) -> impl Iterator<Item = LogRecord> + '_ {
        (0..self.len()).map(|i| self.record(i))
    }

    /// The container of `key` or its removal, if the page has a record of it.
    pub fn find(&self, key: &Fingerprint) -> Option<Said> {
        let place = self.place_of(key)?;
        match self.record(place).kind {
            RecordKind::Says(said) => Some(said),
            RecordKind::Retires(_) | RecordKind::Returns(_) => None,
        }
    }

    /// Adds a record, or replaces the one of its key. The page must have room: see [`is_full`](Self::is_full).
    pub fn put(&mut self, record: LogRecord) {
        if self.bytes.is_empty() {
            self.bytes.reserve_exact(PAGE_BYTES);
            self.bytes.resize(PAGE_BYTES, 0);
        }
        let old = match record.kind {
            RecordKind::Says(_) => self.place_of(&record.key),
            RecordKind::Retires(_) | RecordKind::Returns(_) => None,
        };
        let place = old.unwrap_or(self.len());
        self.bytes[8] += u8::from(old.is_none());
        let bytes = &mut self.bytes[HEADER_BYTES + place * RECORD_BYTES..][..RECORD_BYTES];
        let (kind, container) = match record.kind {
            RecordKind::Says(Some(container)) => (0, container.0),
            RecordKind::Says(None) => (1, 0),
            RecordKind::Retires(container) => (2, container.0),
            RecordKind::Returns(container) => (3, container.0),
        };
        bytes[..32].copy_from_slice(&record.key.0);
        bytes[32..40].copy_from_slice(&container.to_le_bytes());
        bytes[40] = kind;
        bytes[41..49].copy_from_slice(&record.seq.to_le_bytes());
        bytes[49..53].copy_from_slice(&record.link.to_le_bytes());
    }

    /// Completes the page as number `page` of its file.
    pub fn seal(&mut self, page: u32, head: PageHead) -> &[u8] {
        self.bytes.resize(PAGE_BYTES, 0);
        self.bytes[12..16].copy_from_slice(&head.owner.to_le_bytes());
        self.bytes[16..20].copy_from_slice(&head.head.to_le_bytes());
        self.bytes[20..24].copy_from_slice(&head.committed.to_le_bytes());
        self.bytes[24..28].copy_from_slice(&head.batch.to_le_bytes());
        self.bytes[28..36].copy_from_slice(&head.seq.to_le_bytes());
        self.bytes[36..44].copy_from_slice(&head.notes[0].to_le_bytes());
        self.bytes[44..52].copy_from_slice(&head.notes[1].to_le_bytes());
        seal_page(&mut self.bytes, page);
        &self.bytes
    }

    /// Empties the page and keeps its RAM.
    pub fn clear(&mut self) {
        self.bytes.fill(0);
    }

    /// Removes record `i`; the last record moves to its position.
    pub fn swap_remove(&mut self, i: usize) -> LogRecord {
        let (record, last) = (self.record(i), self.len() - 1);
        let of = |place: usize| HEADER_BYTES + place * RECORD_BYTES;
        self.bytes
            .copy_within(of(last)..of(last) + RECORD_BYTES, of(i));
        self.bytes[of(last)..][..RECORD_BYTES].fill(0);
        self.bytes[8] -= 1;
        record
    }

    /// RAM of the page, in bytes.
    pub fn ram_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn record_bytes(&self, i: usize) -> &[u8] {
        &self.bytes[HEADER_BYTES + i * RECORD_BYTES..][..RECORD_BYTES]
    }

    /// The position of the record of `key`.
    pub fn place_of(&self, key: &Fingerprint) -> Option<usize> {
        (0..self.len()).find(|i| self.record_bytes(*i)[..32] == key.0)
    }
}
