//! A sealed tablet: some ten thousand neighbours of the stream, in the order of their fingerprints, in pages of 99
//! records.
//!
//! Invariant: a tablet is never written again; each page's first fingerprint, the filter and the containers stay in
//! RAM and are made from the pages at open. A lookup reads one page, or none where the tablet is resident.

use std::collections::BTreeSet;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_io::Disk;

use crate::filters::BlockedBloom;
use onefold_index::strata::log::Said;
use onefold_index::strata::page::{PAGE_BYTES, check_page, seal_page};
use onefold_index::{ContainerId, Error, Filter, Result};

/// Bytes of a record: fingerprint 32, container 8, kind 1.
pub const RECORD_BYTES: usize = 41;
/// Bytes of a page's header: checksum 8, records, zeros.
const HEADER_BYTES: usize = 16;
/// Records of a page.
pub const PAGE_RECORDS: usize = (PAGE_BYTES - HEADER_BYTES) / RECORD_BYTES;

/// Largest size of a tablet in bytes, which bounds the RAM for reading a file.
pub const TABLET_BYTES_MAX: usize = 64 << 20;

const REMOVED: u8 = 1;
const RETIRES: u8 = 2;
/// Flag beside the kinds 0 and 1: an older tablet has the fingerprint, too.
const HAS_OLDER: u8 = 4;

/// The newest record of a fingerprint, and whether an older tablet has one, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TabletEntry {
    /// The container of the chunk, or `None` for a removal.
    pub said: Said,
    /// Whether an older tablet has the fingerprint.
    pub has_older: bool,
}

/// A record of a tablet or of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TabletRecord {
    /// The record of a fingerprint.
    Of(Fingerprint, TabletEntry),
    /// A retired container.
    Retires(ContainerId),
    /// A container that is back after its retirement.
    Returns(ContainerId),
}

impl TabletRecord {
    /// Appends the 41 bytes of the record.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (key, container, kind) = match self {
            TabletRecord::Of(key, entry) => {
                let kind = if entry.said.is_none() { REMOVED } else { 0 }
                    | if entry.has_older { HAS_OLDER } else { 0 };
                let container = entry.said.map_or(0, |container| container.0);
                (key.0, container, kind)
            }
            TabletRecord::Retires(container) => ([0; 32], container.0, RETIRES),
            TabletRecord::Returns(container) => ([0; 32], container.0, RETIRES | REMOVED),
        };
        out.extend_from_slice(&key);
        out.extend_from_slice(&container.to_le_bytes());
        out.push(kind);
    }

    /// Decodes a record of 41 bytes.
    pub fn read(bytes: &[u8]) -> TabletRecord {
        let container = u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"));
        let (container, kind) = (ContainerId(container), bytes[40]);
        if kind & RETIRES != 0 {
            return match kind & REMOVED {
                0 => TabletRecord::Retires(container),
                _ => TabletRecord::Returns(container),
            };
        }
        let key = Fingerprint(bytes[..32].try_into().expect("32 bytes"));
        let entry = TabletEntry {
            said: (kind & REMOVED == 0).then_some(container),
            has_older: kind & HAS_OLDER != 0,
        };
        TabletRecord::Of(key, entry)
    }
}

/// A sealed tablet: records of some ten thousand neighbours of the stream, in the order of their fingerprints.
pub struct Tablet {
    /// Number of the tablet; later tablets have higher ones.
    pub number: u32,
    disk: Arc<dyn Disk>,
    path: String,
    bytes: usize,
    /// First fingerprint of each page.
    fences: Vec<[u8; 32]>,
    filter: BlockedBloom,
    /// Containers of its chunks.
    pub containers: Vec<ContainerId>,
    /// Whether the tablet has a removal.
    pub has_removals: bool,
    /// Number of records.
    pub records: u64,
    /// All pages while the tablet is resident, and when they were last needed.
    resident: Option<(Vec<u8>, u64)>,
}

/// The pages of a tablet with these records, which must be in the order of their fingerprints.
pub fn pages_of(records: &[(Fingerprint, TabletEntry)]) -> Vec<u8> {
    let mut pages = Vec::with_capacity(records.len().div_ceil(PAGE_RECORDS) * PAGE_BYTES);
    for (page, records) in (0..).zip(records.chunks(PAGE_RECORDS)) {
        let start = pages.len();
        pages.extend_from_slice(&[0; 8]);
        pages.extend_from_slice(&(records.len() as u16).to_le_bytes());
        pages.resize(start + HEADER_BYTES, 0);
        for (key, entry) in records {
            TabletRecord::Of(*key, *entry).write(&mut pages);
        }
        pages.resize(start + PAGE_BYTES, 0);
        seal_page(&mut pages[start..], page);
    }
    pages
}

impl Tablet {
    /// Reads a whole tablet and checks it; passes fingerprints that older tablets have, too, to `older`.
    pub fn open(
        disk: Arc<dyn Disk>,
        number: u32,
        filter_bits: u32,
        older: &mut dyn FnMut(Fingerprint),
    ) -> Result<Tablet> {
        let path = super::name_of(number);
        let there = disk.len()?;
        let bytes = usize::try_from(there).unwrap_or(usize::MAX);
        if bytes == 0 || bytes > TABLET_BYTES_MAX || !bytes.is_multiple_of(PAGE_BYTES) {
            let what = format!("{there} bytes, expected pages, {TABLET_BYTES_MAX} bytes at most");
            return Err(Error::damaged(&path, there, what));
        }
        let most = bytes / PAGE_BYTES * PAGE_RECORDS;
        let filter_bytes = (most as u64 * u64::from(filter_bits) / 8) as usize;
        let mut tablet = Tablet {
            number,
            disk,
            path,
            bytes,
            fences: Vec::with_capacity(bytes / PAGE_BYTES),
            filter: BlockedBloom::with_bytes(filter_bytes, most as u64)?,
            containers: Vec::new(),
            has_removals: false,
            records: 0,
            resident: None,
        };
        let pages = tablet.read_all()?;
        let mut containers = BTreeSet::new();
        for page in pages.chunks_exact(PAGE_BYTES) {
            tablet.fences.push(fence(page));
            for (key, entry) in records(page) {
                tablet.filter.insert(&[key])?;
                tablet.has_removals |= entry.said.is_none();
                containers.extend(entry.said);
                tablet.records += 1;
                if entry.has_older {
                    older(key);
                }
            }
        }
        tablet.containers = containers.into_iter().collect();
        Ok(tablet)
    }

    /// Whether the tablet may have the fingerprint; `false` is sure.
    pub fn may_hold(&mut self, key: &Fingerprint) -> Result<bool> {
        let mut present = [false];
        self.filter
            .may_contain(std::slice::from_ref(key), &mut present)?;
        Ok(present[0])
    }

    /// The record of `key`; `now` is noted as the time when a resident tablet was needed.
    pub fn find(&mut self, key: &Fingerprint, now: u64) -> Result<Option<Said>> {
        let page = self.fences.partition_point(|fence| *fence <= key.0);
        let Some(page) = page.checked_sub(1) else {
            return Ok(None);
        };
        let mut read = Vec::new();
        let bytes = match &mut self.resident {
            Some((pages, needed)) => {
                *needed = now;
                &pages[page * PAGE_BYTES..][..PAGE_BYTES]
            }
            None => {
                read.resize(PAGE_BYTES, 0);
                self.disk
                    .read_at(&mut read, (page * PAGE_BYTES) as u64)
                    .map_err(|error| Error::from_read(error, &self.path))?;
                self.check(&read, page)?;
                &read
            }
        };
        let count = count(bytes);
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = (low + high) / 2;
            if record(bytes, middle)[..32] < key.0[..] {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok((low < count)
            .then(|| TabletRecord::read(record(bytes, low)))
            .and_then(|record| match record {
                TabletRecord::Of(found, entry) if found == *key => Some(entry.said),
                _ => None,
            }))
    }

    /// When the tablet was last needed, if it is resident.
    pub fn resident_since(&self) -> Option<u64> {
        self.resident.as_ref().map(|(_, needed)| *needed)
    }

    /// Brings the tablet into RAM by one read.
    pub fn load(&mut self, now: u64) -> Result<()> {
        self.resident = Some((self.read_all()?, now));
        Ok(())
    }

    /// Frees the RAM of a resident tablet.
    pub fn unload(&mut self) {
        self.resident = None;
    }

    /// Reads all records.
    pub fn all(&self) -> Result<Vec<(Fingerprint, TabletEntry)>> {
        let pages = self.read_all()?;
        Ok(pages.chunks_exact(PAGE_BYTES).flat_map(records).collect())
    }

    fn read_all(&self) -> Result<Vec<u8>> {
        let mut pages = vec![0; self.bytes];
        self.disk
            .read_at(&mut pages, 0)
            .map_err(|error| Error::from_read(error, &self.path))?;
        for (page, bytes) in pages.chunks_exact(PAGE_BYTES).enumerate() {
            self.check(bytes, page)?;
        }
        Ok(pages)
    }

    fn check(&self, bytes: &[u8], page: usize) -> Result<()> {
        check_page(bytes, &self.path, page as u32)?;
        let retires = |i| record(bytes, i)[40] & RETIRES != 0;
        if !(1..=PAGE_RECORDS).contains(&count(bytes)) || (0..count(bytes)).any(retires) {
            let at = (page * PAGE_BYTES) as u64;
            let what = format!("a tablet's page with {} records", count(bytes));
            return Err(Error::damaged(&self.path, at, what));
        }
        Ok(())
    }

    /// Bytes of the tablet on disk.
    pub fn disk_bytes(&self) -> u64 {
        (self.fences.len() * PAGE_BYTES) as u64
    }

    /// RAM of the tablet, in bytes.
    pub fn ram_bytes(&self) -> usize {
        let resident = self
            .resident
            .as_ref()
            .map_or(0, |(pages, _)| pages.capacity());
        size_of::<Tablet>()
            + self.fences.capacity() * 32
            + self.containers.capacity() * 8
            + self.filter.ram_bytes()
            + resident
    }
}

fn count(page: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([page[8], page[9]]))
}

fn record(page: &[u8], i: usize) -> &[u8] {
    &page[HEADER_BYTES + i * RECORD_BYTES..][..RECORD_BYTES]
}

fn fence(page: &[u8]) -> [u8; 32] {
    record(page, 0)[..32].try_into().expect("32 bytes")
}

fn records(page: &[u8]) -> impl Iterator<Item = (Fingerprint, TabletEntry)> {
    (0..count(page)).filter_map(|i| match TabletRecord::read(record(page, i)) {
        TabletRecord::Of(key, entry) => Some((key, entry)),
        TabletRecord::Retires(_) | TabletRecord::Returns(_) => None,
    })
}
