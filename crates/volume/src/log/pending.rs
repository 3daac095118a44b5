//! The group that is not written yet, and how it is written: packed where that is worth it.
//!
//! ```text
//! changes, chunks ─▶ packed ─▶ header, checks ─▶ one write ─▶ readers find the chunks on the device
//! ```
//!
//! Until the write is done, maps name the chunks by their numbers in the group, and readers take them from RAM as they
//! came. Invariant: nothing names a place in the zone before the write of that place succeeded.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::checks::Checks;
use super::group::{Entry, GroupContent, GroupHeader, encode_header};
use super::layout::{Layout, PAGE_BYTES, WHOLE, ZoneId, ZonePlace};
use super::page_sealer::PageSealer;
use super::tables::ZoneChecks;
use super::writer::LogEngine;
use super::zone::{ChunkHash, NO_HASH};
use super::zone_table::Row;
use crate::Result;

/// Changes and new chunks that are not written yet; the data is shared with readers.
pub(super) struct PendingGroup {
    entries: Vec<Entry>,
    /// Entries at most when its chunks are packed: each chunk that is named may take an entry of its own.
    entries_packed: usize,
    /// New chunks, in order of their pages.
    chunks: Vec<PendingChunk>,
    /// Pages within the group's data.
    by_hash: HashMap<ChunkHash, u32>,
    chunk_pages: u32,
}

/// A chunk of a group that is not written yet.
struct PendingChunk {
    hash: ChunkHash,
    /// Its page within the group's data.
    page: u32,
}

impl PendingGroup {
    /// An empty group.
    pub fn new(layout: &Layout) -> Self {
        Self {
            entries: Vec::new(),
            entries_packed: 0,
            chunks: Vec::new(),
            by_hash: HashMap::new(),
            chunk_pages: layout.chunk_pages,
        }
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.chunks.is_empty()
    }

    /// Number of new chunks.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Entries that the group will have at most.
    pub fn entries_max(&self, is_packed: bool) -> usize {
        if is_packed {
            self.entries_packed
        } else {
            self.entries.len()
        }
    }

    /// Where a chunk lies within the group's data.
    pub fn place_of(&self, hash: &ChunkHash) -> Option<ZonePlace> {
        (self.by_hash.get(hash)).map(|page| ZonePlace::new(*page, WHOLE))
    }

    /// Adds a change.
    pub fn add(&mut self, entry: Entry) {
        let is_pending = (entry.target).is_some_and(|target| target.zone.is_pending());
        let is_joined = join(&mut self.entries, entry, self.chunk_pages);
        self.entries_packed += usize::from(is_pending || !is_joined);
    }

    /// Adds a chunk that lies at a page of the group's data.
    pub fn add_chunk(&mut self, hash: ChunkHash, page: u32) {
        self.chunks.push(PendingChunk { hash, page });
        if hash != NO_HASH {
            self.by_hash.insert(hash, page);
        }
    }

    /// Its changes, with each chunk where packing put it.
    fn packed_entries(&self, places: &[ZonePlace]) -> Vec<Entry> {
        let mut packed = Vec::with_capacity(self.entries_packed);
        for entry in &self.entries {
            let Some(first) = entry.target.filter(|target| target.zone.is_pending()) else {
                packed.push(*entry);
                continue;
            };
            let places = places[first.page as usize..].iter();
            for (ahead, place) in (0..entry.chunks).zip(places) {
                let one = Entry {
                    lbn: entry.lbn + ahead,
                    chunks: 1,
                    target: Some(place.in_zone(first.zone)),
                    ..*entry
                };
                join(&mut packed, one, self.chunk_pages);
            }
        }
        packed
    }
}

/// Adds an entry to others: as a part of the last one where it goes on there. Returns whether it does.
fn join(entries: &mut Vec<Entry>, entry: Entry, chunk_pages: u32) -> bool {
    let last = entries.last_mut();
    match last.filter(|last| last.is_followed_by(&entry, chunk_pages)) {
        Some(last) => {
            last.chunks += entry.chunks;
            true
        }
        None => {
            entries.push(entry);
            false
        }
    }
}

/// A group on the device.
struct WrittenGroup {
    header: GroupHeader,
    /// Its chunks, in order.
    rows: Vec<Row>,
    bytes: usize,
}

impl LogEngine {
    /// Writes the pending group behind the zone's last one.
    pub(super) fn close_group(&mut self) -> Result<()> {
        self.check_usable()?;
        if self.pending.is_empty() {
            return Ok(());
        }
        let written = self.write_group();
        let group = self.fail(written)?;
        self.pending = PendingGroup::new(&self.shared.layout);
        self.packer.clear();
        let zone = self.zone.as_mut().expect("the group was written to it");
        let pages = (group.bytes / PAGE_BYTES) as u32;
        zone.page += pages;
        for row in &group.rows {
            zone.by_hash.insert(row.hash, row.place());
        }
        zone.rows.extend_from_slice(&group.rows);
        zone.by_hash.remove(&NO_HASH);
        let (id, header) = (zone.id, &group.header);
        let sealer = zone.sealer.clone();
        self.publish(id, &sealer, header);
        self.log_bytes += group.bytes as u64;
        self.totals.groups += 1;
        self.totals.group_pages += u64::from(pages);
        self.totals.journal_since_mark += u64::from(pages) - header.checks.len() as u64;
        let hashes = group.rows.iter().map(|row| row.hash);
        if self.index.insert(hashes, id).is_err() {
            self.totals.index_failures += 1;
        }
        Ok(())
    }

    fn write_group(&mut self) -> Result<WrittenGroup> {
        let zone = (self.zone.as_ref()).expect("room was made before anything was added");
        let (layout, pending) = (&self.shared.layout, &self.pending);
        let offset = layout.page_offset(zone.no, zone.page);
        let content = |data_pages, entries| GroupContent {
            zone: zone.id,
            page: zone.page,
            sequence: self.sequence,
            durable: self.durable,
            data_pages,
            entries,
        };
        let (sealer, device) = (&zone.sealer, &self.shared.data);
        let as_they_came = || {
            let pages = pending.chunks.iter().map(|chunk| chunk.page);
            pages.map(|page| ZonePlace::new(page, WHOLE)).collect()
        };
        let data = Arc::clone(&self.shared.open_group.read().data);
        // A group is packed or sealed in a copy: readers have the chunks as they came until the write is done.
        let copied = match self.packer.pack(data.data()) {
            Some((buffer, places)) => {
                let entries = Cow::Owned(pending.packed_entries(&places));
                Some((buffer, places, entries))
            }
            None if sealer.seals() => {
                let entries = Cow::Borrowed(&pending.entries[..]);
                Some((self.packer.copy(data.data()), as_they_came(), entries))
            }
            None => None,
        };
        let (header, places, bytes) = match copied {
            Some((buffer, places, entries)) => {
                let content = content(buffer.pages(), &entries);
                let seal = |first| sealer.seal(first, buffer.data_mut());
                let (header_pages, header) = encode_header(&content, sealer, seal);
                buffer.set_header(&header_pages);
                device.write_at(buffer.group(), offset)?;
                (header, places, buffer.group().len())
            }
            None => {
                let content = content(data.pages(), &pending.entries);
                let checks = |first| PageSealer::checksums(first, data.data());
                let (header_pages, header) = encode_header(&content, sealer, checks);
                drop(data);
                let group = {
                    let mut open = self.shared.open_group.write();
                    open.data_mut().set_header(&header_pages);
                    Arc::clone(&open.data)
                };
                device.write_at(group.group(), offset)?;
                (header, as_they_came(), group.group().len())
            }
        };
        let rows = pending.chunks.iter().zip(places).map(|(chunk, place)| Row {
            page: header.first_data_page + place.page(),
            slot: place.slot(),
            hash: chunk.hash,
        });
        Ok(WrittenGroup {
            rows: rows.collect(),
            header,
            bytes,
        })
    }

    /// Lets readers find the group's chunks on the device, and begins the next group.
    fn publish(&mut self, zone: ZoneId, sealer: &PageSealer, group: &GroupHeader) {
        self.sequence += 1;
        let mut open = self.shared.open_group.write();
        {
            let mut all = self.shared.open_checks.write();
            let open_zone = all.entry(zone).or_insert_with(|| ZoneChecks {
                checks: Checks::none(sealer.check_bytes()),
                sealer: sealer.clone(),
            });
            let first = group.first_data_page as usize;
            open_zone.checks.extend_at(first, &group.checks);
        }
        for entry in &group.entries {
            self.shared
                .map(entry.head, entry.lbn, entry.chunks, entry.target);
        }
        open.sequence = self.sequence;
        open.data_mut().clear();
    }
}
