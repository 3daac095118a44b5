//! Where things lie on the data device: zones, pages within a zone, and the addresses that name them.
//!
//! ```text
//! device := head zone*                 zone n begins at byte n × zone_bytes behind the head of DEVICE_HEAD_BYTES
//! zone   := header page | groups | rows pages | check pages | footer page
//! ```
//!
//! A zone is written from start to end and freed as a whole. Rows, checks and footer are its *table*: written when the
//! zone is full, so that nobody has to read the groups to know what the zone holds. They have fixed places at the end:
//! one page read finds the checks of 1,024 pages, or of 256 where they are tags of sealed pages.

use onefold_io::varint::ByteReader;

use super::checks::CRC_BYTES;
use crate::{Error, Result};

/// Bytes of a page: the unit in which the data device is read, written and checked.
pub const PAGE_BYTES: usize = 4096;

/// Smallest and largest zone, in bytes.
const ZONE_BYTES_MIN: u64 = 256 << 10;
const ZONE_BYTES_MAX: u64 = 4 << 20;
/// A device has at least this many zones where it is large enough, so that cleaning has a choice.
const ZONES_WANTED: u64 = 1024;
/// No number of zones, groups, runs or files reaches this one.
const COUNTED_MAX: u64 = 1 << 62;
/// Bytes of a row: page u16, slot u8, hash 16.
pub const ROW_BYTES: usize = 19;

/// Takes a stored number that counts one by one and never comes near its end.
///
/// # Errors
/// [`Damaged`](crate::Error::Damaged): the number is so large that nobody can have counted to it.
pub fn take_counter(reader: &mut ByteReader<'_>) -> Result<u64> {
    let number = reader.u64()?;
    if number < COUNTED_MAX {
        Ok(number)
    } else {
        let what = format!("number {number}, expected less than {COUNTED_MAX}");
        Err(reader.damaged(what).into())
    }
}

/// A zone's place on the device: it begins at `ZoneNo × zone_bytes` behind the head.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ZoneNo(pub u32);

/// One filling of a zone. Never given twice, not even after a crash, so that an address cannot mean another page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ZoneId(pub u64);

impl ZoneId {
    /// Set in ids that stand for a group which is not written yet. Real ids stay far below.
    const PENDING: u64 = 1 << 63;

    /// Takes an id that was stored.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged): no filling of a zone has it.
    pub fn take(reader: &mut ByteReader<'_>) -> Result<Self> {
        take_counter(reader).map(Self)
    }

    /// Stands for the zone of the group `sequence` until that is written; pages then count within the group's data.
    pub fn pending(sequence: u64) -> Self {
        Self(Self::PENDING | sequence)
    }

    /// Whether this stands for a group that is not written yet.
    pub fn is_pending(self) -> bool {
        self.0 & Self::PENDING != 0
    }
}

/// Where a chunk lies: a filling of a zone, and the place within the zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// The filling.
    pub zone: ZoneId,
    /// The chunk's first page, counted from the zone's header page.
    pub page: u32,
    /// The chunk's slot in a packed page, from 1 on; [`WHOLE`] where the chunk has its pages for itself.
    pub slot: u8,
}

/// Stands for no slot: the chunk is not packed.
pub const WHOLE: u8 = 0;

impl Address {
    /// The place within the zone.
    pub fn place(self) -> ZonePlace {
        ZonePlace::new(self.page, self.slot)
    }

    /// The page without the slot. Checks, relocations and damage are a page's.
    pub fn of_page(self) -> Self {
        Self {
            slot: WHOLE,
            ..self
        }
    }

    /// The chunk that lies `chunks` behind this one: in the same page where this one is packed.
    pub fn ahead(self, chunks: u64, chunk_pages: u32) -> Self {
        match self.slot {
            WHOLE => Self {
                page: self.page + chunks as u32 * chunk_pages,
                ..self
            },
            slot => Self {
                slot: slot + chunks as u8,
                ..self
            },
        }
    }

    /// Whether `next` lies `chunks` behind this one.
    pub fn is_followed_by(self, next: Self, chunks: u64, chunk_pages: u32) -> bool {
        let (first, last) = match self.slot {
            WHOLE => (u64::from(self.page), u64::from(next.page)),
            slot => (u64::from(slot), u64::from(next.slot)),
        };
        let step = if self.slot == WHOLE { chunk_pages } else { 1 };
        let is_alike = match self.slot {
            WHOLE => next.slot == WHOLE,
            _ => next.page == self.page,
        };
        self.zone == next.zone && is_alike && first + chunks * u64::from(step) == last
    }
}

/// Bits of a place that hold the page; those above hold the slot.
const PLACE_PAGE_BITS: u32 = 12;

/// A chunk's place within a zone in 16 bits: the page, and above it the slot. A chunk that is not packed has its
/// page's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ZonePlace(pub u16);

impl ZonePlace {
    /// The largest number.
    pub const MAX: u64 = u16::MAX as u64;

    /// The place of a page, or of a slot of it.
    pub fn new(page: u32, slot: u8) -> Self {
        debug_assert!(page < 1 << PLACE_PAGE_BITS && slot <= SLOTS_MAX);
        Self(page as u16 | u16::from(slot) << PLACE_PAGE_BITS)
    }

    /// The page.
    pub fn page(self) -> u32 {
        u32::from(self.0) & ((1 << PLACE_PAGE_BITS) - 1)
    }

    /// The slot, or [`WHOLE`].
    pub fn slot(self) -> u8 {
        (self.0 >> PLACE_PAGE_BITS) as u8
    }

    /// Whether this many chunks may lie one behind the other from here on: in slots of one page, or in pages of their
    /// own.
    pub fn has_behind(self, chunks: u64) -> bool {
        match self.slot() {
            WHOLE => chunks <= u64::from((1 << PLACE_PAGE_BITS) - self.page()),
            slot => chunks <= u64::from(SLOTS_MAX + 1 - slot),
        }
    }

    /// The place in a zone.
    pub fn in_zone(self, zone: ZoneId) -> Address {
        Address {
            zone,
            page: self.page(),
            slot: self.slot(),
        }
    }
}

/// Chunks of a packed page at most: a slot has four bits of a place.
pub const SLOTS_MAX: u8 = 15;

/// Pages of zones have places.
const _: () = assert!(ZONE_BYTES_MAX / PAGE_BYTES as u64 <= 1 << PLACE_PAGE_BITS);

/// Sizes of a depot's zones and chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Pages of a zone.
    pub zone_pages: u32,
    /// Zones of the device.
    pub zones: u32,
    /// Pages of a chunk.
    pub chunk_pages: u32,
    /// Bytes of a page's check.
    pub check_bytes: u32,
}

impl Layout {
    /// The layout of a device of `device_bytes` for chunks of `chunk_bytes`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the chunk is no power of two from 4 KiB to 64 KiB, or the device holds fewer than
    /// `ZONES_MIN` zones.
    pub fn new(device_bytes: u64, chunk_bytes: u32) -> Result<Self> {
        let invalid = |what: String| Err(Error::Invalid { what });
        if !chunk_bytes.is_power_of_two() || !(4096..=65536).contains(&chunk_bytes) {
            return invalid(format!(
                "engine log takes chunks of 4 KiB to 64 KiB, powers of two; {chunk_bytes} bytes were asked for"
            ));
        }
        let fitting = (device_bytes / ZONES_WANTED).max(1).next_power_of_two() / 2;
        let zone_bytes = fitting.clamp(ZONE_BYTES_MIN, ZONE_BYTES_MAX);
        let layout = Self {
            zone_pages: (zone_bytes / PAGE_BYTES as u64) as u32,
            zones: (device_bytes / zone_bytes).min(u64::from(ZONES_MAX)) as u32,
            chunk_pages: chunk_bytes / PAGE_BYTES as u32,
            check_bytes: CRC_BYTES,
        };
        if layout.zones < ZONES_MIN {
            return invalid(format!(
                "engine log needs a data device of at least {} bytes; this one has {device_bytes}",
                u64::from(ZONES_MIN) * zone_bytes
            ));
        }
        Ok(layout)
    }

    /// The layout with checks of another width.
    pub fn with_checks_of(self, check_bytes: u32) -> Self {
        Self {
            check_bytes,
            ..self
        }
    }

    /// Whether a device can be laid out so: what a manifest says is not taken on trust.
    pub fn is_sound(&self) -> bool {
        let zone_pages =
            (ZONE_BYTES_MIN / PAGE_BYTES as u64)..=(ZONE_BYTES_MAX / PAGE_BYTES as u64);
        zone_pages.contains(&u64::from(self.zone_pages))
            && matches!(self.chunk_pages, 1 | 2 | 4 | 8 | 16)
            && (ZONES_MIN..=ZONES_MAX).contains(&self.zones)
    }

    /// Bytes of a zone.
    pub fn zone_bytes(&self) -> u64 {
        u64::from(self.zone_pages) * PAGE_BYTES as u64
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_pages as usize * PAGE_BYTES
    }

    /// Where the zone begins, in bytes.
    pub fn zone_offset(&self, no: ZoneNo) -> u64 {
        u64::from(no.0) * self.zone_bytes()
    }

    /// Where a page of the zone begins, in bytes.
    pub fn page_offset(&self, no: ZoneNo, page: u32) -> u64 {
        self.zone_offset(no) + u64::from(page) * PAGE_BYTES as u64
    }

    /// Pages for rows: one row for each chunk that the zone could hold.
    fn row_pages(&self) -> u32 {
        let rows = (self.zone_pages / self.chunk_pages) as usize;
        ((rows + 1) * ROW_BYTES).div_ceil(PAGE_BYTES) as u32
    }

    fn check_pages(&self) -> u32 {
        (self.zone_pages * self.check_bytes).div_ceil(PAGE_BYTES as u32)
    }

    /// First page behind the groups at most: the table begins there where a zone has no more rows than it has pages.
    pub fn groups_end(&self) -> u32 {
        self.zone_pages - self.row_pages() - self.check_pages() - 1
    }

    /// First page behind the groups of a zone with this many rows: packed pages have several each, and the table begins
    /// earlier then.
    pub fn groups_end_with(&self, rows: usize) -> u32 {
        let behind_rows = self.zone_pages - self.check_pages() - 1;
        let row_pages = (rows * ROW_BYTES).div_ceil(PAGE_BYTES) as u32;
        behind_rows.saturating_sub(row_pages.max(self.row_pages()))
    }

    /// Pages of the table of a zone with this many rows: rows, checks, footer.
    pub fn table_pages(&self, rows: usize) -> u32 {
        self.zone_pages - self.groups_end_with(rows)
    }

    /// Rows of a zone at most.
    pub fn rows_max(&self) -> usize {
        self.zone_pages as usize * usize::from(SLOTS_MAX)
    }

    /// Bytes of the checks in the table.
    pub fn checks_bytes(&self) -> usize {
        self.check_pages() as usize * PAGE_BYTES
    }

    /// Pages of chunks that a copied zone has room for at least: all of them might be packed to the last slot.
    pub fn packed_pages_min(&self) -> u32 {
        let pages = self.groups_end_with(0) - 1;
        let fits =
            |pages: &u32| self.groups_end_with(*pages as usize * usize::from(SLOTS_MAX)) > *pages;
        (1..=pages).rev().find(fits).unwrap_or(1)
    }

    /// Chunks that a zone holds at most where none is packed: each group costs a page besides.
    pub fn chunks_a_zone(&self) -> u64 {
        u64::from((self.groups_end() - 2) / self.chunk_pages)
    }
}

/// Bytes of the data device before the first zone: the head of the depot.
pub const DEVICE_HEAD_BYTES: u64 = 64 << 10;

/// The offset on the data device of an offset in the part that holds zones. Messages tell this one, by which other
/// programs know the place.
pub fn on_device(offset: u64) -> u64 {
    DEVICE_HEAD_BYTES + offset
}

/// Fewest zones of a depot: those that are always kept free for cleaning, the journal and metadata, and some for data.
pub const ZONES_MIN: u32 = 16;

/// Largest number of zones of a depot: 16 TiB in zones of 4 MiB.
const ZONES_MAX: u32 = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depot_of_64_mib_is_possible_and_tables_fit_behind_groups() {
        for device_mib in [64u64, 1024, 1 << 20] {
            for chunk_bytes in [4096, 16384, 65536] {
                let layout = Layout::new(device_mib << 20, chunk_bytes).expect("large enough");
                let sealed = layout.with_checks_of(16);
                assert!(sealed.groups_end() + 3 >= layout.groups_end());
                assert!(sealed.checks_bytes() >= layout.zone_pages as usize * 16);
                assert!(layout.zones >= 16);
                assert!(layout.zone_bytes() >= 256 << 10 && layout.zone_bytes() <= 4 << 20);
                let rows = layout.chunks_a_zone() as usize + 1;
                assert_eq!(layout.groups_end_with(rows), layout.groups_end());
                assert!(layout.groups_end() > 2 + layout.chunk_pages);
                let packed = layout.packed_pages_min();
                let rows = packed as usize * usize::from(SLOTS_MAX);
                assert!(layout.groups_end_with(rows) > packed);
                assert!(packed >= (layout.groups_end() - 1) * 7 / 8, "{packed}");
            }
        }
        assert!(Layout::new(1 << 20, 4096).is_err());
        assert!(Layout::new(1 << 30, 512).is_err());
    }

    #[test]
    fn places_of_pages_are_their_numbers_and_slots_lie_above() {
        for (page, slot) in [(0, WHOLE), (1023, WHOLE), (7, 1), (4095, SLOTS_MAX)] {
            let place = ZonePlace::new(page, slot);
            assert_eq!((place.page(), place.slot()), (page, slot));
            assert_eq!(u32::from(place.0) == page, slot == WHOLE);
            let address = place.in_zone(ZoneId(3));
            assert_eq!((address.place(), address.of_page().slot), (place, WHOLE));
        }
        let at = |page, slot| ZonePlace::new(page, slot).in_zone(ZoneId(3));
        assert!(at(5, 2).is_followed_by(at(5, 4), 2, 1) && at(5, 2).ahead(2, 1) == at(5, 4));
        assert!(at(5, 0).is_followed_by(at(13, 0), 2, 4) && at(5, 0).ahead(2, 4) == at(13, 0));
        assert!(
            !at(5, 0).is_followed_by(at(7, 1), 2, 1) && !at(5, 2).is_followed_by(at(6, 4), 2, 1)
        );
        assert!(ZonePlace::new(7, 14).has_behind(2) && !ZonePlace::new(7, 14).has_behind(3));
        assert!(
            ZonePlace::new(4095, WHOLE).has_behind(1) && !ZonePlace::new(4095, WHOLE).has_behind(2)
        );
        let other = ZonePlace::new(5, 4).in_zone(ZoneId(4));
        assert!(!at(5, 2).is_followed_by(other, 2, 1));
    }
}
