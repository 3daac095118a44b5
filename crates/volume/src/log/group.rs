//! A group: one append to the log. Header pages tell what changed, data pages follow.
//!
//! ```text
//! group   := header pages (frame 1FVGROUP, zeros to the page's end) data page*
//! payload := zone:u64 sequence:u64 durable:u64 data_pages:varint check{data_pages} entries:varint entry*
//! entry   := head:varint lbn:zigzag varint (difference to the end of the entry before) chunks:varint kind:u8 place
//! place   := (kind 0, hole)    nothing
//!          | (kind 1, new)     place among the data pages of this group: varint
//!          | (kind 2, known)   zone:varint place:varint
//! ```
//!
//! Chunks of an entry lie one behind the other. A group counts only if its frame and the checks of all its data pages
//! are right, it names the zone that it lies in, and its sequence follows the one before. `durable` is the newest
//! sequence that was synced when the group was written: it tells a torn tail from damage in the middle. In an encrypted
//! depot the payload is sealed as the message of the group's first page, and the checks are tags of sealed pages.

use onefold_io::frame::{FrameKind, OVERHEAD_BYTES, decode_frame, encode_frame};
use onefold_io::varint::{ByteReader, put_varint, unzigzag, zigzag};

use super::checks::Checks;
use super::layout::{Address, PAGE_BYTES, WHOLE, ZoneId, ZonePlace, take_counter};
use super::page_sealer::PageSealer;
use super::zone::damaged;
use crate::{HeadId, Result};

/// The frame of a group's header.
pub const GROUP_KIND: FrameKind = FrameKind {
    magic: *b"1FVGROUP",
    version: 1,
};
/// The frame of a sealed one.
const SEALED: FrameKind = FrameKind {
    version: 2,
    ..GROUP_KIND
};

/// One change of the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The volume.
    pub head: HeadId,
    /// First chunk's place on the volume.
    pub lbn: u64,
    /// How many chunks are mapped one behind the other.
    pub chunks: u64,
    /// Where the first one lies; `None` unmaps them.
    pub target: Option<Address>,
}

impl Entry {
    /// Whether LBNs and chunks of `next` go on where this one ends.
    pub fn is_followed_by(&self, next: &Self, chunk_pages: u32) -> bool {
        let goes_on = match (self.target, next.target) {
            (None, None) => true,
            (Some(first), Some(second)) => first.is_followed_by(second, self.chunks, chunk_pages),
            _ => false,
        };
        self.head == next.head && self.lbn + self.chunks == next.lbn && goes_on
    }
}

/// A group's header, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupHeader {
    /// The zone that the group lies in.
    pub zone: ZoneId,
    /// The group's number in the log, one more than that of the group before.
    pub sequence: u64,
    /// Newest sequence that was durable when this was written.
    pub durable: u64,
    /// Page of the zone at which the group's data begins.
    pub first_data_page: u32,
    /// Checks of the data pages.
    pub checks: Checks,
    /// The changes, in order.
    pub entries: Vec<Entry>,
}

impl GroupHeader {
    /// The first data page.
    pub fn first_data(&self) -> Address {
        Address {
            zone: self.zone,
            page: self.first_data_page,
            slot: WHOLE,
        }
    }
}

/// Content of a group before it is written.
pub struct GroupContent<'a> {
    /// The zone that it is written to.
    pub zone: ZoneId,
    /// The zone's page at which the group begins.
    pub page: u32,
    /// The group's number.
    pub sequence: u64,
    /// Newest durable sequence.
    pub durable: u64,
    /// Number of data pages.
    pub data_pages: usize,
    /// The changes. New chunks have pending addresses: see [`ZoneId::pending`].
    pub entries: &'a [Entry],
}

/// The group's header pages, which go to the device before its data, and what they say. `checks` is told where the
/// first data page lies, and gives the checks of all of them.
pub fn encode_header(
    content: &GroupContent<'_>,
    sealer: &PageSealer,
    checks: impl FnOnce(Address) -> Checks,
) -> (Vec<u8>, GroupHeader) {
    // The number of header pages depends on the checks, whose values depend on it; their length does not.
    let placeholder = Checks::zeros(sealer.check_bytes(), content.data_pages);
    let payload_bytes = payload(content, &placeholder).len() + sealer.message_bytes();
    let header_pages = (OVERHEAD_BYTES + payload_bytes).div_ceil(PAGE_BYTES) as u32;
    let first_data_page = content.page + header_pages;
    let checks = checks(Address {
        zone: content.zone,
        page: first_data_page,
        slot: WHOLE,
    });
    let mut message = payload(content, &checks);
    sealer.seal_message(content.page, &identity(content.zone), &mut message);
    let mut bytes = encode_frame(kind_of(sealer), &message);
    bytes.resize(header_pages as usize * PAGE_BYTES, 0);
    let header = GroupHeader {
        zone: content.zone,
        sequence: content.sequence,
        durable: content.durable,
        first_data_page,
        checks,
        entries: content
            .entries
            .iter()
            .map(|entry| placed(*entry, content.zone, first_data_page))
            .collect(),
    };
    (bytes, header)
}

/// Header pages that a group of `entries` changes and `data_pages` pages takes at most, with checks of `check_bytes`.
pub const fn header_pages_max(entries: usize, data_pages: usize, check_bytes: u32) -> usize {
    const ENTRY_BYTES_MAX: usize = 5 + 10 + 10 + 1 + 15;
    // The header's own seal takes as much as a page's.
    let checks_bytes = (data_pages + 1) * check_bytes as usize;
    let bytes = OVERHEAD_BYTES + 24 + 20 + checks_bytes + entries * ENTRY_BYTES_MAX;
    bytes.div_ceil(PAGE_BYTES)
}

fn kind_of(sealer: &PageSealer) -> FrameKind {
    if sealer.seals() { SEALED } else { GROUP_KIND }
}

/// Identity that the seal of a group's header is bound to, besides its page.
fn identity(zone: ZoneId) -> [u8; 16] {
    let mut identity = [0; 16];
    identity[..8].copy_from_slice(&GROUP_KIND.magic);
    identity[8..].copy_from_slice(&zone.0.to_le_bytes());
    identity
}

/// The entry with a pending address replaced by the real one.
pub fn placed(mut entry: Entry, zone: ZoneId, first_data_page: u32) -> Entry {
    if let Some(target) = entry.target.as_mut()
        && target.zone.is_pending()
    {
        *target = Address {
            zone,
            page: first_data_page + target.page,
            ..*target
        };
    }
    entry
}

fn payload(content: &GroupContent<'_>, checks: &Checks) -> Vec<u8> {
    let mut out = Vec::with_capacity(48 + checks.bytes().len() + content.entries.len() * 12);
    for number in [content.zone.0, content.sequence, content.durable] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    put_varint(&mut out, checks.len() as u64);
    out.extend_from_slice(checks.bytes());
    put_varint(&mut out, content.entries.len() as u64);
    let mut expected = 0u64;
    for entry in content.entries {
        put_varint(&mut out, u64::from(entry.head.0));
        put_varint(&mut out, zigzag(entry.lbn.wrapping_sub(expected) as i64));
        put_varint(&mut out, entry.chunks);
        expected = entry.lbn.wrapping_add(entry.chunks);
        match entry.target {
            None => out.push(0),
            Some(target) if target.zone.is_pending() => {
                out.push(1);
                put_varint(&mut out, u64::from(target.place().0));
            }
            Some(target) => {
                out.push(2);
                put_varint(&mut out, target.zone.0);
                put_varint(&mut out, u64::from(target.place().0));
            }
        }
    }
    out
}

/// The zone in which a group is looked for: what proves it.
#[derive(Clone, Copy)]
pub struct InZone<'a> {
    /// The filling.
    pub zone: ZoneId,
    /// The filling's seal.
    pub sealer: &'a PageSealer,
}

/// The header of the group that begins at page `page` of a zone, of which `bytes` are the rest. `place` names the
/// device in errors, `offset` is the group's first byte there.
///
/// # Errors
/// [`Damaged`](crate::Error::Damaged): no whole header begins here, or it says what cannot be.
pub fn decode_group(
    bytes: &[u8],
    page: u32,
    within: InZone<'_>,
    place: &str,
    offset: u64,
) -> Result<GroupHeader> {
    let sealer = within.sealer;
    let frame = decode_frame(kind_of(sealer), bytes, place, offset)?;
    let header_pages = frame.frame_bytes.div_ceil(PAGE_BYTES) as u32;
    let first_data_page = page + header_pages;
    let opened = sealer.open_message(page, &identity(within.zone), frame.payload);
    let Some(payload) = opened else {
        let what = "the seal does not hold, expected a group that was sealed for this place";
        return Err(damaged(place, offset, what.into()));
    };
    let mut reader = ByteReader::new(&payload, place, offset);
    let zone = ZoneId::take(&mut reader)?;
    let sequence = take_counter(&mut reader)?;
    let durable = take_counter(&mut reader)?;
    let check_bytes = sealer.check_bytes();
    let data_pages = reader.count(check_bytes as usize)?;
    let checks = reader.take(data_pages * check_bytes as usize)?.to_vec();
    let checks = Checks::stored(check_bytes, checks);
    let count = reader.count(4)?;
    let mut entries = Vec::with_capacity(count);
    let mut expected = 0u64;
    for _ in 0..count {
        let entry = decode_entry(&mut reader, sequence, &mut expected)?;
        entries.push(placed(entry, zone, first_data_page));
    }
    reader.end()?;
    Ok(GroupHeader {
        zone,
        sequence,
        durable,
        first_data_page,
        checks,
        entries,
    })
}

fn decode_entry(reader: &mut ByteReader<'_>, sequence: u64, expected: &mut u64) -> Result<Entry> {
    let head = HeadId(reader.varint_max(u64::from(u32::MAX))? as u32);
    let lbn = expected.wrapping_add(unzigzag(reader.varint()?) as u64);
    let chunks = reader.varint_max(i64::MAX as u64)?;
    let Some(end) = lbn.checked_add(chunks) else {
        return Err(reader
            .damaged(format!("{chunks} chunks at {lbn} go beyond every volume"))
            .into());
    };
    *expected = end;
    let target = match reader.u8()? {
        0 => None,
        1 => Some(take_place(reader, chunks)?.in_zone(ZoneId::pending(sequence))),
        2 => {
            let zone = ZoneId(reader.varint_max(i64::MAX as u64)?);
            Some(take_place(reader, chunks)?.in_zone(zone))
        }
        kind => {
            return Err(reader
                .damaged(format!("an entry of kind {kind}, expected 0, 1 or 2"))
                .into());
        }
    };
    Ok(Entry {
        head,
        lbn,
        chunks,
        target,
    })
}

/// The place of the first of some chunks.
fn take_place(reader: &mut ByteReader<'_>, chunks: u64) -> Result<ZonePlace> {
    let place = ZonePlace(reader.varint_max(ZonePlace::MAX)? as u16);
    if place.has_behind(chunks) {
        Ok(place)
    } else {
        Err(reader
            .damaged(format!(
                "{chunks} chunks from {place:?} on, which no zone has"
            ))
            .into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::seals::Seals;
    use super::*;
    use onefold_io::Random;

    fn some_group(random: &mut Random, sealer: &PageSealer) -> (Vec<u8>, GroupHeader) {
        let mut data = random.bytes(PAGE_BYTES * random.clone().below(5) as usize);
        let entries: Vec<Entry> = (0..random.below(400))
            .map(|_| {
                let slot = random.below(16) as u8;
                let place = ZonePlace::new(random.below(1000) as u32, slot);
                let chunks_max = if slot == WHOLE {
                    1000
                } else {
                    16 - u64::from(slot)
                };
                Entry {
                    head: HeadId(random.below(3) as u32),
                    lbn: random.below(1 << 40),
                    chunks: 1 + random.below(chunks_max),
                    target: match random.below(3) {
                        0 => None,
                        1 => Some(place.in_zone(ZoneId::pending(9))),
                        _ => Some(place.in_zone(ZoneId(random.below(1 << 50)))),
                    },
                }
            })
            .collect();
        let content = GroupContent {
            zone: ZoneId(77),
            page: 5,
            sequence: 9,
            durable: 8,
            data_pages: data.len() / PAGE_BYTES,
            entries: &entries,
        };
        let seal = |first| sealer.seal(first, &mut data);
        let (mut bytes, header) = encode_header(&content, sealer, seal);
        bytes.extend_from_slice(&data);
        (bytes, header)
    }

    /// Each group has a zone of its own: a zone's page is sealed once.
    fn sealers(count: u32) -> Vec<PageSealer> {
        let seals = Seals::of_tests();
        let salted = |n| match n % 2 {
            0 => PageSealer::Crc32c,
            _ => seals.pages(seals.new_salt().expect("seeded")),
        };
        (0..count).map(salted).collect()
    }

    fn decode(bytes: &[u8], zone: u64, sealer: &PageSealer) -> Result<GroupHeader> {
        let zone = ZoneId(zone);
        decode_group(bytes, 5, InZone { zone, sealer }, "d", 0)
    }

    #[test]
    fn a_group_comes_back_as_it_was_written() {
        let mut random = Random(1);
        for sealer in &sealers(200) {
            let (bytes, header) = some_group(&mut random, sealer);
            assert_eq!(decode(&bytes, 77, sealer).expect("whole"), header);
            let (entries, pages) = (header.entries.len(), header.checks.len());
            let header_pages = header.first_data_page - 5;
            let at_most = header_pages_max(entries, pages, sealer.check_bytes());
            assert!(header_pages <= at_most as u32);
            let first = Address {
                zone: ZoneId(77),
                page: header.first_data_page,
                slot: WHOLE,
            };
            let data = &bytes[header_pages as usize * PAGE_BYTES..];
            let (_, are_whole) = sealer.opened(first, data, &header.checks);
            assert_eq!(are_whole, vec![true; pages]);
            assert_eq!(decode(&bytes, 78, sealer).is_err(), sealer.seals());
        }
    }

    #[test]
    fn a_flipped_bit_or_a_short_end_is_damage() {
        let mut random = Random(2);
        for sealer in &sealers(200) {
            let (mut bytes, header) = some_group(&mut random, sealer);
            let header_bytes = u64::from(header.first_data_page - 5) * PAGE_BYTES as u64;
            assert!(decode(&bytes[..20], 77, sealer).is_err());
            let at = random.below(header_bytes) as usize;
            bytes[at] ^= 1 << random.below(8);
            // Behind the frame's end a header page holds zeros that nobody reads.
            let is_read = decode(&bytes, 77, sealer).is_err();
            assert!(is_read || decode(&bytes, 77, sealer).expect("unread") == header);
        }
    }
}
