//! Cleaning: zones with much garbage are emptied by copying what lives, and freed.
//!
//! Order: group closed → checkpoint (the log position leaves the victims behind) → mark from the maps → copies and
//! their tables written → maps changed → data synced → manifest replaced → victims freed → index told. The steps run on
//! the writer's thread, so no hit can name a victim meanwhile. A crash before the manifest leaves copies in zones that
//! no manifest lists: they are free.

use std::collections::HashMap;

use onefold_io::{PageBuffer, ReadAt};

use super::check::page_check;
use super::extent_map::ExtentMap;
use super::layout::{Address, Layout, PAGE_BYTES, ZoneId, ZoneNo};
use super::writer::LogEngine;
use super::zone::{ChunkHash, NO_HASH, Row, Stream, ZoneHeader, ZoneTable};
use crate::{Collected, Effort, Error, Result};

/// Zones that one step copies at most, in full ones.
const STEP_COPIES: u32 = 2;
/// Zones that one step frees at most.
const STEP_VICTIMS: usize = 16;
/// A zone is worth copying while it has at least this much garbage, in percent.
const GARBAGE_PERCENT_MIN: u64 = 4;

/// Chunks that live, by zone: a bit for each page at which a mapped chunk begins.
type Marks = HashMap<ZoneId, Vec<u64>>;

/// What is emptied.
struct Victim {
    zone: ZoneId,
    no: ZoneNo,
    /// First pages of living chunks, in order.
    live: Vec<u32>,
}

impl LogEngine {
    /// Cleans: one step of bounded work, or all that has garbage worth it.
    pub(super) fn clean(&mut self, effort: Effort) -> Result<Collected> {
        self.check_usable()?;
        let mut collected = Collected::default();
        loop {
            self.checkpoint()?;
            let victims = self.choose()?;
            if victims.is_empty() {
                break;
            }
            let (freed, copied) = self.empty(victims)?;
            collected.pages_freed += freed;
            collected.pages_copied += copied;
            if effort == Effort::Step || freed == 0 {
                collected.is_more = freed > 0;
                break;
            }
        }
        Ok(collected)
    }

    /// The zones with the most garbage, as many as free zones have room for their living chunks.
    fn choose(&mut self) -> Result<Vec<Victim>> {
        let layout = self.shared.layout;
        let marks = mark(self.shared.maps.read().values(), &layout);
        let open = self.open_zone_id();
        let zones = self.shared.zones.read();
        let mut candidates: Vec<(u64, ZoneId, ZoneNo)> = (zones.iter())
            .filter(|(id, _)| Some(*id) != open)
            .map(|(id, info)| (live_pages(marks.get(&id), &layout), id, info.no))
            .collect();
        candidates.sort_unstable();
        let zone_pages = u64::from(layout.groups_end() - 1);
        self.totals.unmapped_since_mark = 0;
        self.totals.garbage_left = candidates
            .iter()
            .map(|(live, ..)| zone_pages.saturating_sub(*live))
            .sum();
        let copies_max = zones.free().saturating_sub(1).min(STEP_COPIES);
        let mut room = u64::from(copies_max) * (zone_pages - u64::from(layout.chunk_pages));
        let mut victims = Vec::new();
        for (live, zone, no) in candidates {
            let garbage = zone_pages.saturating_sub(live);
            let is_worth_it = garbage * 100 >= zone_pages * GARBAGE_PERCENT_MIN;
            if victims.len() == STEP_VICTIMS || live > room || !is_worth_it {
                break;
            }
            room -= live;
            let live = marks
                .get(&zone)
                .map_or_else(Vec::new, |bits| pages_of(bits));
            victims.push(Victim { zone, no, live });
        }
        // Copies of less than a zone need a zone: one victim alone frees nothing unless it is empty.
        let copied: u64 = victims
            .iter()
            .map(|victim| victim.live.len() as u64 * u64::from(layout.chunk_pages))
            .sum();
        let gains = victims.len() as u64 > copied.div_ceil(zone_pages);
        Ok(if gains { victims } else { Vec::new() })
    }

    /// Copies what lives, commits, frees. Returns pages freed (net) and copied.
    fn empty(&mut self, victims: Vec<Victim>) -> Result<(u64, u64)> {
        let layout = self.shared.layout;
        let mut copier = Copier::new(self.depot);
        let mut emptied = Vec::new();
        for victim in victims {
            match self.read_living(&victim) {
                Ok(chunks) => {
                    for (row, bytes) in chunks {
                        self.copy(&mut copier, victim.zone, row, &bytes)?;
                    }
                    emptied.push(victim.zone);
                }
                Err(Error::Damaged { .. }) => self.totals.zones_damaged += 1,
                Err(error) => return Err(error),
            }
        }
        if emptied.is_empty() {
            return Ok((0, 0));
        }
        self.finish_zone(&mut copier)?;
        for map in self.shared.maps.write().values_mut() {
            relocate(map, &copier.moved, &emptied, layout.chunk_pages);
        }
        self.checkpoint_without(&emptied)?;
        let told = copier
            .rows
            .iter()
            .try_for_each(|(zone, hashes)| self.index.insert(hashes.iter().copied(), *zone));
        if told.and_then(|()| self.index.retire(&emptied)).is_err() {
            self.totals.index_failures += 1;
        }
        let copied = copier.moved.len() as u64 * u64::from(layout.chunk_pages);
        let net = emptied.len().saturating_sub(copier.rows.len()) as u64;
        self.totals.pages_copied += copied;
        self.totals.zones_freed += emptied.len() as u64;
        Ok((net * u64::from(layout.groups_end() - 1), copied))
    }

    /// Commits a manifest without the victims, then frees them.
    fn checkpoint_without(&mut self, emptied: &[ZoneId]) -> Result<()> {
        // They stay known to readers until the manifest is durable, and are not in it.
        self.condemned = emptied.to_vec();
        let committed = self.checkpoint();
        self.condemned.clear();
        committed?;
        let mut zones = self.shared.zones.write();
        emptied.iter().for_each(|zone| zones.remove(*zone));
        Ok(())
    }

    /// Rows and bytes of a victim's living chunks, proved by their checks.
    fn read_living(&self, victim: &Victim) -> Result<Vec<(Row, PageBuffer)>> {
        if victim.live.is_empty() {
            return Ok(Vec::new());
        }
        let layout = self.shared.layout;
        let table = self.shared.tables.read(victim.zone, victim.no)?;
        let hashes: HashMap<u32, ChunkHash> =
            table.rows.iter().map(|row| (row.page, row.hash)).collect();
        let mut buffers: Vec<PageBuffer> = victim
            .live
            .iter()
            .map(|_| PageBuffer::zeroed(layout.chunk_bytes()))
            .collect();
        let mut reads: Vec<ReadAt<'_>> = (victim.live.iter().zip(&mut buffers))
            .map(|(page, buffer)| ReadAt {
                offset: layout.page_offset(victim.no, *page),
                buf: buffer,
            })
            .collect();
        self.shared.data.read_many_at(&mut reads)?;
        let mut chunks = Vec::with_capacity(buffers.len());
        for (page, buffer) in victim.live.iter().zip(buffers) {
            for (page, bytes) in (*page..).zip(buffer.chunks_exact(PAGE_BYTES)) {
                let found = page_check(
                    Address {
                        zone: victim.zone,
                        page,
                    },
                    bytes,
                );
                let expected = table.checks[page as usize];
                if found != expected {
                    return Err(Error::Damaged {
                        place: format!("data at offset {}", layout.page_offset(victim.no, page)),
                        what: format!("checksum {found:#010x}, expected {expected:#010x}"),
                    });
                }
            }
            let hash = hashes.get(page).copied().unwrap_or(NO_HASH);
            chunks.push((Row { page: *page, hash }, buffer));
        }
        Ok(chunks)
    }

    /// Appends a chunk to the copied zone, and a zone where that is full.
    fn copy(&mut self, copier: &mut Copier, from: ZoneId, row: Row, bytes: &[u8]) -> Result<()> {
        let layout = self.shared.layout;
        let is_full = copier
            .open
            .as_ref()
            .is_some_and(|open| open.page + layout.chunk_pages > layout.groups_end());
        if is_full {
            self.finish_zone(copier)?;
        }
        if copier.open.is_none() {
            copier.open = Some(self.open_copied(&layout)?);
        }
        let open = copier.open.as_mut().expect("opened above");
        let target = Address {
            zone: open.zone,
            page: open.page,
        };
        open.add(row.hash, bytes);
        copier.moved.insert(
            Address {
                zone: from,
                page: row.page,
            },
            target,
        );
        Ok(())
    }

    fn open_copied(&mut self, layout: &Layout) -> Result<CopiedZone> {
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
            data: Vec::with_capacity(layout.zone_bytes() as usize),
            rows: Vec::new(),
            checks: vec![0; layout.zone_pages as usize],
        })
    }

    /// Writes the copied zone that is being filled, with its table.
    fn finish_zone(&mut self, copier: &mut Copier) -> Result<()> {
        let Some(open) = copier.open.take() else {
            return Ok(());
        };
        let header = ZoneHeader {
            depot: copier.depot,
            zone: open.zone,
            stream: Stream::Copied,
            previous: None,
            next: open.no,
            sequence: self.sequence(),
        };
        let bytes = [header.encode(), open.data].concat();
        let offset = self.shared.layout.zone_offset(open.no);
        let written = self
            .shared
            .data
            .write_at(&bytes, offset)
            .map_err(Error::from);
        self.fail(written)?;
        copier
            .rows
            .push((open.zone, open.rows.iter().map(|row| row.hash).collect()));
        let table = ZoneTable {
            zone: open.zone,
            rows: open.rows,
            checks: open.checks,
            pages_used: open.page,
            sequence: self.sequence() - 1,
        };
        let written = self.shared.tables.write(table, open.no);
        self.fail(written)?;
        self.shared.zones.write().seal(open.zone, open.page);
        Ok(())
    }
}

/// Where living chunks are copied to.
struct Copier {
    depot: [u8; 16],
    open: Option<CopiedZone>,
    /// Old address → new address.
    moved: HashMap<Address, Address>,
    /// Hashes of each zone that was filled.
    rows: Vec<(ZoneId, Vec<ChunkHash>)>,
}

impl Copier {
    fn new(depot: [u8; 16]) -> Self {
        Self {
            depot,
            open: None,
            moved: HashMap::new(),
            rows: Vec::new(),
        }
    }
}

/// A copied zone that is being filled.
struct CopiedZone {
    zone: ZoneId,
    no: ZoneNo,
    page: u32,
    data: Vec<u8>,
    rows: Vec<Row>,
    checks: Vec<u32>,
}

impl CopiedZone {
    fn add(&mut self, hash: ChunkHash, bytes: &[u8]) {
        self.rows.push(Row {
            page: self.page,
            hash,
        });
        for bytes in bytes.chunks_exact(PAGE_BYTES) {
            let address = Address {
                zone: self.zone,
                page: self.page,
            };
            self.checks[self.page as usize] = page_check(address, bytes);
            self.page += 1;
        }
        self.data.extend_from_slice(bytes);
    }
}

/// Marks the first page of every chunk that some map names.
fn mark<'a>(maps: impl Iterator<Item = &'a ExtentMap>, layout: &Layout) -> Marks {
    let mut marks = Marks::new();
    for (_, extent) in maps.flat_map(ExtentMap::iter) {
        let bits = marks
            .entry(extent.target.zone)
            .or_insert_with(|| vec![0; (layout.zone_pages as usize).div_ceil(64)]);
        for ahead in 0..extent.chunks {
            let page = extent.target_at(ahead, layout.chunk_pages).page as usize;
            bits[page / 64] |= 1 << (page % 64);
        }
    }
    marks
}

fn live_pages(bits: Option<&Vec<u64>>, layout: &Layout) -> u64 {
    let chunks: u32 = bits.map_or(0, |bits| bits.iter().map(|word| word.count_ones()).sum());
    u64::from(chunks) * u64::from(layout.chunk_pages)
}

fn pages_of(bits: &[u64]) -> Vec<u32> {
    let pages = 0..bits.len() as u32 * 64;
    pages
        .filter(|page| bits[*page as usize / 64] >> (page % 64) & 1 == 1)
        .collect()
}

/// Leads the map's chunks in emptied zones to their copies.
fn relocate(
    map: &mut ExtentMap,
    moved: &HashMap<Address, Address>,
    emptied: &[ZoneId],
    chunk_pages: u32,
) {
    let hurt: Vec<_> = map
        .iter()
        .filter(|(_, extent)| emptied.contains(&extent.target.zone))
        .collect();
    for (lbn, extent) in hurt {
        for ahead in 0..extent.chunks {
            let target = moved[&extent.target_at(ahead, chunk_pages)];
            map.set(lbn + ahead, 1, Some(target), chunk_pages);
        }
    }
}
