//! Copying living chunks out of zones that are to be freed. A packed page is copied as it is, with the rows of all its
//! chunks, while one of them lives.

use onefold_io::{PageBuffer, ReadAt};

use super::checks::Checks;
use super::layout::{Address, Layout, PAGE_BYTES, WHOLE, ZoneId, ZoneNo, on_device};
use super::page_sealer::PageSealer;
use super::relocations::Moved;
use super::seals::Salt;
use super::writer::LogEngine;
use super::zone::{ChunkHash, Stream, ZoneHeader};
use super::zone_table::{Row, ZoneTable};
use crate::{Error, Result};

/// Chunks that live in one of this many pages, or more, are read together with what lies between them.
const CLOSE: usize = 4;

/// A zone that is emptied.
pub(super) struct VictimZone {
    pub zone: ZoneId,
    pub no: ZoneNo,
    /// First pages of chunks that lived at the mark, in order. A zone has fewer pages than 2^16.
    pub live: Vec<u16>,
}

impl VictimZone {
    /// Pages of its living chunks.
    pub fn live_pages(&self, layout: &Layout) -> u64 {
        self.live.len() as u64 * u64::from(layout.chunk_pages)
    }
}

/// Living chunks of a victim, proved by their checks, and opened where they were sealed.
pub(super) struct LivingChunks {
    bytes: PageBuffer,
    /// The first page of each chunk or packed page, and where it begins in `bytes`.
    pages: Vec<(u32, usize)>,
    /// Rows of the victim, sorted by page.
    rows: Vec<Row>,
    chunk_bytes: usize,
}

/// A chunk, or a packed page, that is copied as it is.
pub(super) struct LivingPage<'a> {
    page: u32,
    rows: &'a [Row],
    bytes: &'a [u8],
}

impl LivingChunks {
    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = LivingPage<'_>> {
        self.pages.iter().map(|(page, at)| LivingPage {
            page: *page,
            rows: self.rows_of(*page),
            bytes: &self.bytes[*at..*at + self.chunk_bytes],
        })
    }

    fn rows_of(&self, page: u32) -> &[Row] {
        let first = self.rows.partition_point(|row| row.page < page);
        let end = self.rows.partition_point(|row| row.page <= page);
        &self.rows[first..end]
    }
}

impl LogEngine {
    /// A victim's living chunks.
    ///
    /// # Errors
    /// The device failed, or a chunk or the zone's table is damaged.
    pub(super) fn read_living(&self, victim: &VictimZone) -> Result<LivingChunks> {
        let layout = self.shared.layout;
        let has_live = !victim.live.is_empty();
        let table = has_live.then(|| self.shared.tables.read(victim.zone, victim.no));
        let table = table.transpose()?;
        let (bytes, places) = self.read_pages(victim)?;
        let mut living = LivingChunks {
            bytes,
            pages: Vec::with_capacity(victim.live.len()),
            rows: Vec::new(),
            chunk_bytes: layout.chunk_bytes(),
        };
        let Some(table) = table else {
            return Ok(living);
        };
        let sealer = self.shared.seals.pages(table.salt);
        living.rows = table.rows;
        living.rows.sort_by_key(|row| row.page);
        for (page, at) in victim.live.iter().map(|page| u32::from(*page)).zip(places) {
            let bytes = &mut living.bytes[at..at + living.chunk_bytes];
            open_pages(victim, &layout, page, bytes, &table.checks, &sealer)?;
            living.pages.push((page, at));
        }
        Ok(living)
    }

    /// The bytes of living chunks, and where each begins in them. Where they lie close, what lies between is read, too:
    /// one long read costs less than many short ones.
    fn read_pages(&self, victim: &VictimZone) -> Result<(PageBuffer, Vec<usize>)> {
        let (layout, data) = (self.shared.layout, &self.shared.data);
        let chunk_bytes = layout.chunk_bytes();
        let (Some(first), Some(last)) = (victim.live.first(), victim.live.last()) else {
            return Ok((PageBuffer::zeroed(0), Vec::new()));
        };
        let from_first = |page: &u16| usize::from(page - first) * PAGE_BYTES;
        let stretch = from_first(last) + chunk_bytes;
        let living = victim.live.len() * chunk_bytes;
        if living * CLOSE >= stretch {
            let mut bytes = PageBuffer::zeroed(stretch);
            data.read_at(&mut bytes, layout.page_offset(victim.no, u32::from(*first)))?;
            return Ok((bytes, victim.live.iter().map(from_first).collect()));
        }
        let mut bytes = PageBuffer::zeroed(living);
        let mut reads: Vec<ReadAt<'_>> = (victim.live.iter())
            .zip(bytes.chunks_exact_mut(chunk_bytes))
            .map(|(page, buf)| ReadAt {
                offset: layout.page_offset(victim.no, u32::from(*page)),
                buf,
            })
            .collect();
        data.read_many_at(&mut reads)?;
        Ok((bytes, (0..living).step_by(chunk_bytes).collect()))
    }

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
            data: PageBuffer::zeroed(layout.groups_end() as usize * PAGE_BYTES),
            rows: Vec::new(),
            checks: Checks::zeros(layout.check_bytes, layout.zone_pages as usize),
            salt,
            sealer: self.shared.seals.pages(salt),
        })
    }

    /// Writes the copied zone that is being filled, with its table.
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
        let bytes = &open.data[..open.page as usize * PAGE_BYTES];
        let offset = self.shared.layout.zone_offset(open.no);
        let written = self.shared.data.write_at(bytes, offset);
        self.fail(written.map_err(Error::from))?;
        copier
            .rows
            .push((open.zone, open.rows.iter().map(|row| row.hash).collect()));
        let table = ZoneTable {
            zone: open.zone,
            rows: open.rows,
            checks: open.checks,
            pages_used: open.page,
            sequence: self.sequence() - 1,
            salt: open.salt,
        };
        let written = self.shared.tables.write(table, open.no);
        self.fail(written)?;
        self.shared.zones.write().seal(open.zone, open.page);
        Ok(())
    }
}

/// Where living chunks are copied to.
pub(super) struct ChunkCopier {
    depot: [u8; 16],
    open: Option<CopiedZone>,
    pub moved: Moved,
    /// Hashes of each zone that was filled.
    pub rows: Vec<(ZoneId, Vec<ChunkHash>)>,
}

impl ChunkCopier {
    pub fn new(depot: [u8; 16]) -> Self {
        Self {
            depot,
            open: None,
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
    data: PageBuffer,
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

/// Opens a chunk's pages. Fails where they are not what was written.
fn open_pages(
    victim: &VictimZone,
    layout: &Layout,
    first: u32,
    bytes: &mut [u8],
    checks: &Checks,
    sealer: &PageSealer,
) -> Result<()> {
    let at = Address {
        zone: victim.zone,
        page: first,
        slot: WHOLE,
    };
    let pages = first as usize..first as usize + bytes.len() / PAGE_BYTES;
    let checks = (checks.of(pages)).unwrap_or_else(|| Checks::none(layout.check_bytes));
    sealer.open(at, bytes, &checks).map_err(|wrong| {
        let offset = on_device(layout.page_offset(victim.no, wrong.page));
        Error::Damaged {
            place: format!("data at offset {offset}"),
            what: wrong.what,
        }
    })
}
