//! A zone's header, and what zones and their tables have in common.
//!
//! ```text
//! header page := frame 1FVZONEH, zeros to the page's end
//! payload     := depot[16] zone:u64 stream:u8 previous:u64 next:u32 sequence:u64 (salt[16] tag[16])?
//! ```
//!
//! `previous` is the zone before this one in the log (0: the log begins here), `next` the place of the one that
//! follows, chosen ahead: so recovery finds its way without a table. In an encrypted depot `salt` gives the key of the
//! zone's groups and pages, and `tag` proves the header.

use onefold_chunk::Fingerprint;
use onefold_io::frame::{FrameKind, decode_frame, encode_frame};
use onefold_io::varint::ByteReader;
use onefold_io::{Disk, ErrorKind};

use super::layout::{PAGE_BYTES, ZoneId, ZoneNo, take_counter};
use super::seals::{Salt, Seals};
use crate::{Error, Result};

const HEADER_KIND: FrameKind = FrameKind {
    magic: *b"1FVZONEH",
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
    /// Stream that fills the zone.
    pub stream: Stream,
    /// The zone before it in the log; `None` where the log begins here, and for copied zones.
    pub previous: Option<ZoneId>,
    /// Where the log goes on.
    pub next: ZoneNo,
    /// Sequence of the zone's first group.
    pub sequence: u64,
    /// Gives the key of groups and pages, where they are sealed.
    pub salt: Option<Salt>,
}

impl ZoneHeader {
    /// The header page. Each salt is used for one header.
    pub fn encode(&self, seals: &Seals) -> Vec<u8> {
        let mut payload = Vec::with_capacity(77);
        payload.extend_from_slice(&self.depot);
        payload.extend_from_slice(&self.zone.0.to_le_bytes());
        payload.push(u8::from(self.stream == Stream::Copied));
        payload.extend_from_slice(&self.previous.map_or(0, |zone| zone.0).to_le_bytes());
        payload.extend_from_slice(&self.next.0.to_le_bytes());
        payload.extend_from_slice(&self.sequence.to_le_bytes());
        if let Some(salt) = self.salt {
            payload.extend_from_slice(&salt);
            let mut tag = Vec::new();
            seals.pages(self.salt).seal_message(0, &payload, &mut tag);
            payload.extend_from_slice(&tag);
        }
        let kind = kind_of(HEADER_KIND, seals);
        padded(encode_frame(kind, &payload), PAGE_BYTES)
    }

    /// The header that `page` holds. `place` names the device in errors, `offset` is the page's first byte there.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged): the page holds no zone header.
    pub fn decode(page: &[u8], seals: &Seals, place: &str, offset: u64) -> Result<Self> {
        let payload = frame_of(HEADER_KIND, seals, page, place, offset)?;
        let mut reader = ByteReader::new(payload, place, offset);
        let header = Self {
            depot: reader.array()?,
            zone: ZoneId::take(&mut reader)?,
            stream: match reader.u8()? {
                0 => Stream::Journal,
                1 => Stream::Copied,
                stream => {
                    return Err(reader
                        .damaged(format!("stream {stream}, expected 0 or 1"))
                        .into());
                }
            },
            previous: Some(ZoneId::take(&mut reader)?).filter(|id| id.0 != 0),
            next: ZoneNo(reader.u32()?),
            sequence: take_counter(&mut reader)?,
            salt: take_salt(&mut reader, seals)?,
        };
        if header.salt.is_some() {
            let (fields, tag) = payload.split_at(reader.position());
            let opened = seals.pages(header.salt).open_message(0, fields, tag);
            if opened.is_none() {
                let what = "the header's seal does not hold, expected what was sealed";
                return Err(damaged(place, offset, what.into()));
            }
            return Ok(header);
        }
        reader.end()?;
        Ok(header)
    }
}

/// Where the last zone of a depot ends on a device, by the headers that are there; 0: none is. Pages that the device does
/// not give name nobody.
///
/// # Errors
/// The device has no length.
pub fn end_of_zones(data: &dyn Disk, depot: [u8; 16], zone_bytes: u64) -> Result<u64> {
    let mut page = vec![0; PAGE_BYTES];
    let zones = data.len()?.checked_div(zone_bytes).unwrap_or(0);
    let mut is_ours = |zone: &u64| {
        let is_read = data.read_at(&mut page, zone * zone_bytes).is_ok();
        is_read && owner(&page) == Some(depot)
    };
    let last = (0..zones).rev().find(&mut is_ours);
    Ok(last.map_or(0, |zone| (zone + 1) * zone_bytes))
}

/// The depot to which the zone belongs that begins with `page`, sealed or not; `None` where no zone does. Its seal is
/// not looked at.
fn owner(page: &[u8]) -> Option<[u8; 16]> {
    let versions = [1, 2].map(|version| FrameKind {
        version,
        ..HEADER_KIND
    });
    let mut frames = versions.iter().map(|kind| decode_frame(*kind, page, "", 0));
    let frame = frames.find_map(Result::ok)?;
    frame.payload.first_chunk().copied()
}

/// The kind as it is in a depot with these keys.
pub fn kind_of(plain: FrameKind, seals: &Seals) -> FrameKind {
    FrameKind {
        version: if seals.are_on() { 2 } else { 1 },
        ..plain
    }
}

/// A frame of a kind as it is in a depot with these keys. Where zones are sealed, a whole frame of another version is
/// damage: nothing of ours wrote it.
///
/// # Errors
/// [`Damaged`](crate::Error::Damaged): no whole frame begins here.
pub fn frame_of<'a>(
    plain: FrameKind,
    seals: &Seals,
    bytes: &'a [u8],
    place: &str,
    offset: u64,
) -> Result<&'a [u8]> {
    let frame = decode_frame(kind_of(plain, seals), bytes, place, offset);
    let frame = frame.map_err(|error| match error.kind {
        ErrorKind::OtherVersion if seals.are_on() => damaged(place, offset, error.what),
        _ => error.into(),
    })?;
    Ok(frame.payload)
}

/// A salt, where zones are sealed.
///
/// # Errors
/// The bytes end.
pub fn take_salt(reader: &mut ByteReader<'_>, seals: &Seals) -> Result<Option<Salt>> {
    Ok(if seals.are_on() {
        Some(reader.array()?)
    } else {
        None
    })
}

/// The bytes, and zeros up to `len`.
pub fn padded(mut bytes: Vec<u8>, len: usize) -> Vec<u8> {
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
    use super::*;

    #[test]
    fn a_header_comes_back_and_a_flipped_bit_is_damage() {
        for seals in [Seals::none(), Seals::of_tests()] {
            header_comes_back(&seals);
        }
    }

    fn header_comes_back(seals: &Seals) {
        let header = ZoneHeader {
            depot: [3; 16],
            zone: ZoneId(12),
            stream: Stream::Copied,
            previous: Some(ZoneId(11)),
            next: ZoneNo(4),
            sequence: 99,
            salt: seals.new_salt().expect("seeded"),
        };
        let mut page = header.encode(seals);
        assert_eq!(page.len(), PAGE_BYTES);
        let decode = |page: &[u8], seals: &Seals| ZoneHeader::decode(page, seals, "d", 0);
        assert_eq!(decode(&page, seals).expect("whole"), header);
        for other in [Seals::none(), Seals::of_tests()] {
            assert_eq!(
                decode(&page, &other).is_ok(),
                other.are_on() == seals.are_on()
            );
        }
        // A header that somebody changed, with the checksum right again, is damage where it is sealed.
        let mut forged = page.clone();
        forged[60] ^= 1;
        let payload_bytes = if seals.are_on() { 77 } else { 45 };
        let forged = encode_frame(kind_of(HEADER_KIND, seals), &forged[24..24 + payload_bytes]);
        assert_eq!(
            decode(&padded(forged, PAGE_BYTES), seals).is_err(),
            seals.are_on()
        );
        page[30] ^= 4;
        assert!(decode(&page, seals).is_err());
    }
}
