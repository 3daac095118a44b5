//! Where the chunks of freed zones are: cleaning moves chunks, and runs of the map name their old places until they are
//! merged.
//!
//! A relocation never leads to a zone that has one itself: when its target is cleaned, it is led on.

use std::collections::{HashMap, HashSet};

use onefold_io::frame::{FrameKind, decode_whole, encode_frame};
use onefold_io::varint::{ByteReader, put_varint};

use super::faults::{self, Fault};
use super::layout::{Address, Layout, WHOLE, ZoneId};
use super::zone::damaged;
use crate::Result;

const KIND: FrameKind = FrameKind {
    magic: *b"1FVRELOC",
    version: 1,
};

/// Old address → new address of chunks that a cleaning moved. Packed pages move as they are, so these are addresses of
/// pages.
pub type Moved = HashMap<Address, Address>;

/// Freed zones, and where their chunks are.
///
/// ```text
/// file       := frame 1FVRELOC (zones:varint relocation*)
/// relocation := zone:u64 words:varint word:u64{words} stretches:varint stretch*
/// stretch    := chunks:varint zone:u64 page:varint
/// ```
///
/// Bit p of the words is set where a chunk of the zone that begins at page p was moved. Moved chunks lie in stretches,
/// in their old order.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Relocations(HashMap<ZoneId, Relocation>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Relocation {
    /// A bit for each page at which a moved chunk began.
    moved: Vec<u64>,
    stretches: Vec<MovedStretch>,
}

/// Moved chunks that lie one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MovedStretch {
    chunks: u32,
    first: Address,
}

impl Relocations {
    /// Zones that have a relocation.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// RAM in bytes.
    pub fn ram_bytes(&self) -> u64 {
        let one =
            |it: &Relocation| it.moved.len() * 8 + it.stretches.len() * size_of::<MovedStretch>();
        self.0.values().map(|it| one(it) as u64 + 80).sum()
    }

    /// Where the chunk at `address` of a freed zone is. `None`: nothing is known of it.
    pub fn resolve(&self, address: Address, chunk_pages: u32) -> Option<Address> {
        let page = (self.0.get(&address.zone)?).resolve(address.page, chunk_pages)?;
        Some(Address {
            slot: address.slot,
            ..page
        })
    }

    /// Notes that `emptied` were freed after their chunks were moved; relocations that led to them are led on.
    pub fn add(&mut self, emptied: &HashSet<ZoneId>, moved: &Moved, chunk_pages: u32) {
        for relocation in self.0.values_mut() {
            let leads_there = |stretch: &MovedStretch| emptied.contains(&stretch.first.zone);
            if relocation.stretches.iter().any(leads_there)
                && !faults::is_on(Fault::RelocationsNotLedOn)
            {
                *relocation = relocation.led_on(emptied, moved, chunk_pages);
            }
        }
        self.0
            .retain(|_, relocation| !relocation.stretches.is_empty());
        let mut by_zone: HashMap<ZoneId, Vec<(u32, Address)>> = HashMap::new();
        for (from, to) in moved {
            by_zone.entry(from.zone).or_default().push((from.page, *to));
        }
        for (zone, mut chunks) in by_zone {
            chunks.sort_unstable();
            self.0.insert(zone, Relocation::of(&chunks, chunk_pages));
        }
    }

    /// Forgets zones that no map names any more.
    pub fn retain(&mut self, is_named: impl Fn(ZoneId) -> bool) {
        self.0.retain(|zone, _| is_named(*zone));
    }

    /// All of it as a file.
    pub fn encode(&self) -> Vec<u8> {
        let mut zones: Vec<(&ZoneId, &Relocation)> = self.0.iter().collect();
        zones.sort_by_key(|(zone, _)| **zone);
        let mut out = Vec::new();
        put_varint(&mut out, zones.len() as u64);
        for (zone, relocation) in zones {
            out.extend_from_slice(&zone.0.to_le_bytes());
            put_varint(&mut out, relocation.moved.len() as u64);
            for word in &relocation.moved {
                out.extend_from_slice(&word.to_le_bytes());
            }
            put_varint(&mut out, relocation.stretches.len() as u64);
            for stretch in &relocation.stretches {
                put_varint(&mut out, u64::from(stretch.chunks));
                out.extend_from_slice(&stretch.first.zone.0.to_le_bytes());
                put_varint(&mut out, u64::from(stretch.first.page));
            }
        }
        encode_frame(KIND, &out)
    }

    /// Decodes the bytes of the file `name`.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged): they are not what was written, or say what cannot be.
    pub fn decode(bytes: &[u8], layout: &Layout, name: &str) -> Result<Self> {
        let mut reader = ByteReader::new(decode_whole(KIND, bytes, name, 0)?, name, 0);
        let mut all = HashMap::new();
        for _ in 0..reader.count(10)? {
            let zone = ZoneId::take(&mut reader)?;
            let relocation = decode_relocation(&mut reader, layout)?;
            let bits: u64 = relocation
                .moved
                .iter()
                .map(|word| u64::from(word.count_ones()))
                .sum();
            let chunks: u64 = relocation
                .stretches
                .iter()
                .map(|it| u64::from(it.chunks))
                .sum();
            if bits != chunks || all.insert(zone, relocation).is_some() {
                let what = format!("zone {}: {bits} chunks moved to {chunks} places", zone.0);
                return Err(damaged(name, reader.offset(), what));
            }
        }
        reader.end()?;
        Ok(Self(all))
    }
}

fn decode_relocation(reader: &mut ByteReader<'_>, layout: &Layout) -> Result<Relocation> {
    let words = reader.count(8)?;
    let moved = (0..words)
        .map(|_| reader.u64())
        .collect::<Result<Vec<u64>, _>>()?;
    let mut stretches = Vec::new();
    for _ in 0..reader.count(10)? {
        let chunks = reader.varint_max(u64::from(layout.zone_pages))? as u32;
        let zone = ZoneId::take(reader)?;
        let page = reader.varint_max(u64::from(layout.groups_end()))? as u32;
        if page + chunks * layout.chunk_pages > layout.groups_end() {
            let what = format!(
                "{chunks} chunks at page {page} of zone {} are not in it",
                zone.0
            );
            return Err(reader.damaged(what).into());
        }
        let first = Address {
            zone,
            page,
            slot: WHOLE,
        };
        stretches.push(MovedStretch { chunks, first });
    }
    Ok(Relocation { moved, stretches })
}

impl Relocation {
    /// Chunks by their old first pages, ascending, and where each is now.
    fn of(chunks: &[(u32, Address)], chunk_pages: u32) -> Self {
        let last = chunks.last().map_or(0, |(page, _)| *page as usize);
        let mut relocation = Self {
            moved: vec![0; last / 64 + 1],
            stretches: Vec::new(),
        };
        for (page, to) in chunks {
            relocation.moved[*page as usize / 64] |= 1 << (page % 64);
            let goes_on = |last: &&mut MovedStretch| {
                let page = last.first.page + last.chunks * chunk_pages;
                last.first.zone == to.zone && page == to.page
            };
            match relocation.stretches.last_mut().filter(goes_on) {
                Some(last) => last.chunks += 1,
                None => relocation.stretches.push(MovedStretch {
                    chunks: 1,
                    first: *to,
                }),
            }
        }
        relocation
    }

    fn resolve(&self, page: u32, chunk_pages: u32) -> Option<Address> {
        let (word, bit) = (page as usize / 64, page % 64);
        let bits = *self.moved.get(word)?;
        if bits >> bit & 1 == 0 {
            return None;
        }
        let before = self.moved[..word].iter().map(|word| word.count_ones());
        let mut rank = before.sum::<u32>() + (bits & ((1 << bit) - 1)).count_ones();
        for stretch in &self.stretches {
            if rank < stretch.chunks {
                return Some(Address {
                    zone: stretch.first.zone,
                    page: stretch.first.page + rank * chunk_pages,
                    slot: WHOLE,
                });
            }
            rank -= stretch.chunks;
        }
        None
    }

    fn led_on(&self, emptied: &HashSet<ZoneId>, moved: &Moved, chunk_pages: u32) -> Self {
        let pages = 0..self.moved.len() as u32 * 64;
        let chunks: Vec<(u32, Address)> = pages
            .filter_map(|page| {
                let address = self.resolve(page, chunk_pages)?;
                if emptied.contains(&address.zone) {
                    Some((page, *moved.get(&address)?))
                } else {
                    Some((page, address))
                }
            })
            .collect();
        if chunks.is_empty() {
            Self {
                moved: Vec::new(),
                stretches: Vec::new(),
            }
        } else {
            Self::of(&chunks, chunk_pages)
        }
    }
}

#[cfg(test)]
mod tests {
    use onefold_io::Random;

    use super::*;

    fn layout(chunk_pages: u32) -> Layout {
        Layout::new(64 << 20, chunk_pages * 4096).expect("large enough")
    }

    /// Cleanings that move chunks on and on: a relocation leads where following each move in turn does.
    #[test]
    fn relocations_lead_where_following_each_move_does() {
        for (seed, chunk_pages) in [(1, 1), (2, 4), (3, 1)] {
            let mut random = Random(seed);
            let mut relocations = Relocations::default();
            let mut naive: HashMap<Address, Address> = HashMap::new();
            let (mut zones, mut next) = ((0..6).collect::<Vec<u64>>(), 6);
            for _ in 0..60 {
                let emptied: HashSet<ZoneId> = (0..1 + random.below(2))
                    .map(|_| ZoneId(zones.remove(random.below(zones.len() as u64) as usize)))
                    .collect();
                let (mut moved, mut page) = (Moved::new(), 1);
                for zone in &emptied {
                    for chunk in 0..12 {
                        if page > 1 && (random.one_in(9) || page + chunk_pages > 50) {
                            (next, page) = (next + 1, 1);
                        }
                        let old = 1 + chunk * chunk_pages;
                        if random.one_in(3) {
                            continue;
                        }
                        let from = Address {
                            zone: *zone,
                            page: old,
                            slot: WHOLE,
                        };
                        moved.insert(
                            from,
                            Address {
                                zone: ZoneId(next),
                                page,
                                slot: WHOLE,
                            },
                        );
                        page += chunk_pages;
                    }
                }
                relocations.add(&emptied, &moved, chunk_pages);
                naive.retain(|_, to| !emptied.contains(&to.zone) || moved.contains_key(to));
                naive
                    .values_mut()
                    .for_each(|to| *to = *moved.get(to).unwrap_or(to));
                naive.extend(&moved);
                zones.extend(next..next + 1);
                zones.extend((zones.len() < 6).then_some(next + 1));
                next += 2;
                let encoded = relocations.encode();
                let decoded = Relocations::decode(&encoded, &layout(chunk_pages), "r");
                assert_eq!(decoded.expect("whole"), relocations);
                for zone in 0..next {
                    for page in 0..60 {
                        let address = Address {
                            zone: ZoneId(zone),
                            page,
                            slot: WHOLE,
                        };
                        let found = relocations.resolve(address, chunk_pages);
                        let expected = naive.get(&address).copied();
                        assert_eq!(found, expected, "{address:?}");
                        let slot = Address { slot: 3, ..address };
                        let found = relocations.resolve(slot, chunk_pages);
                        let expected = expected.map(|page| Address { slot: 3, ..page });
                        assert_eq!(found, expected, "a slot stays in its page: {slot:?}");
                    }
                }
            }
            assert!(relocations.len() > 3);
        }
    }

    #[test]
    fn a_flipped_bit_is_damage() {
        let from = |page| Address {
            zone: ZoneId(3),
            page,
            slot: WHOLE,
        };
        let to = |page| Address {
            zone: ZoneId(9),
            page,
            slot: WHOLE,
        };
        let moved = [(from(1), to(1)), (from(7), to(2)), (from(8), to(30))];
        let mut relocations = Relocations::default();
        relocations.add(&HashSet::from([ZoneId(3)]), &moved.into(), 1);
        let bytes = relocations.encode();
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert!(Relocations::decode(&bytes, &layout(1), "r").is_err());
        }
    }
}
