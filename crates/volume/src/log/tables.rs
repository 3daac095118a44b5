//! Rows and checks of zones in RAM: of the open zone all, of full ones those that were used last.

use std::collections::HashMap;
use std::sync::Arc;

use onefold_io::{Disk, PageBuffer};
use parking_lot::Mutex;

use super::checks::Checks;
use super::layout::{Address, Layout, PAGE_BYTES, ZoneId, ZoneNo, ZonePlace, on_device};
use super::page_sealer::PageSealer;
use super::seals::Seals;
use super::zone::ChunkHash;
use super::zone_table::{ZoneTable, rows_said};
use crate::Result;

/// Zones whose rows and checks are kept in any case.
const ENTRIES_MIN: usize = 8;

/// A cache of what full zones hold, by use, within so many bytes. One part is evicted at a time, an eighth of all.
struct RecentTables<T> {
    entries: HashMap<ZoneId, CachedPart<T>>,
    used: u64,
    bytes: usize,
    bytes_max: usize,
}

struct CachedPart<T> {
    value: Arc<T>,
    used: u64,
    bytes: usize,
}

impl<T> RecentTables<T> {
    fn new(bytes_max: usize) -> Self {
        Self {
            entries: HashMap::new(),
            used: 0,
            bytes: 0,
            bytes_max,
        }
    }

    fn get(&mut self, zone: ZoneId) -> Option<Arc<T>> {
        self.used += 1;
        let kept = self.entries.get_mut(&zone)?;
        kept.used = self.used;
        Some(Arc::clone(&kept.value))
    }

    fn put(&mut self, zone: ZoneId, value: Arc<T>, bytes: usize) {
        while self.bytes + bytes > self.bytes_max && self.entries.len() >= ENTRIES_MIN {
            self.evict();
        }
        self.used += 1;
        self.bytes += bytes;
        let used = self.used;
        let kept = CachedPart { value, used, bytes };
        if let Some(before) = self.entries.insert(zone, kept) {
            self.bytes -= before.bytes;
        }
    }

    fn evict(&mut self) {
        let mut by_use: Vec<u64> = self.entries.values().map(|kept| kept.used).collect();
        by_use.sort_unstable();
        let oldest_kept = by_use[by_use.len() / 8];
        self.entries.retain(|_, kept| kept.used > oldest_kept);
        self.bytes = self.entries.values().map(|kept| kept.bytes).sum();
    }
}

/// Rows of a zone, to be asked by hash.
pub struct RowsByHash(Vec<(ChunkHash, ZonePlace)>);

impl RowsByHash {
    /// The chunk's place, if the zone holds it there in a way that `is_usable`. Of equal chunks any one.
    pub fn find(
        &self,
        hash: &ChunkHash,
        is_usable: impl Fn(ZonePlace) -> bool,
    ) -> Option<ZonePlace> {
        let first = self.0.partition_point(|(row, _)| row < hash);
        let equal = self.0[first..].iter().take_while(|(row, _)| row == hash);
        let mut places = equal.map(|(_, place)| *place);
        places.find(|place| is_usable(*place))
    }

    /// RAM in bytes.
    fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(ChunkHash, ZonePlace)>()
    }

    fn of(table: &ZoneTable) -> Self {
        let rows = table.rows.iter().map(|row| (row.hash, row.place()));
        let mut rows: Vec<(ChunkHash, ZonePlace)> = rows.collect();
        rows.sort_unstable();
        Self(rows)
    }
}

/// Proofs of the pages of one zone.
#[derive(Clone)]
pub struct ZoneChecks {
    /// Checks by page.
    pub checks: Checks,
    /// The zone's seal.
    pub sealer: PageSealer,
}

/// RAM of a zone's key, in bytes.
const KEY_BYTES: usize = 640;

impl ZoneChecks {
    /// Those of some neighbouring pages, the first of which is `first`; none where the zone has fewer.
    pub fn of_pages(&self, first: Address, pages: u32) -> Self {
        let first = first.page as usize;
        let checks = self.checks.of(first..first + pages as usize);
        Self {
            checks: checks.unwrap_or_else(|| Checks::none(self.sealer.check_bytes())),
            sealer: self.sealer.clone(),
        }
    }

    /// RAM in bytes.
    fn bytes(&self) -> usize {
        let key_bytes = if self.sealer.seals() { KEY_BYTES } else { 0 };
        self.checks.ram_bytes() + key_bytes
    }
}

/// Tables of full zones, read when they are asked for.
pub struct Tables {
    data: Arc<dyn Disk>,
    layout: Layout,
    seals: Seals,
    rows: Mutex<RecentTables<RowsByHash>>,
    checks: Mutex<RecentTables<ZoneChecks>>,
}

impl Tables {
    /// Tables on `data`; caches of `cache_bytes` each for rows and for checks.
    pub fn new(data: Arc<dyn Disk>, layout: Layout, seals: Seals, cache_bytes: usize) -> Self {
        Self {
            data,
            layout,
            seals,
            rows: Mutex::new(RecentTables::new(cache_bytes)),
            checks: Mutex::new(RecentTables::new(cache_bytes)),
        }
    }

    /// Keeps the table of a zone that was filled just now.
    pub fn keep(&self, table: ZoneTable) {
        self.keep_rows(table.zone, &Arc::new(RowsByHash::of(&table)));
        let zone = table.zone;
        self.keep_checks(zone, &Arc::new(self.checks_of(table)));
    }

    fn keep_rows(&self, zone: ZoneId, rows: &Arc<RowsByHash>) {
        self.rows.lock().put(zone, Arc::clone(rows), rows.bytes());
    }

    fn keep_checks(&self, zone: ZoneId, checks: &Arc<ZoneChecks>) {
        let bytes = checks.bytes();
        self.checks.lock().put(zone, Arc::clone(checks), bytes);
    }

    fn checks_of(&self, table: ZoneTable) -> ZoneChecks {
        ZoneChecks {
            sealer: self.seals.pages(table.salt),
            checks: table.checks,
        }
    }

    /// Rows of a full zone.
    ///
    /// # Errors
    /// The device failed, or the table is damaged.
    pub fn rows(&self, zone: ZoneId, no: ZoneNo) -> Result<Arc<RowsByHash>> {
        if let Some(rows) = self.rows.lock().get(zone) {
            return Ok(rows);
        }
        let rows = Arc::new(RowsByHash::of(&self.read(zone, no)?));
        self.keep_rows(zone, &rows);
        Ok(rows)
    }

    /// Checks of a full zone.
    ///
    /// # Errors
    /// The device failed, or the table is damaged.
    pub fn checks(&self, zone: ZoneId, no: ZoneNo) -> Result<Arc<ZoneChecks>> {
        if let Some(checks) = self.checks.lock().get(zone) {
            return Ok(checks);
        }
        let checks = Arc::new(self.checks_of(self.read(zone, no)?));
        self.keep_checks(zone, &checks);
        Ok(checks)
    }

    /// The whole table of a full zone, from the device.
    ///
    /// # Errors
    /// The device failed, or the table is damaged.
    pub fn read(&self, zone: ZoneId, no: ZoneNo) -> Result<ZoneTable> {
        let (mut bytes, mut offset) = self.read_rows(no, 0)?;
        let footer = &bytes[bytes.len() - PAGE_BYTES..];
        let rows = rows_said(footer, &self.layout, &self.seals).unwrap_or(0);
        // Packed pages have several rows each: then the table begins earlier.
        if self.layout.groups_end_with(rows) < self.layout.groups_end() {
            (bytes, offset) = self.read_rows(no, rows)?;
        }
        let offset = on_device(offset);
        ZoneTable::decode(&bytes, &self.layout, &self.seals, zone, "data", offset)
    }

    /// A table of this many rows, as it lies on the device, and where it begins there.
    fn read_rows(&self, no: ZoneNo, rows: usize) -> Result<(PageBuffer, u64)> {
        let offset = self
            .layout
            .page_offset(no, self.layout.groups_end_with(rows));
        let mut bytes = PageBuffer::zeroed(self.layout.table_pages(rows) as usize * PAGE_BYTES);
        self.data.read_at(&mut bytes, offset)?;
        Ok((bytes, offset))
    }

    /// Writes a zone's table to its place, and keeps it.
    ///
    /// # Errors
    /// The device failed.
    pub fn write(&self, table: ZoneTable, no: ZoneNo) -> Result<()> {
        let begin = self.layout.groups_end_with(table.rows.len());
        debug_assert!(
            table.pages_used <= begin,
            "the table lies behind the groups"
        );
        let offset = self.layout.page_offset(no, begin);
        let bytes = table.encode(&self.layout, &self.seals)?;
        self.data.write_at(&bytes, offset)?;
        self.keep(table);
        Ok(())
    }

    /// RAM of both caches, in bytes.
    pub fn ram_bytes(&self) -> u64 {
        (self.rows.lock().bytes + self.checks.lock().bytes) as u64
    }
}
