//! The manifest: everything that recovery begins with. Replacing it is the only commit point besides the journal's
//! groups.
//!
//! ```text
//! manifest  := frame 1FVMANIF
//! payload   := zone_pages:u32 zones:u32 chunk_pages:u32 generation:u64 sequence:u64 ids_reserved:u64 position zones:varint zone* heads:varint head*
//! position  := no:u32 zone:u64 page:u32       page 0: the zone has no header yet, and the log begins there
//! zone      := no:varint (difference to the one before) id:u64 stream:u8 pages_used:varint
//! head      := head:varint extents:varint (lbn:varint (difference to the end before) chunks:varint zone:varint page:varint)*
//! ```
//!
//! The map stands in it whole, so a checkpoint costs as much as the map is large. It is written beside the old one,
//! synced, and renamed over it.

use onefold_io::frame::{FrameKind, decode_whole, encode_frame};
use onefold_io::varint::{ByteReader, put_varint};
use onefold_io::{Dir, replace_file};

use super::extent_map::{Extent, ExtentMap};
use super::layout::{Address, Layout, ZoneId, ZoneNo};
use super::zone::Stream;
use crate::{HeadId, Result};

const KIND: FrameKind = FrameKind {
    magic: *b"1FVMANIF",
    version: 1,
};

/// The manifest's name in the depot's folder.
pub const NAME: &str = "manifest";
const TEMPORARY: &str = "manifest.new";

/// Where the log goes on: what lies before is in the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The zone's place.
    pub no: ZoneNo,
    /// The filling.
    pub zone: ZoneId,
    /// The page at which the next group begins; 0 where the zone has no header yet.
    pub page: u32,
}

/// A zone that holds data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedZone {
    /// Its place.
    pub no: ZoneNo,
    /// The filling.
    pub id: ZoneId,
    /// Who filled it.
    pub stream: Stream,
    /// Pages behind the last one written.
    pub pages_used: u32,
}

/// State of a depot at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Manifest {
    /// Sizes of zones and chunks, chosen when the depot was created.
    pub layout: Layout,
    /// Grows with each one written.
    pub generation: u64,
    /// Sequence of the last group that the map includes.
    pub sequence: u64,
    /// Ids below this may have been given.
    pub ids_reserved: u64,
    /// Where the log goes on.
    pub position: Position,
    /// Zones that hold data, by place.
    pub zones: Vec<ListedZone>,
    /// The block maps.
    pub heads: Vec<(HeadId, ExtentMap)>,
}

impl Manifest {
    /// Writes it in place of the one before, durably.
    ///
    /// # Errors
    /// The folder failed: the old or the new manifest is there.
    pub fn write(&self, dir: &dyn Dir) -> Result<()> {
        Ok(replace_file(dir, TEMPORARY, NAME, &self.encode())?)
    }

    /// The manifest in `dir`.
    ///
    /// # Errors
    /// It is missing, or not what was written: [`Damaged`](crate::Error::Damaged).
    pub fn read(dir: &dyn Dir) -> Result<Self> {
        let disk = dir.open(NAME)?;
        let mut bytes = vec![0; usize::try_from(disk.len()?).unwrap_or(usize::MAX)];
        disk.read_at(&mut bytes, 0)?;
        Self::decode(&bytes)
    }

    /// The manifest as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [
            self.layout.zone_pages,
            self.layout.zones,
            self.layout.chunk_pages,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.generation, self.sequence, self.ids_reserved] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.position.no.0.to_le_bytes());
        out.extend_from_slice(&self.position.zone.0.to_le_bytes());
        out.extend_from_slice(&self.position.page.to_le_bytes());
        put_varint(&mut out, self.zones.len() as u64);
        let mut last = 0;
        for zone in &self.zones {
            put_varint(&mut out, u64::from(zone.no.0 - last));
            last = zone.no.0;
            out.extend_from_slice(&zone.id.0.to_le_bytes());
            out.push(u8::from(zone.stream == Stream::Copied));
            put_varint(&mut out, u64::from(zone.pages_used));
        }
        put_varint(&mut out, self.heads.len() as u64);
        for (head, map) in &self.heads {
            encode_head(&mut out, *head, map);
        }
        encode_frame(KIND, &out)
    }

    /// The manifest that `bytes` are.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged): they are not what was written, or say what cannot be.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = ByteReader::new(decode_whole(KIND, bytes, NAME, 0)?, NAME, 0);
        let layout = Layout {
            zone_pages: reader.u32()?,
            zones: reader.u32()?,
            chunk_pages: reader.u32()?,
        };
        if !layout.is_sound() {
            return Err(reader
                .damaged(format!("{layout:?} is no layout of a device"))
                .into());
        }
        let layout = &layout;
        let (generation, sequence, ids_reserved) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let position = Position {
            no: ZoneNo(reader.u32()?),
            zone: ZoneId(reader.u64()?),
            page: reader.u32()?,
        };
        if position.no.0 >= layout.zones || position.page > layout.groups_end() {
            return Err(reader
                .damaged(format!(
                    "the log goes on in {position:?}, which is not on the device"
                ))
                .into());
        }
        let mut last = 0u64;
        let zones = (0..reader.count(11)?)
            .map(|_| decode_zone(&mut reader, &mut last, layout))
            .collect::<Result<_>>()?;
        let heads = (0..reader.count(2)?)
            .map(|_| decode_head(&mut reader, layout))
            .collect::<Result<_>>()?;
        reader.end()?;
        Ok(Self {
            layout: *layout,
            generation,
            sequence,
            ids_reserved,
            position,
            zones,
            heads,
        })
    }
}

fn decode_zone(reader: &mut ByteReader<'_>, last: &mut u64, layout: &Layout) -> Result<ListedZone> {
    *last = last.saturating_add(reader.varint()?);
    if *last >= u64::from(layout.zones) {
        return Err(reader
            .damaged(format!("zone {last} is not on the device"))
            .into());
    }
    Ok(ListedZone {
        no: ZoneNo(*last as u32),
        id: ZoneId(reader.u64()?),
        stream: if reader.u8()? == 1 {
            Stream::Copied
        } else {
            Stream::Journal
        },
        pages_used: reader.varint_max(u64::from(layout.zone_pages))? as u32,
    })
}

fn encode_head(out: &mut Vec<u8>, head: HeadId, map: &ExtentMap) {
    put_varint(out, u64::from(head.0));
    put_varint(out, map.extents() as u64);
    let mut last = 0;
    for (lbn, Extent { chunks, target }) in map.iter() {
        put_varint(out, lbn - last);
        last = lbn + chunks;
        put_varint(out, chunks);
        put_varint(out, target.zone.0);
        put_varint(out, u64::from(target.page));
    }
}

fn decode_head(reader: &mut ByteReader<'_>, layout: &Layout) -> Result<(HeadId, ExtentMap)> {
    let head = HeadId(reader.varint_max(u64::from(u32::MAX))? as u32);
    let mut map = ExtentMap::default();
    let mut last = 0u64;
    for _ in 0..reader.count(4)? {
        let (ahead, chunks) = (reader.varint()?, reader.varint()?);
        let zone = ZoneId(reader.varint_max(i64::MAX as u64)?);
        let page = reader.varint_max(u64::from(layout.groups_end()))?;
        let pages = chunks.saturating_mul(u64::from(layout.chunk_pages));
        let end = last
            .checked_add(ahead)
            .and_then(|lbn| lbn.checked_add(chunks));
        let Some(end) =
            end.filter(|_| chunks > 0 && page + pages <= u64::from(layout.groups_end()))
        else {
            return Err(reader
                .damaged(format!(
                    "{chunks} chunks from page {page} on do not fit into a zone"
                ))
                .into());
        };
        let target = Address {
            zone,
            page: page as u32,
        };
        map.set(end - chunks, chunks, Some(target), layout.chunk_pages);
        last = end;
    }
    Ok((head, map))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_io::Random;

    fn some_manifest(random: &mut Random, layout: &Layout) -> Manifest {
        let mut map = ExtentMap::default();
        for _ in 0..200 {
            let target = Address {
                zone: ZoneId(random.below(1 << 40)),
                page: 1 + random.below(40) as u32,
            };
            map.set(
                random.below(1 << 30),
                1 + random.below(10),
                Some(target),
                layout.chunk_pages,
            );
        }
        let zones = (0..layout.zones)
            .filter(|_| random.one_in(2))
            .collect::<Vec<_>>();
        Manifest {
            layout: *layout,
            generation: random.next(),
            sequence: random.next(),
            ids_reserved: random.next(),
            position: Position {
                no: ZoneNo(3),
                zone: ZoneId(random.next()),
                page: 7,
            },
            zones: (zones.into_iter())
                .map(|no| ListedZone {
                    no: ZoneNo(no),
                    id: ZoneId(random.next()),
                    stream: if random.one_in(2) {
                        Stream::Copied
                    } else {
                        Stream::Journal
                    },
                    pages_used: random.below(60) as u32,
                })
                .collect(),
            heads: vec![(HeadId(0), map), (HeadId(9), ExtentMap::default())],
        }
    }

    #[test]
    fn a_manifest_comes_back_and_a_flipped_bit_is_damage() {
        let layout = Layout::new(64 << 20, 4096).expect("large enough");
        let mut random = Random(3);
        for _ in 0..30 {
            let manifest = some_manifest(&mut random, &layout);
            let mut bytes = manifest.encode();
            assert_eq!(Manifest::decode(&bytes).expect("whole"), manifest);
            assert!(Manifest::decode(&bytes[..bytes.len() - 1]).is_err());
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
            assert!(Manifest::decode(&bytes).is_err());
        }
    }
}
