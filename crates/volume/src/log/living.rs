//! Living chunks of a zone that is emptied: read together where they lie close, and proved before anybody copies them.

use onefold_io::ReadAt;

use super::checks::Checks;
use super::layout::{Address, Layout, PAGE_BYTES, WHOLE, ZoneId, ZoneNo, on_device};
use super::page_sealer::PageSealer;
use super::shared::Shared;
use super::zone_buffers::ZoneBuffer;
use super::zone_table::Row;
use crate::{Error, Result};

/// Chunks that live in one of this many pages, or more, are read together with what lies between them.
const CLOSE: usize = 4;

/// A zone that is emptied.
pub struct VictimZone {
    /// Its id.
    pub zone: ZoneId,
    /// Its place.
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
pub struct LivingChunks {
    bytes: ZoneBuffer,
    /// The first page of each chunk or packed page, and where it begins in `bytes`.
    pages: Vec<(u32, usize)>,
    /// Rows of the victim, sorted by page.
    rows: Vec<Row>,
    chunk_bytes: usize,
}

/// A chunk, or a packed page, that is copied as it is.
pub struct LivingPage<'a> {
    /// The first of its pages.
    pub page: u32,
    /// Rows of the chunks in it.
    pub rows: &'a [Row],
    /// Its bytes, opened.
    pub bytes: &'a [u8],
}

impl LivingChunks {
    /// Those of `victim`, read into `memory`.
    ///
    /// # Errors
    /// The device failed, or a chunk or the zone's table is damaged.
    pub fn read(shared: &Shared, victim: &VictimZone, mut memory: ZoneBuffer) -> Result<Self> {
        let layout = shared.layout;
        let has_live = !victim.live.is_empty();
        let table = has_live.then(|| shared.tables.read(victim.zone, victim.no));
        let table = table.transpose()?;
        let places = read_pages(shared, victim, &mut memory)?;
        let mut living = Self {
            bytes: memory,
            pages: Vec::with_capacity(victim.live.len()),
            rows: Vec::new(),
            chunk_bytes: layout.chunk_bytes(),
        };
        let Some(table) = table else {
            return Ok(living);
        };
        let sealer = shared.seals.pages(table.salt);
        living.rows = table.rows;
        living.rows.sort_by_key(|row| row.page);
        for (page, at) in victim.live.iter().map(|page| u32::from(*page)).zip(places) {
            let bytes = &mut living.bytes[at..at + living.chunk_bytes];
            open_pages(victim, &layout, page, bytes, &table.checks, &sealer)?;
            living.pages.push((page, at));
        }
        Ok(living)
    }

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

/// Reads living chunks into `memory`, and returns where each begins there. Where they lie close, what lies between is
/// read, too: one long read costs less than many short ones.
fn read_pages(shared: &Shared, victim: &VictimZone, memory: &mut [u8]) -> Result<Vec<usize>> {
    let (layout, data) = (shared.layout, &shared.data);
    let chunk_bytes = layout.chunk_bytes();
    let (Some(first), Some(last)) = (victim.live.first(), victim.live.last()) else {
        return Ok(Vec::new());
    };
    let from_first = |page: &u16| usize::from(page - first) * PAGE_BYTES;
    let stretch = from_first(last) + chunk_bytes;
    let living = victim.live.len() * chunk_bytes;
    if living * CLOSE >= stretch {
        let offset = layout.page_offset(victim.no, u32::from(*first));
        data.read_at(&mut memory[..stretch], offset)?;
        return Ok(victim.live.iter().map(from_first).collect());
    }
    let mut reads: Vec<ReadAt<'_>> = (victim.live.iter())
        .zip(memory.chunks_exact_mut(chunk_bytes))
        .map(|(page, buf)| ReadAt {
            offset: layout.page_offset(victim.no, u32::from(*page)),
            buf,
        })
        .collect();
    data.read_many_at(&mut reads)?;
    Ok((0..living).step_by(chunk_bytes).collect())
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
