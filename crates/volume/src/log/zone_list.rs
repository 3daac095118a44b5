//! The list of zones as a file of its own, which the manifest names, and the changes since, which it holds.
//!
//! ```text
//! file   := frame 1FVZONES (count:varint zone{count})
//! zone   := no:varint (difference to the one before) id:u64 stream:u8 pages_used:varint
//! change := no:varint (difference to the one before) id:u64 (0: the place is free) stream:u8 pages_used:varint
//! ```

use onefold_io::frame::{FrameKind, decode_whole, encode_frame};
use onefold_io::varint::{ByteReader, put_varint};

use super::layout::{Layout, ZoneId, ZoneNo};
use super::zone::Stream;
use crate::Result;

const KIND: FrameKind = FrameKind {
    magic: *b"1FVZONES",
    version: 1,
};

/// A zone that holds data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedZone {
    /// Its place.
    pub no: ZoneNo,
    /// The filling.
    pub id: ZoneId,
    /// Stream that filled the zone.
    pub stream: Stream,
    /// Pages behind the last one written.
    pub pages_used: u32,
}

/// New state of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneChange {
    /// The place has no zone.
    Free(ZoneNo),
    /// The place has a filled zone.
    Filled(ListedZone),
}

impl ZoneChange {
    /// The place.
    pub fn no(&self) -> ZoneNo {
        match self {
            Self::Free(no) => *no,
            Self::Filled(zone) => zone.no,
        }
    }
}

/// The file of zones, which are sorted by place.
pub fn encode_zones(zones: &[ListedZone]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + 14 * zones.len());
    let changes: Vec<ZoneChange> = zones.iter().copied().map(ZoneChange::Filled).collect();
    put_changes(&mut out, &changes);
    encode_frame(KIND, &out)
}

/// The zones that the file `name` lists.
///
/// # Errors
/// [`Damaged`](crate::Error::Damaged): the bytes are not what was written, or say what cannot be.
pub fn decode_zones(bytes: &[u8], layout: &Layout, name: &str) -> Result<Vec<ListedZone>> {
    let mut reader = ByteReader::new(decode_whole(KIND, bytes, name, 0)?, name, 0);
    let changes = take_changes(&mut reader, layout)?;
    reader.end()?;
    let filled = changes.into_iter().filter_map(|change| match change {
        ZoneChange::Filled(zone) => Some(zone),
        ZoneChange::Free(_) => None,
    });
    Ok(filled.collect())
}

/// The list with changes made, by place.
pub fn changed(zones: Vec<ListedZone>, changes: &[ZoneChange]) -> Vec<ListedZone> {
    let mut by_no: std::collections::BTreeMap<ZoneNo, ListedZone> =
        zones.into_iter().map(|zone| (zone.no, zone)).collect();
    for change in changes {
        match change {
            ZoneChange::Free(no) => by_no.remove(no),
            ZoneChange::Filled(zone) => by_no.insert(zone.no, *zone),
        };
    }
    by_no.into_values().collect()
}

/// Appends changes, which are sorted by place.
pub fn put_changes(out: &mut Vec<u8>, changes: &[ZoneChange]) {
    put_varint(out, changes.len() as u64);
    let mut last = 0;
    for change in changes {
        put_varint(out, u64::from(change.no().0 - last));
        last = change.no().0;
        let (id, stream, pages_used) = match change {
            ZoneChange::Free(_) => (0, Stream::Journal, 0),
            ZoneChange::Filled(zone) => (zone.id.0, zone.stream, zone.pages_used),
        };
        out.extend_from_slice(&id.to_le_bytes());
        out.push(u8::from(stream == Stream::Copied));
        put_varint(out, u64::from(pages_used));
    }
}

/// Takes changes.
///
/// # Errors
/// [`Damaged`](crate::Error::Damaged): they name places that are not on the device.
pub fn take_changes(reader: &mut ByteReader<'_>, layout: &Layout) -> Result<Vec<ZoneChange>> {
    let mut last = 0u64;
    (0..reader.count(11)?)
        .map(|_| {
            last = last.saturating_add(reader.varint()?);
            if last >= u64::from(layout.zones) {
                let what = format!("zone {last} is not on the device");
                return Err(reader.damaged(what).into());
            }
            let (no, id) = (ZoneNo(last as u32), ZoneId::take(reader)?);
            let is_copied = reader.u8()? == 1;
            let pages_used = reader.varint_max(u64::from(layout.zone_pages))? as u32;
            Ok(match id {
                ZoneId(0) => ZoneChange::Free(no),
                id => ZoneChange::Filled(ListedZone {
                    no,
                    id,
                    stream: if is_copied {
                        Stream::Copied
                    } else {
                        Stream::Journal
                    },
                    pages_used,
                }),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use onefold_io::Random;

    use super::*;

    #[test]
    fn lists_and_changes_come_back_and_a_flipped_bit_is_damage() {
        let layout = Layout::new(64 << 20, 4096).expect("large enough");
        let mut random = Random(3);
        for _ in 0..30 {
            let mut zones = Vec::new();
            for no in (0..layout.zones)
                .filter(|_| random.one_in(2))
                .collect::<Vec<_>>()
            {
                zones.push(ListedZone {
                    no: ZoneNo(no),
                    id: ZoneId(1 + random.below(1 << 40)),
                    stream: if random.one_in(2) {
                        Stream::Copied
                    } else {
                        Stream::Journal
                    },
                    pages_used: random.below(60) as u32,
                });
            }
            let mut bytes = encode_zones(&zones);
            assert_eq!(decode_zones(&bytes, &layout, "z").expect("whole"), zones);
            let freed = ZoneChange::Free(zones[0].no);
            let other = ListedZone {
                id: ZoneId(7),
                ..zones[1]
            };
            let changes = [freed, ZoneChange::Filled(other)];
            let mut out = Vec::new();
            put_changes(&mut out, &changes);
            let mut reader = ByteReader::new(&out, "z", 0);
            assert_eq!(take_changes(&mut reader, &layout).expect("whole"), changes);
            let after = changed(zones.clone(), &changes);
            assert_eq!((after[0], &after[1..]), (other, &zones[2..]));
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
            assert!(decode_zones(&bytes, &layout, "z").is_err());
        }
    }
}
