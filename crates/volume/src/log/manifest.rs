//! The manifest: everything that recovery begins with. Replacing it is the only commit point besides the journal's
//! groups.
//!
//! ```text
//! manifest := frame 1FVMANIF
//! payload  := zone_pages:u32 zones:u32 chunk_pages:u32 generation:u64 sequence:u64 ids_reserved:u64 position
//!             next_run:u64 zone_list:u64 changes relocations:u64 next_head:varint heads:varint head*
//! position := no:u32 zone:u64 page:u32       page 0: the zone has no header yet, and the log begins there
//! head     := head:varint kind:u8 name:bytes lbns:varint created:varint recent:varint level{recent} level level
//! level    := runs:varint run*
//! run      := id:varint first:varint (difference to the end before) lbns:varint mapped:varint holes:varint
//!             extents:varint pages:varint
//! ```
//!
//! The manifest names files and holds no map, so it is small: some 15 bytes for each 4 MiB of map. `zone_list` and
//! `relocations` are the generations in the names of `zones-<g>` and `relocations-<g>`, or 0 where there is no such file.
//! Version 2 has neither `next_head` nor what lies between a head's number and its levels.

use std::sync::Arc;

use onefold_io::frame::{FrameKind, decode_whole, encode_frame};
use onefold_io::varint::{ByteReader, put_bytes, put_varint};
use onefold_io::{Dir, rename_over};

use super::checks::CRC_BYTES;
use super::layout::{Layout, ZoneId, ZoneNo, take_counter};
use super::map::levels::ListedLevels;
use super::map::run::ListedRun;
use super::map::run_id::RunId;
use super::seals::Seals;
use super::zone_list::{ZoneChange, put_changes, take_changes};
use crate::depot::config::BYTES_MAX;
use crate::heads::{HEADS_MAX, check_full_name};
use crate::{Error, HeadId, HeadInfo, Result};

const KIND: FrameKind = FrameKind {
    magic: *b"1FVMANIF",
    version: 3,
};
/// Knows no names of heads.
const NAMELESS: FrameKind = FrameKind { version: 2, ..KIND };
/// Codes of a volume and of a snapshot.
const VOLUME: u8 = 1;
const SNAPSHOT: u8 = 2;

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

/// State of a depot at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    /// Runs from this number on were not listed yet.
    pub next_run: u64,
    /// Generation of the file of zones; 0: there is none, and no zone holds data but for the changes.
    pub zone_list: u64,
    /// Zones that changed since, by place.
    pub zone_changes: Vec<ZoneChange>,
    /// Generation of the file of relocations; 0: there are none.
    pub relocations: u64,
    /// Number of the next head; 0: the manifest is of a version that knows no names.
    pub next_head: u32,
    /// Volumes and snapshots.
    pub heads: Vec<ListedHead>,
}

/// A volume or snapshot and its block map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedHead {
    /// Name and size; empty in a version that knows none.
    pub info: HeadInfo,
    /// The lists of its runs.
    pub levels: ListedLevels,
}

impl Manifest {
    /// The runs of all heads. Those that several share come several times.
    pub fn runs(&self) -> impl Iterator<Item = RunId> + '_ {
        let levels = self.heads.iter().map(|head| &head.levels);
        levels.flat_map(|levels| levels.runs().map(|run| run.id))
    }

    /// Writes it in place of the one before, durably.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: the old manifest is there. The folder failed: the old or the new one is.
    pub fn write(&self, dir: &dyn Dir, seals: &Seals) -> Result<()> {
        let bytes = seals.seal_file(NAME, self.encode())?;
        rename_over::<onefold_io::Error>(dir, TEMPORARY, NAME, |disk| disk.write_at(&bytes, 0))?;
        // The name may be durable or not, whatever the reason.
        dir.sync().map_err(|error| Error::Io(Arc::new(error)))
    }

    /// The manifest in `dir`.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged): the manifest is missing, or not what was written.
    pub fn read(dir: &dyn Dir, seals: &Seals) -> Result<Self> {
        let bytes = seals.open_file(NAME, read_file(dir, NAME)?)?;
        let mut manifest = Self::decode(&bytes)?;
        manifest.layout = manifest.layout.with_checks_of(seals.check_bytes());
        Ok(manifest)
    }

    /// The manifest as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let layout = &self.layout;
        for number in [layout.zone_pages, layout.zones, layout.chunk_pages] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.generation, self.sequence, self.ids_reserved] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.position.no.0.to_le_bytes());
        out.extend_from_slice(&self.position.zone.0.to_le_bytes());
        out.extend_from_slice(&self.position.page.to_le_bytes());
        for number in [self.next_run, self.zone_list] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put_changes(&mut out, &self.zone_changes);
        out.extend_from_slice(&self.relocations.to_le_bytes());
        put_varint(&mut out, u64::from(self.next_head));
        put_varint(&mut out, self.heads.len() as u64);
        for ListedHead { info, levels } in &self.heads {
            put_info(&mut out, info);
            put_varint(&mut out, levels.recent.len() as u64);
            levels
                .recent
                .iter()
                .for_each(|runs| put_level(&mut out, runs));
            put_level(&mut out, &levels.middle);
            put_level(&mut out, &levels.base);
        }
        encode_frame(KIND, &out)
    }

    /// The manifest that `bytes` are.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged): they are not what was written, or say what cannot be.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let is_nameless = bytes.get(8..10) == Some(&NAMELESS.version.to_le_bytes());
        let kind = if is_nameless { NAMELESS } else { KIND };
        let mut reader = ByteReader::new(decode_whole(kind, bytes, NAME, 0)?, NAME, 0);
        let reader = &mut reader;
        let layout = Layout {
            zone_pages: reader.u32()?,
            zones: reader.u32()?,
            chunk_pages: reader.u32()?,
            check_bytes: CRC_BYTES,
        };
        if !layout.is_sound() {
            let what = format!("{layout:?} is no layout of a device");
            return Err(reader.damaged(what).into());
        }
        let mut manifest = Self {
            layout,
            generation: take_counter(reader)?,
            sequence: take_counter(reader)?,
            ids_reserved: take_counter(reader)?,
            position: take_position(reader, &layout)?,
            next_run: take_counter(reader)?,
            zone_list: take_counter(reader)?,
            zone_changes: take_changes(reader, &layout)?,
            relocations: take_counter(reader)?,
            next_head: 0,
            heads: Vec::new(),
        };
        if !is_nameless {
            manifest.next_head = reader.varint_max(u64::from(u32::MAX))? as u32;
        }
        for _ in 0..reader.count(4)? {
            let head = take_head(reader, manifest.next_head)?;
            let last = manifest.heads.last().map(|last| last.info.id);
            if last >= Some(head.info.id) || manifest.heads.len() == HEADS_MAX {
                let what = format!("head {} behind {last:?}", head.info.id.0);
                return Err(reader.damaged(what).into());
            }
            manifest.heads.push(head);
        }
        reader.end()?;
        Ok(manifest)
    }
}

/// All bytes of a file in the depot's folder.
///
/// # Errors
/// The file is missing, or the device failed.
pub fn read_file(dir: &dyn Dir, name: &str) -> Result<Vec<u8>> {
    let disk = dir.open(name)?;
    let mut bytes = vec![0; usize::try_from(disk.len()?).unwrap_or(usize::MAX)];
    disk.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn take_position(reader: &mut ByteReader<'_>, layout: &Layout) -> Result<Position> {
    let position = Position {
        no: ZoneNo(reader.u32()?),
        zone: ZoneId::take(reader)?,
        page: reader.u32()?,
    };
    if position.no.0 >= layout.zones || position.page > layout.groups_end() {
        let what = format!("the log goes on in {position:?}, which is not on the device");
        return Err(reader.damaged(what).into());
    }
    Ok(position)
}

fn put_level(out: &mut Vec<u8>, runs: &[ListedRun]) {
    put_varint(out, runs.len() as u64);
    let mut last = 0;
    for run in runs {
        for number in [
            run.id.0,
            run.first - last,
            run.end - run.first,
            run.mapped,
            run.holes,
            run.extents,
            u64::from(run.pages),
        ] {
            put_varint(out, number);
        }
        last = run.end;
    }
}

fn put_info(out: &mut Vec<u8>, info: &HeadInfo) {
    put_varint(out, u64::from(info.id.0));
    out.push(if info.is_writable { VOLUME } else { SNAPSHOT });
    put_bytes(out, info.name.as_bytes());
    put_varint(out, info.lbns);
    put_varint(out, info.created);
}

/// A head; `next_head` 0: of a version that knows no names.
fn take_head(reader: &mut ByteReader<'_>, next_head: u32) -> Result<ListedHead> {
    let mut info = HeadInfo::first("", 0);
    info.id = HeadId(reader.varint_max(u64::from(u32::MAX))? as u32);
    if next_head > 0 {
        let kind = reader.u8()?;
        info.is_writable = kind == VOLUME;
        info.name = String::from_utf8_lossy(reader.bytes()?).into_owned();
        info.lbns = reader.varint()?;
        info.created = reader.varint()?;
        let is_fine = check_full_name(&info.name, info.is_writable).is_ok()
            && matches!(kind, VOLUME | SNAPSHOT)
            && info.id.0 < next_head
            && (1..=BYTES_MAX).contains(&info.lbns);
        if !is_fine {
            let what = format!("{info:?} of kind {kind}, where the next one is {next_head}");
            return Err(reader.damaged(what).into());
        }
    }
    let levels = ListedLevels {
        recent: (0..reader.count(1)?)
            .map(|_| take_level(reader))
            .collect::<Result<_>>()?,
        middle: take_level(reader)?,
        base: take_level(reader)?,
    };
    Ok(ListedHead { info, levels })
}

fn take_level(reader: &mut ByteReader<'_>) -> Result<Vec<ListedRun>> {
    let mut last = 0u64;
    (0..reader.count(7)?)
        .map(|_| {
            let (id, ahead, lbns) = (reader.varint()?, reader.varint()?, reader.varint()?);
            let first = last.checked_add(ahead);
            let end = first.and_then(|first| first.checked_add(lbns));
            let (mapped, holes, extents) = (reader.varint()?, reader.varint()?, reader.varint()?);
            let pages = reader.varint_max(u64::from(u32::MAX))? as u32;
            let is_sound = mapped.checked_add(holes).is_some_and(|sum| sum <= lbns);
            let (Some(first), Some(end)) = (first, end.filter(|_| is_sound && pages > 0)) else {
                let what = format!("run {id} has {mapped} of {lbns} LBNs in {pages} pages");
                return Err(reader.damaged(what).into());
            };
            last = end;
            Ok(ListedRun {
                id: RunId(id),
                first,
                end,
                mapped,
                holes,
                extents,
                pages,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::zone::Stream;
    use super::super::zone_list::ListedZone;
    use super::*;
    use onefold_io::Random;

    fn some_level(random: &mut Random) -> Vec<ListedRun> {
        let mut last = 0;
        let mut runs = Vec::new();
        for _ in 0..random.below(5) {
            let first = last + random.below(1 << 40);
            last = first + 1000 + random.below(1 << 40);
            runs.push(ListedRun {
                id: RunId(random.below(1 << 40)),
                first,
                end: last,
                mapped: random.below(500),
                holes: random.below(500),
                extents: random.below(900),
                pages: 1 + random.below(1024) as u32,
            });
        }
        runs
    }

    fn some_manifest(random: &mut Random, layout: &Layout) -> Manifest {
        let levels = ListedLevels {
            recent: (0..random.below(4)).map(|_| some_level(random)).collect(),
            middle: some_level(random),
            base: some_level(random),
        };
        let changed: Vec<u32> = (0..layout.zones).filter(|_| random.one_in(2)).collect();
        Manifest {
            layout: *layout,
            generation: random.below(1 << 62),
            sequence: random.below(1 << 62),
            ids_reserved: random.below(1 << 62),
            position: Position {
                no: ZoneNo(3),
                zone: ZoneId(random.below(1 << 62)),
                page: 7,
            },
            next_run: random.below(1 << 62),
            zone_list: random.below(1 << 62),
            zone_changes: (changed.into_iter())
                .map(|no| {
                    if random.one_in(3) {
                        ZoneChange::Free(ZoneNo(no))
                    } else {
                        ZoneChange::Filled(ListedZone {
                            no: ZoneNo(no),
                            id: ZoneId(random.below(1 << 62) | 1),
                            stream: Stream::Copied,
                            pages_used: random.below(60) as u32,
                        })
                    }
                })
                .collect(),
            relocations: random.below(1 << 62),
            next_head: 10,
            heads: vec![
                ListedHead {
                    info: HeadInfo::first("main", 1 << 30),
                    levels: levels.clone(),
                },
                ListedHead {
                    info: HeadInfo {
                        id: HeadId(9),
                        name: "main@monday".into(),
                        lbns: 7,
                        is_writable: false,
                        created: random.next(),
                    },
                    levels,
                },
            ],
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

    /// The next number would overflow, or stand for something else.
    #[test]
    fn a_number_that_nobody_can_have_counted_to_is_damage() {
        let layout = Layout::new(64 << 20, 4096).expect("large enough");
        let manifest = some_manifest(&mut Random(4), &layout);
        let set: [fn(&mut Manifest, u64); 4] = [
            |manifest, number| manifest.generation = number,
            |manifest, number| manifest.ids_reserved = number,
            |manifest, number| manifest.next_run = number,
            |manifest, number| manifest.position.zone = ZoneId(number),
        ];
        for set in set {
            for (number, is_possible) in [((1 << 62) - 1, true), (1 << 62, false), (1 << 63, false)]
            {
                let mut changed = manifest.clone();
                set(&mut changed, number);
                let decoded = Manifest::decode(&changed.encode());
                assert_eq!(decoded.is_ok(), is_possible, "{number}");
            }
        }
    }
}
