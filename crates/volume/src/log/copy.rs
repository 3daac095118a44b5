//! Copying living chunks out of zones that are to be freed. A packed page is copied as it is, with the rows of all its
//! chunks, while one of them lives. Two zones are read, one is filled and one is written at the same time.

use std::sync::Arc;

use onefold_io::ErrorKind;

use super::checks::Checks;
use super::layout::{Address, Layout, PAGE_BYTES, WHOLE, ZoneId, ZoneNo};
use super::living::{LivingChunks, LivingPage, VictimZone};
use super::page_sealer::PageSealer;
use super::relocations::Moved;
use super::seals::Salt;
use super::writer::LogEngine;
use super::zone::{ChunkHash, Stream, ZoneHeader};
use super::zone_buffers::ZoneBuffer;
use super::zone_table::{Row, ZoneTable};
use crate::side_threads::Running;
use crate::{Error, Result};

impl LogEngine {
    /// Appends a chunk or packed page to the copied zone, and a zone where that is full.
    pub(super) fn copy(
        &mut self,
        copier: &mut ChunkCopier,
        from: ZoneId,
        living: &LivingPage<'_>,
    ) -> Result<()> {
        let layout = self.shared.layout;
        let is_full = copier.open.as_ref().is_some_and(|open| {
            let rows = open.rows.len() + living.rows.len().max(1);
            open.page + layout.chunk_pages > layout.groups_end_with(rows)
        });
        if is_full {
            self.finish_zone(copier)?;
        }
        if copier.open.is_none() {
            copier.open = Some(self.open_copied(&layout)?);
        }
        let open = copier.open.as_mut().expect("opened above");
        let at = |zone, page| Address {
            zone,
            page,
            slot: WHOLE,
        };
        let moved = (at(from, living.page), at(open.zone, open.page));
        copier.moved.extend([moved]);
        open.add(living);
        Ok(())
    }

    fn open_copied(&mut self, layout: &Layout) -> Result<CopiedZone> {
        let salt = self.shared.seals.new_salt()?;
        let mut zones = self.shared.zones.write();
        let no = zones.choose_free().ok_or_else(|| Error::NoSpace {
            what: "no zone is free to clean into".to_string(),
        })?;
        let zone = zones.new_id();
        zones.insert(zone, no, Stream::Copied, 0);
        Ok(CopiedZone {
            zone,
            no,
            page: 1,
            data: self.zone_buffers.take(),
            rows: Vec::new(),
            checks: Checks::zeros(layout.check_bytes, layout.zone_pages as usize),
            salt,
            sealer: self.shared.seals.pages(salt),
        })
    }

    /// Begins to write the copied zone that is being filled, with its table.
    pub(super) fn finish_zone(&mut self, copier: &mut ChunkCopier) -> Result<()> {
        let Some(mut open) = copier.open.take() else {
            return Ok(());
        };
        let header = ZoneHeader {
            depot: copier.depot,
            zone: open.zone,
            stream: Stream::Copied,
            previous: None,
            next: open.no,
            sequence: self.sequence(),
            salt: open.salt,
        };
        open.data[..PAGE_BYTES].copy_from_slice(&header.encode(&self.shared.seals));
        let table = ZoneTable {
            zone: open.zone,
            rows: open.rows,
            checks: open.checks,
            pages_used: open.page,
            sequence: self.sequence() - 1,
            salt: open.salt,
        };
        let hashes = table.rows.iter().map(|row| row.hash).collect();
        copier.rows.push((open.zone, hashes));
        self.settle_copied(copier)?;
        let shared = Arc::clone(&self.shared);
        copier.writing = Some(self.cleaners.run(move || {
            let bytes = &open.data[..open.page as usize * PAGE_BYTES];
            (shared.data).write_at(bytes, shared.layout.zone_offset(open.no))?;
            shared.tables.write(table, open.no)?;
            // Checks read the zone from now on.
            shared.zones.write().seal(open.zone, open.page);
            Ok(())
        }));
        Ok(())
    }

    /// Waits until all copied zones are on the device, perhaps in its cache.
    pub(super) fn settle_copied(&mut self, copier: &mut ChunkCopier) -> Result<()> {
        let written = copier.writing.take().map_or(Some(Ok(())), Running::wait);
        self.fail(written.unwrap_or_else(|| Err(thread_ended("write"))))
    }

    /// Begins to read a victim's living chunks.
    pub(super) fn start_reading(&self, victim: VictimZone) -> LivingAhead {
        let (shared, memory) = (Arc::clone(&self.shared), self.zone_buffers.take());
        LivingAhead {
            zone: victim.zone,
            chunks: (self.cleaners).run(move || LivingChunks::read(&shared, &victim, memory)),
        }
    }
}

/// A victim whose living chunks are being read.
pub(super) struct LivingAhead {
    pub zone: ZoneId,
    chunks: Running<Result<LivingChunks>>,
}

impl LivingAhead {
    /// Waits for them.
    ///
    /// # Errors
    /// The device failed, or a chunk or the zone's table is damaged.
    pub fn wait(self) -> Result<LivingChunks> {
        let read = self.chunks.wait();
        read.unwrap_or_else(|| Err(thread_ended("read")))
    }
}

fn thread_ended(what: &'static str) -> Error {
    let why = "the thread that cleans has ended";
    onefold_io::Error::new(what, "a zone", ErrorKind::Device, why).into()
}

/// Where living chunks are copied to.
pub(super) struct ChunkCopier {
    depot: [u8; 16],
    open: Option<CopiedZone>,
    /// The write of the zone before.
    writing: Option<Running<Result<()>>>,
    pub moved: Moved,
    /// Hashes of each zone that was filled.
    pub rows: Vec<(ZoneId, Vec<ChunkHash>)>,
}

impl ChunkCopier {
    pub fn new(depot: [u8; 16]) -> Self {
        Self {
            depot,
            open: None,
            writing: None,
            moved: Moved::new(),
            rows: Vec::new(),
        }
    }
}

/// A copied zone that is being filled.
struct CopiedZone {
    zone: ZoneId,
    no: ZoneNo,
    page: u32,
    /// Header page and chunks.
    data: ZoneBuffer,
    rows: Vec<Row>,
    checks: Checks,
    salt: Option<Salt>,
    sealer: PageSealer,
}

impl CopiedZone {
    fn add(&mut self, living: &LivingPage<'_>) {
        let page = self.page;
        let moved = |row: &Row| Row { page, ..*row };
        self.rows.extend(living.rows.iter().map(moved));
        let start = page as usize * PAGE_BYTES;
        let pages = &mut self.data[start..start + living.bytes.len()];
        pages.copy_from_slice(living.bytes);
        let first = Address {
            zone: self.zone,
            page,
            slot: WHOLE,
        };
        let checks = self.sealer.seal(first, pages);
        self.checks.put(page as usize, &checks);
        self.page += checks.len() as u32;
    }
}
