//! A zone's header and its table: what the zone holds, so that nobody has to read its groups.
//!
//! ```text
//! header page := frame 1FVZONEH, zeros to the page's end
//! payload     := depot[16] zone:u64 stream:u8 previous:u64 next:u32 sequence:u64
//! rows        := row*  zeros                  row := page:u16 slot:u8 (0: not packed) hash[16]
//! checks      := check:u32{pages of the zone} zeros
//! footer page := frame 1FVZONEF, zeros to the page's end
//! payload     := zone:u64 rows:u32 pages_used:u32 sequence:u64 crc64(rows pages) crc64(check pages)
//! ```
//!
//! `previous` is the zone before this one in the log (0: the log begins here), `next` the place of the one that
//! follows, chosen ahead: so recovery finds its way without a table. A hash is the first half of a fingerprint; a hash
//! of zeros marks a chunk that is not deduplicated. Rows take as many pages as a zone without packed pages needs, or
//! more: the footer says how many there are, and the table begins where they do.

use onefold_chunk::Fingerprint;
use onefold_io::frame::{FrameKind, decode_frame, encode_frame};
use onefold_io::varint::ByteReader;

use super::layout::{
    CHECK_BYTES, Layout, PAGE_BYTES, ROW_BYTES, SLOTS_MAX, ZoneId, ZoneNo, ZonePlace,
};
use crate::{Error, Result};

const HEADER_KIND: FrameKind = FrameKind {
    magic: *b"1FVZONEH",
    version: 1,
};
const FOOTER_KIND: FrameKind = FrameKind {
    magic: *b"1FVZONEF",
    version: 1,
};

/// The half of a fingerprint that a row holds and the hash index is asked by.
pub type ChunkHash = [u8; 16];

/// The hash of a chunk that is not deduplicated.
pub const NO_HASH: ChunkHash = [0; 16];

/// First half of a fingerprint.
pub fn chunk_hash(fingerprint: &Fingerprint) -> ChunkHash {
    *fingerprint
        .0
        .first_chunk()
        .expect("a fingerprint has 32 bytes")
}

/// Which writer filled a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// The journal: groups.
    Journal,
    /// Cleaning: copied chunks without groups.
    Copied,
}

/// A zone's first page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneHeader {
    /// The depot, so that zones of another one are not taken for ours.
    pub depot: [u8; 16],
    /// This filling.
    pub zone: ZoneId,
    /// Who fills it.
    pub stream: Stream,
    /// The zone before it in the log; `None` where the log begins here, and for copied zones.
    pub previous: Option<ZoneId>,
    /// Where the log goes on.
    pub next: ZoneNo,
    /// Sequence of the zone's first group.
    pub sequence: u64,
}

impl ZoneHeader {
    /// The header page.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(45);
        payload.extend_from_slice(&self.depot);
        payload.extend_from_slice(&self.zone.0.to_le_bytes());
        payload.push(u8::from(self.stream == Stream::Copied));
        payload.extend_from_slice(&self.previous.map_or(0, |zone| zone.0).to_le_bytes());
        payload.extend_from_slice(&self.next.0.to_le_bytes());
        payload.extend_from_slice(&self.sequence.to_le_bytes());
        padded(encode_frame(HEADER_KIND, &payload), PAGE_BYTES)
    }

    /// The header that `page` holds. `place` names the device in errors, `offset` is the page's first byte there.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged): the page holds no zone header.
    pub fn decode(page: &[u8], place: &str, offset: u64) -> Result<Self> {
        let frame = decode_frame(HEADER_KIND, page, place, offset)?;
        let mut reader = ByteReader::new(frame.payload, place, offset);
        let header = Self {
            depot: reader.array()?,
            zone: ZoneId(reader.u64()?),
            stream: match reader.u8()? {
                0 => Stream::Journal,
                1 => Stream::Copied,
                stream => {
                    return Err(reader
                        .damaged(format!("stream {stream}, expected 0 or 1"))
                        .into());
                }
            },
            previous: Some(reader.u64()?).filter(|id| *id != 0).map(ZoneId),
            next: ZoneNo(reader.u32()?),
            sequence: reader.u64()?,
        };
        reader.end()?;
        Ok(header)
    }
}

/// One chunk of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The chunk's first page in the zone.
    pub page: u32,
    /// Its slot there, or [`WHOLE`](super::layout::WHOLE).
    pub slot: u8,
    /// First half of the chunk's fingerprint, or [`NO_HASH`].
    pub hash: ChunkHash,
}

impl Row {
    /// Where the chunk lies in the zone.
    pub fn place(&self) -> ZonePlace {
        ZonePlace::new(self.page, self.slot)
    }
}

/// What a full zone holds: its chunks in the order in which they were written, and the checks of all its pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneTable {
    /// The filling.
    pub zone: ZoneId,
    /// Chunks in order.
    pub rows: Vec<Row>,
    /// Checks by page; those of pages that hold no data mean nothing.
    pub checks: Vec<u32>,
    /// Pages behind the last one written.
    pub pages_used: u32,
    /// Sequence of the zone's last group.
    pub sequence: u64,
}

impl ZoneTable {
    /// The table's pages, as they lie from [`Layout::groups_end_with`] its rows on.
    pub fn encode(&self, layout: &Layout) -> Vec<u8> {
        let table_bytes = layout.table_pages(self.rows.len()) as usize * PAGE_BYTES;
        let row_bytes = table_bytes - layout.check_bytes() - PAGE_BYTES;
        let mut rows = Vec::with_capacity(row_bytes);
        for row in &self.rows {
            rows.extend_from_slice(&(row.page as u16).to_le_bytes());
            rows.push(row.slot);
            rows.extend_from_slice(&row.hash);
        }
        let rows = padded(rows, row_bytes);
        let mut checks = Vec::with_capacity(self.checks.len() * CHECK_BYTES);
        self.checks
            .iter()
            .for_each(|check| checks.extend_from_slice(&check.to_le_bytes()));
        let checks = padded(checks, layout.check_bytes());
        let mut payload = Vec::with_capacity(40);
        payload.extend_from_slice(&self.zone.0.to_le_bytes());
        payload.extend_from_slice(&(self.rows.len() as u32).to_le_bytes());
        payload.extend_from_slice(&self.pages_used.to_le_bytes());
        payload.extend_from_slice(&self.sequence.to_le_bytes());
        payload.extend_from_slice(&crc64(&rows).to_le_bytes());
        payload.extend_from_slice(&crc64(&checks).to_le_bytes());
        let footer = padded(encode_frame(FOOTER_KIND, &payload), PAGE_BYTES);
        [rows, checks, footer].concat()
    }

    /// The table that `bytes` hold. `place` names the device in errors, `offset` is the table's first byte there.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged): the bytes are no table, or that of another zone than `zone`.
    pub fn decode(
        bytes: &[u8],
        layout: &Layout,
        zone: ZoneId,
        place: &str,
        offset: u64,
    ) -> Result<Self> {
        let Some(footer_at) = bytes.len().checked_sub(PAGE_BYTES) else {
            let what = format!("{} bytes, expected a table", bytes.len());
            return Err(damaged(place, offset, what));
        };
        let footer_offset = offset + footer_at as u64;
        let frame = decode_frame(FOOTER_KIND, &bytes[footer_at..], place, footer_offset)?;
        let mut reader = ByteReader::new(frame.payload, place, footer_offset);
        let found = ZoneId(reader.u64()?);
        if found != zone {
            let what = format!("the table of zone {}, expected {}", found.0, zone.0);
            return Err(damaged(place, footer_offset, what));
        }
        let (count, pages_used, sequence) = (reader.u32()? as usize, reader.u32()?, reader.u64()?);
        if count > layout.rows_max() || pages_used > layout.zone_pages {
            let what = format!("{count} rows and {pages_used} pages do not fit into a zone");
            return Err(damaged(place, footer_offset, what));
        }
        let table_bytes = layout.table_pages(count) as usize * PAGE_BYTES;
        if bytes.len() != table_bytes {
            let what = format!(
                "{} bytes of a table of {count} rows, expected {table_bytes}",
                bytes.len()
            );
            return Err(damaged(place, offset, what));
        }
        let (rows, checks) = bytes[..footer_at].split_at(footer_at - layout.check_bytes());
        for (part, name, at) in [
            (rows, "rows", offset),
            (checks, "checks", offset + rows.len() as u64),
        ] {
            let (expected, found) = (reader.u64()?, crc64(part));
            if expected != found {
                let what =
                    format!("checksum of {name} is {found:#018x}, expected {expected:#018x}");
                return Err(damaged(place, at, what));
            }
        }
        reader.end()?;
        let rows: Vec<Row> = rows
            .chunks_exact(ROW_BYTES)
            .take(count)
            .map(decode_row)
            .collect();
        if let Some(row) = rows.iter().find(|row| {
            let end = layout.groups_end_with(count);
            row.page + layout.chunk_pages > end || row.slot > SLOTS_MAX
        }) {
            let what = format!(
                "a row names page {}, slot {}, beyond the zone's data",
                row.page, row.slot
            );
            return Err(damaged(place, offset, what));
        }
        let checks = (checks
            .chunks_exact(CHECK_BYTES)
            .take(layout.zone_pages as usize))
        .map(|check| u32::from_le_bytes(check.try_into().expect("four bytes")))
        .collect();
        Ok(Self {
            zone,
            rows,
            checks,
            pages_used,
            sequence,
        })
    }
}

/// Rows that the table says it has, of which `footer` is the last page; `None`: that is damaged.
pub fn rows_said(footer: &[u8], layout: &Layout) -> Option<usize> {
    let frame = decode_frame(FOOTER_KIND, footer, "", 0).ok()?;
    let count = frame.payload.get(8..)?.first_chunk()?;
    Some(u32::from_le_bytes(*count) as usize).filter(|count| *count <= layout.rows_max())
}

fn decode_row(bytes: &[u8]) -> Row {
    Row {
        page: u32::from(u16::from_le_bytes([bytes[0], bytes[1]])),
        slot: bytes[2],
        hash: *bytes[3..]
            .first_chunk()
            .expect("a row holds 16 bytes of hash"),
    }
}

fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

fn padded(mut bytes: Vec<u8>, len: usize) -> Vec<u8> {
    debug_assert!(bytes.len() <= len);
    bytes.resize(len, 0);
    bytes
}

/// Bytes of the data device that are not what was written.
pub fn damaged(place: &str, offset: u64, what: String) -> Error {
    Error::Damaged {
        place: format!("{place} at offset {offset}"),
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::WHOLE;
    use super::*;
    use onefold_io::Random;

    fn layout() -> Layout {
        Layout::new(64 << 20, 4096).expect("large enough")
    }

    #[test]
    fn a_header_comes_back_and_a_flipped_bit_is_damage() {
        let header = ZoneHeader {
            depot: [3; 16],
            zone: ZoneId(12),
            stream: Stream::Copied,
            previous: Some(ZoneId(11)),
            next: ZoneNo(4),
            sequence: 99,
        };
        let mut page = header.encode();
        assert_eq!(page.len(), PAGE_BYTES);
        assert_eq!(ZoneHeader::decode(&page, "d", 0).expect("whole"), header);
        page[30] ^= 4;
        assert!(ZoneHeader::decode(&page, "d", 0).is_err());
    }

    #[test]
    fn a_table_comes_back_and_a_flipped_bit_is_damage() {
        let layout = layout();
        let mut random = Random(5);
        // Half of the rows are those of packed pages: more than a page has room for.
        let rows = (0..260).map(|i| Row {
            page: 2 + i / 10,
            slot: if i < 130 { WHOLE } else { 1 + (i % 10) as u8 },
            hash: *random.bytes(16).first_chunk().expect("16 bytes"),
        });
        let table = ZoneTable {
            zone: ZoneId(8),
            rows: rows.collect(),
            checks: (0..layout.zone_pages).collect(),
            pages_used: 58,
            sequence: 7,
        };
        let bytes = table.encode(&layout);
        assert_eq!(bytes.len(), layout.table_pages(260) as usize * PAGE_BYTES);
        let footer = &bytes[bytes.len() - PAGE_BYTES..];
        assert_eq!(rows_said(footer, &layout), Some(260));
        assert!(layout.groups_end_with(260) < layout.groups_end());
        assert_eq!(
            ZoneTable::decode(&bytes, &layout, ZoneId(8), "d", 0).expect("whole"),
            table
        );
        assert!(
            ZoneTable::decode(&bytes, &layout, ZoneId(9), "d", 0).is_err(),
            "another zone's"
        );
        for _ in 0..300 {
            let mut bytes = bytes.clone();
            let at = random.below(bytes.len() as u64 - PAGE_BYTES as u64 + 60) as usize;
            bytes[at] ^= 1 << random.below(8);
            assert!(
                ZoneTable::decode(&bytes, &layout, ZoneId(8), "d", 0).is_err(),
                "byte {at}"
            );
        }
    }
}
