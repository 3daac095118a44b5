//! The group that is not written yet, and how it is written: packed where that is worth it.
//!
//! ```text
//! changes, chunks ─▶ packed ─▶ header, checks ─▶ held ─▶ readers find the chunks at their places ─▶ one write
//! ```
//!
//! Until the group is held, maps name the chunks by their numbers in it, and readers take them from RAM as they came.
//! Invariant: nothing names a place in the zone before the group of that place is held ([`GroupDisk`]).
//!
//! [`GroupDisk`]: super::group_disk::GroupDisk

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::checks::Checks;
use super::group::{Entry, GroupContent, GroupHeader, encode_header};
use super::group_buffer::GroupBuffer;
use super::layout::{Layout, PAGE_BYTES, WHOLE, ZoneId, ZonePlace};
use super::packer::Packer;
use super::page_sealer::PageSealer;
use super::shared::Shared;
use super::tables::ZoneChecks;
use super::writer::{LogEngine, OpenZone};
use super::zone::{ChunkHash, NO_HASH};
use super::zone_table::Row;
use crate::{Error, Result};

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

    /// Packs and seals the group, and gives it its header.
    fn ready(
        &self,
        zone: &OpenZone,
        shared: &Shared,
        packer: &mut Packer,
        (sequence, durable): (u64, u64),
    ) -> ReadyGroup {
        let content = |data_pages, entries| GroupContent {
            zone: zone.id,
            page: zone.page,
            sequence,
            durable,
            data_pages,
            entries,
        };
        let sealer = &zone.sealer;
        let as_they_came = || {
            let pages = self.chunks.iter().map(|chunk| chunk.page);
            pages.map(|page| ZonePlace::new(page, WHOLE)).collect()
        };
        let open = shared.open_group.read();
        let data = open.data.data();
        // A group is packed or sealed in a copy: readers have the chunks as they came until the group is held.
        let copied = match packer.pack(data) {
            Some((buffer, places)) => {
                let entries = Cow::Owned(self.packed_entries(&places));
                Some((buffer, places, entries))
            }
            None if sealer.seals() => {
                let entries = Cow::Borrowed(&self.entries[..]);
                Some((packer.copy(data), as_they_came(), entries))
            }
            None => None,
        };
        let is_copied = copied.is_some();
        let (header, places, bytes) = match copied {
            Some((buffer, places, entries)) => {
                let content = content(buffer.pages(), &entries);
                let seal = |first| sealer.seal(first, buffer.data_mut());
                let (header_pages, header) = encode_header(&content, sealer, seal);
                buffer.set_header(&header_pages);
                (header, places, buffer.group().len())
            }
            None => {
                let content = content(open.data.pages(), &self.entries);
                let checks = |first| PageSealer::checksums(first, data);
                let (header_pages, header) = encode_header(&content, sealer, checks);
                drop(open);
                let mut open = shared.open_group.write();
                open.data.set_header(&header_pages);
                (header, as_they_came(), open.data.group().len())
            }
        };
        let rows = self.chunks.iter().zip(places).map(|(chunk, place)| Row {
            page: header.first_data_page + place.page(),
            slot: place.slot(),
            hash: chunk.hash,
        });
        ReadyGroup {
            rows: rows.collect(),
            header,
            pages: (bytes / PAGE_BYTES) as u32,
            is_copied,
        }
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

/// A group that is ready to be written.
struct ReadyGroup {
    header: GroupHeader,
    /// Its chunks, in order.
    rows: Vec<Row>,
    pages: u32,
    /// Whether its bytes are the packer's: those of the open group are left to readers as they came.
    is_copied: bool,
}

impl LogEngine {
    /// Has the pending group written behind the zone's last one, while the next one is filled.
    pub(super) fn close_group(&mut self) -> Result<()> {
        self.hold_group()?;
        let started = self.shared.groups.start().map_err(Error::from);
        self.fail(started)
    }

    /// Gives the pending group its place behind the zone's last one. Whoever waits for the device next writes it.
    pub(super) fn hold_group(&mut self) -> Result<()> {
        self.check_usable()?;
        if self.pending.is_empty() {
            return Ok(());
        }
        const ROOM: &str = "room was made before anything was added";
        let zone = self.zone.as_ref().expect(ROOM);
        let numbers = (self.sequence, self.durable);
        let pending = &self.pending;
        let group = pending.ready(zone, &self.shared, &mut self.packer, numbers);
        let groups = Arc::clone(&self.shared.groups);
        // The group before is on the device when this returns.
        let spare = self.fail(groups.spare().map_err(Error::from))?;
        let zone = self.zone.as_mut().expect(ROOM);
        let offset = self.shared.layout.page_offset(zone.no, zone.page);
        zone.page += group.pages;
        for row in &group.rows {
            zone.by_hash.insert(row.hash, row.place());
        }
        zone.rows.extend_from_slice(&group.rows);
        zone.by_hash.remove(&NO_HASH);
        let (id, sealer) = (zone.id, zone.sealer.clone());
        self.publish((id, offset), &sealer, &group, spare);
        self.pending = PendingGroup::new(&self.shared.layout);
        self.packer.clear();
        self.log_bytes += u64::from(group.pages) * PAGE_BYTES as u64;
        self.totals.groups += 1;
        self.totals.group_pages += u64::from(group.pages);
        self.totals.journal_since_mark += u64::from(group.pages) - group.header.checks.len() as u64;
        let hashes = group.rows.iter().map(|row| row.hash);
        if self.index.insert(hashes, id).is_err() {
            self.totals.index_failures += 1;
        }
        Ok(())
    }

    /// Everything written so far is on the device, perhaps in its cache.
    pub(super) fn write_groups(&mut self) -> Result<()> {
        self.hold_group()?;
        let settled = self.shared.groups.settle().map_err(Error::from);
        self.fail(settled)
    }

    /// Lets readers find the group's chunks at its place, and begins the next group in `spare`.
    fn publish(
        &mut self,
        (zone, offset): (ZoneId, u64),
        sealer: &PageSealer,
        group: &ReadyGroup,
        spare: GroupBuffer,
    ) {
        self.sequence += 1;
        let mut open = self.shared.open_group.write();
        let written = if group.is_copied {
            open.data.clear();
            self.packer.give_away(spare)
        } else {
            std::mem::replace(&mut open.data, spare)
        };
        self.shared.groups.hold(written, offset);
        {
            let mut all = self.shared.open_checks.write();
            let open_zone = all.entry(zone).or_insert_with(|| ZoneChecks {
                checks: Checks::none(sealer.check_bytes()),
                sealer: sealer.clone(),
            });
            let first = group.header.first_data_page as usize;
            open_zone.checks.extend_at(first, &group.header.checks);
        }
        for entry in &group.header.entries {
            self.shared
                .map(entry.head, entry.lbn, entry.chunks, entry.target);
        }
        open.sequence = self.sequence;
    }
}
