//! Copying living chunks out of zones that are to be freed.

use std::collections::HashMap;

use onefold_io::{PageBuffer, ReadAt};

use super::check::page_check;
use super::layout::{Address, Layout, PAGE_BYTES, ZoneId, ZoneNo, on_device};
use super::relocations::Moved;
use super::writer::LogEngine;
use super::zone::{ChunkHash, NO_HASH, Row, Stream, ZoneHeader, ZoneTable};
use crate::{Error, Result};

/// A zone that is emptied.
pub(super) struct Victim {
    pub zone: ZoneId,
    pub no: ZoneNo,
    /// First pages of chunks that lived at the mark, in order. A zone has fewer pages than 2^16.
    pub live: Vec<u16>,
}

impl Victim {
    /// Pages of its living chunks.
    pub fn live_pages(&self, layout: &Layout) -> u64 {
        self.live.len() as u64 * u64::from(layout.chunk_pages)
    }
}

impl LogEngine {
    /// Rows and bytes of a victim's living chunks, proved by their checks.
    pub(super) fn read_living(&self, victim: &Victim) -> Result<Vec<(Row, PageBuffer)>> {
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
                offset: layout.page_offset(victim.no, u32::from(*page)),
                buf: buffer,
            })
            .collect();
        self.shared.data.read_many_at(&mut reads)?;
        let mut chunks = Vec::with_capacity(buffers.len());
        for (page, buffer) in victim.live.iter().map(|page| u32::from(*page)).zip(buffers) {
            for (page, bytes) in (page..).zip(buffer.chunks_exact(PAGE_BYTES)) {
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
                        place: format!(
                            "data at offset {}",
                            on_device(layout.page_offset(victim.no, page))
                        ),
                        what: format!("checksum {found:#010x}, expected {expected:#010x}"),
                    });
                }
            }
            let hash = hashes.get(&page).copied().unwrap_or(NO_HASH);
            chunks.push((Row { page, hash }, buffer));
        }
        Ok(chunks)
    }

    /// Appends a chunk to the copied zone, and a zone where that is full.
    pub(super) fn copy(
        &mut self,
        copier: &mut Copier,
        from: ZoneId,
        row: Row,
        bytes: &[u8],
    ) -> Result<()> {
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
    pub(super) fn finish_zone(&mut self, copier: &mut Copier) -> Result<()> {
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
pub(super) struct Copier {
    depot: [u8; 16],
    open: Option<CopiedZone>,
    pub moved: Moved,
    /// Hashes of each zone that was filled.
    pub rows: Vec<(ZoneId, Vec<ChunkHash>)>,
}

impl Copier {
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
