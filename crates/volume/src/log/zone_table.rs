//! A zone's table: what the zone holds, so that nobody has to read its groups.
//!
//! ```text
//! rows        := row*  zeros                  row := page:u16 slot:u8 (0: not packed) hash[16]
//! checks      := check{pages of the zone} zeros
//! footer page := frame 1FVZONEF, zeros to the page's end
//! payload     := zone:u64 rows:u32 pages_used:u32 sequence:u64
//!                (crc64(rows pages) crc64(check pages) | salt[16] table_salt[16] tag[16])
//! ```
//!
//! A hash is the first half of a fingerprint; a hash of zeros marks a chunk that is not deduplicated. Rows take as many
//! pages as a zone without packed pages needs, or more: the footer says how many there are, and the table begins where
//! they do. The second form is that of encrypted depots: `salt` is the one in the zone's header, `table_salt` gives the
//! key of rows and checks, which are sealed as one message. Recovery writes tables anew, with other rows perhaps: each
//! table that is written has a salt of its own.

use std::borrow::Cow;

use onefold_io::frame::{FrameKind, encode_frame};
use onefold_io::varint::ByteReader;

use super::checks::Checks;
use super::layout::{Layout, PAGE_BYTES, ROW_BYTES, SLOTS_MAX, ZoneId, ZonePlace};
use super::seals::{Salt, Seals};
use super::zone::{ChunkHash, damaged, frame_of, kind_of, padded, take_salt};
use crate::Result;

const FOOTER_KIND: FrameKind = FrameKind {
    magic: *b"1FVZONEF",
    version: 1,
};

/// One chunk of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The chunk's first page in the zone.
    pub page: u32,
    /// Its slot there, or [`WHOLE`](super::layout::WHOLE).
    pub slot: u8,
    /// First half of the chunk's fingerprint, or [`NO_HASH`](super::zone::NO_HASH).
    pub hash: ChunkHash,
}

impl Row {
    /// Where the chunk lies in the zone.
    pub fn place(&self) -> ZonePlace {
        ZonePlace::new(self.page, self.slot)
    }
}

/// The chunks of a full zone in the order in which they were written, and the checks of all its pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneTable {
    /// The filling.
    pub zone: ZoneId,
    /// Chunks in order.
    pub rows: Vec<Row>,
    /// Checks by page; those of pages that hold no data mean nothing.
    pub checks: Checks,
    /// Pages behind the last one written.
    pub pages_used: u32,
    /// Sequence of the zone's last group.
    pub sequence: u64,
    /// The salt in the zone's header.
    pub salt: Option<Salt>,
}

impl ZoneTable {
    /// The table's pages, as they lie from [`Layout::groups_end_with`] its rows on. A sealed table is another one each
    /// time.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn encode(&self, layout: &Layout, seals: &Seals) -> Result<Vec<u8>> {
        let table_bytes = layout.table_pages(self.rows.len()) as usize * PAGE_BYTES;
        let body_bytes = table_bytes - PAGE_BYTES;
        let row_bytes = body_bytes - layout.checks_bytes();
        let mut out = Vec::with_capacity(table_bytes);
        for row in &self.rows {
            out.extend_from_slice(&(row.page as u16).to_le_bytes());
            out.push(row.slot);
            out.extend_from_slice(&row.hash);
        }
        out.resize(row_bytes, 0);
        out.extend_from_slice(self.checks.bytes());
        out.resize(body_bytes, 0);
        let mut payload = Vec::with_capacity(72);
        payload.extend_from_slice(&self.zone.0.to_le_bytes());
        payload.extend_from_slice(&(self.rows.len() as u32).to_le_bytes());
        payload.extend_from_slice(&self.pages_used.to_le_bytes());
        payload.extend_from_slice(&self.sequence.to_le_bytes());
        match self.salt {
            None => {
                let (rows, checks) = out.split_at(row_bytes);
                payload.extend_from_slice(&crc64(rows).to_le_bytes());
                payload.extend_from_slice(&crc64(checks).to_le_bytes());
            }
            Some(salt) => {
                let table_salt = seals.new_salt()?;
                payload.extend_from_slice(&salt);
                payload.extend_from_slice(&table_salt.unwrap_or_default());
                let sealer = seals.pages(table_salt);
                sealer.seal_message(0, &payload, &mut out);
                payload.extend_from_slice(&out.split_off(body_bytes));
            }
        }
        out.extend_from_slice(&encode_frame(kind_of(FOOTER_KIND, seals), &payload));
        Ok(padded(out, table_bytes))
    }

    /// The table that `bytes` hold. `place` names the device in errors, `offset` is the table's first byte there.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged): the bytes are no table, or that of another zone than `zone`.
    pub fn decode(
        bytes: &[u8],
        layout: &Layout,
        seals: &Seals,
        zone: ZoneId,
        place: &str,
        offset: u64,
    ) -> Result<Self> {
        let Some(footer_at) = bytes.len().checked_sub(PAGE_BYTES) else {
            let what = format!("{} bytes, expected a table", bytes.len());
            return Err(damaged(place, offset, what));
        };
        let footer_offset = offset + footer_at as u64;
        let footer = &bytes[footer_at..];
        let payload = frame_of(FOOTER_KIND, seals, footer, place, footer_offset)?;
        let mut reader = ByteReader::new(payload, place, footer_offset);
        let found = ZoneId::take(&mut reader)?;
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
        let body = &bytes[..footer_at];
        let row_bytes = footer_at - layout.checks_bytes();
        let salt = take_salt(&mut reader, seals)?;
        let body = match salt {
            None => prove_body(body, row_bytes, &mut reader, (place, offset))?,
            Some(_) => open_body(body, payload, &mut reader, seals, (place, offset))?,
        };
        reader.end()?;
        let (rows, checks) = body.split_at(row_bytes);
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
        let mut checks = Checks::stored(layout.check_bytes, checks.to_vec());
        checks.resize(layout.zone_pages as usize);
        Ok(Self {
            zone,
            rows,
            checks,
            pages_used,
            sequence,
            salt,
        })
    }
}

/// Rows and checks as they lie, proved by the checksums that the footer's `reader` has next.
fn prove_body<'a>(
    body: &'a [u8],
    row_bytes: usize,
    reader: &mut ByteReader<'_>,
    (place, offset): (&str, u64),
) -> Result<Cow<'a, [u8]>> {
    let (rows, checks) = body.split_at(row_bytes);
    for (part, name, at) in [
        (rows, "rows", offset),
        (checks, "checks", offset + rows.len() as u64),
    ] {
        let (expected, found) = (reader.u64()?, crc64(part));
        if expected != found {
            let what = format!("checksum of {name} is {found:#018x}, expected {expected:#018x}");
            return Err(damaged(place, at, what));
        }
    }
    Ok(Cow::Borrowed(body))
}

/// Rows and checks, opened with the salt and the tag that the footer's `reader` has next; `footer` is all that it
/// reads.
fn open_body<'a>(
    body: &[u8],
    footer: &[u8],
    reader: &mut ByteReader<'_>,
    seals: &Seals,
    (place, offset): (&str, u64),
) -> Result<Cow<'a, [u8]>> {
    let salt = take_salt(reader, seals)?;
    let (fields, tag) = footer.split_at(reader.position());
    reader.take(tag.len())?;
    let sealed = [body, tag].concat();
    let opened = seals.pages(salt).open_message(0, fields, &sealed);
    let opened = opened.map(Cow::into_owned).ok_or_else(|| {
        let what = "the seal of rows and checks does not hold, expected the zone's table";
        damaged(place, offset, what.into())
    })?;
    Ok(Cow::Owned(opened))
}

/// Rows that the table says it has, of which `footer` is the last page; `None`: that is damaged.
pub fn rows_said(footer: &[u8], layout: &Layout, seals: &Seals) -> Option<usize> {
    let payload = frame_of(FOOTER_KIND, seals, footer, "", 0).ok()?;
    let count = payload.get(8..)?.first_chunk()?;
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

#[cfg(test)]
mod tests {
    use super::super::layout::WHOLE;
    use super::*;
    use onefold_io::Random;

    /// Both ways, and the layout of each.
    fn ways() -> [(Seals, Layout); 2] {
        let layout = Layout::new(64 << 20, 4096).expect("large enough");
        [Seals::none(), Seals::of_tests()].map(|seals| {
            let layout = layout.with_checks_of(seals.check_bytes());
            (seals, layout)
        })
    }

    #[test]
    fn a_table_comes_back_and_a_flipped_bit_is_damage() {
        for (seals, layout) in ways() {
            table_comes_back(&seals, &layout);
        }
    }

    fn table_comes_back(seals: &Seals, layout: &Layout) {
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
            checks: Checks::stored(
                layout.check_bytes,
                random.bytes((layout.zone_pages * layout.check_bytes) as usize),
            ),
            pages_used: 58,
            sequence: 7,
            salt: seals.new_salt().expect("seeded"),
        };
        let bytes = table.encode(layout, seals).expect("seeded");
        assert_eq!(bytes.len(), layout.table_pages(260) as usize * PAGE_BYTES);
        let footer = &bytes[bytes.len() - PAGE_BYTES..];
        assert_eq!(rows_said(footer, layout, seals), Some(260));
        assert!(layout.groups_end_with(260) < layout.groups_end());
        let decode =
            |bytes: &[u8], zone| ZoneTable::decode(bytes, layout, seals, ZoneId(zone), "d", 0);
        assert_eq!(decode(&bytes, 8).expect("whole"), table);
        assert!(decode(&bytes, 9).is_err(), "another zone's");
        let again = table.encode(layout, seals).expect("seeded");
        assert_eq!(again != bytes, seals.are_on(), "each has a salt of its own");
        for _ in 0..300 {
            let mut bytes = bytes.clone();
            let at = random.below(bytes.len() as u64 - PAGE_BYTES as u64 + 60) as usize;
            bytes[at] ^= 1 << random.below(8);
            assert!(decode(&bytes, 8).is_err(), "byte {at}");
        }
    }
}
