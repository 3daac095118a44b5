//! A page of a run: extents by LBN, each as many bytes, so that one is found by halving.
//!
//! ```text
//! page   := check:u32 count:u16 width:u8{4} lbn:u64 zone:u64 extent{count} zeros
//! extent := lbn (less the page's), chunks × 2 + (1: mapped), zone (less the page's), place     of width[0..4] bytes
//! ```
//!
//! Widths fit the page's largest numbers: a lone chunk at a random LBN takes 7 or 8 bytes, 500 a page. `check` is the
//! CRC-32C of the run's number, the page's number in the run, and the page behind the check. In an encrypted depot the
//! page leaves its last 16 bytes free, all before them is sealed, and they hold the tag.

use onefold_io::varint::ByteReader;

use super::extent::Extent;
use super::run_id::RunId;
use crate::Result;
use crate::log::check::run_page_check;
use crate::log::layout::{Layout, PAGE_BYTES, WHOLE, ZoneId, ZonePlace};
use crate::log::page_sealer::PageSealer;
use crate::log::zone::damaged;

const HEADER_BYTES: usize = 26;
/// Extents of a page at most: each takes at least a byte for its chunks, and another for its LBN.
const EXTENTS_MAX: usize = (PAGE_BYTES - HEADER_BYTES) / 2;

/// Collects extents for a page.
#[derive(Default)]
pub struct PageBuilder {
    /// Bytes at the page's end that stay free.
    left: usize,
    extents: Vec<Extent>,
    zones: Option<(u64, u64)>,
    chunks_max: u64,
    place_max: u16,
}

impl PageBuilder {
    /// Leaves this many bytes free at the end of each page.
    pub fn leaving(left: usize) -> Self {
        Self {
            left,
            ..Self::default()
        }
    }

    /// First LBN of the page; `None` while it is empty.
    pub fn first_lbn(&self) -> Option<u64> {
        self.extents.first().map(|extent| extent.lbn)
    }

    /// Adds an extent that lies behind the last one, or returns `false` where the page has no room for it.
    pub fn push(&mut self, extent: Extent) -> bool {
        let zones = match (self.zones, extent.target) {
            (known, None) => known,
            (None, Some(target)) => Some((target.zone.0, target.zone.0)),
            (Some((min, max)), Some(target)) => {
                Some((min.min(target.zone.0), max.max(target.zone.0)))
            }
        };
        let chunks_max = self.chunks_max.max(extent.chunks);
        let place_max = (self.place_max).max(extent.target.map_or(0, |at| at.place().0));
        let first = self.first_lbn().unwrap_or(extent.lbn);
        let widths = widths(extent.lbn - first, chunks_max, zones, place_max);
        let bytes = (self.extents.len() + 1) * stride(&widths);
        if HEADER_BYTES + bytes > PAGE_BYTES - self.left || self.extents.len() == EXTENTS_MAX {
            return false;
        }
        (self.zones, self.chunks_max, self.place_max) = (zones, chunks_max, place_max);
        self.extents.push(extent);
        true
    }

    /// Appends the page to `out`, as page `no` of `run`, and is empty again.
    pub fn finish(&mut self, run: RunId, no: u32, sealer: &PageSealer, out: &mut Vec<u8>) {
        let built = std::mem::replace(self, Self::leaving(self.left));
        let (Some(first), Some(last)) = (built.extents.first(), built.extents.last()) else {
            return;
        };
        let span = last.lbn - first.lbn;
        let widths = widths(span, built.chunks_max, built.zones, built.place_max);
        let zone_min = built.zones.map_or(0, |(min, _)| min);
        let mut page = Vec::with_capacity(PAGE_BYTES);
        page.extend_from_slice(&[0; 4]);
        page.extend_from_slice(&(built.extents.len() as u16).to_le_bytes());
        page.extend_from_slice(&widths);
        page.extend_from_slice(&first.lbn.to_le_bytes());
        page.extend_from_slice(&zone_min.to_le_bytes());
        for extent in &built.extents {
            let target = extent.target;
            let numbers = [
                extent.lbn - first.lbn,
                extent.chunks << 1 | u64::from(target.is_some()),
                target.map_or(0, |at| at.zone.0 - zone_min),
                target.map_or(0, |at| u64::from(at.place().0)),
            ];
            for (number, width) in numbers.iter().zip(widths) {
                page.extend_from_slice(&number.to_le_bytes()[..usize::from(width)]);
            }
        }
        page.resize(PAGE_BYTES, 0);
        let check = run_page_check(run, no, &page[4..]);
        page[..4].copy_from_slice(&check.to_le_bytes());
        page.truncate(PAGE_BYTES - sealer.message_bytes());
        sealer.seal_message(no, &identity(run), &mut page);
        out.extend_from_slice(&page);
    }
}

/// Identity that the seals of a run are bound to, besides the page.
pub fn identity(run: RunId) -> [u8; 12] {
    let mut identity = *b"run\0\0\0\0\0\0\0\0\0";
    identity[4..].copy_from_slice(&run.0.to_le_bytes());
    identity
}

/// A page as it was before it was sealed; one that is not sealed as it is. `place` names the file in errors.
///
/// # Errors
/// [`Damaged`](crate::Error::Damaged): the seal does not hold.
pub fn open_page(
    page: Vec<u8>,
    run: RunId,
    no: u32,
    sealer: &PageSealer,
    place: &str,
) -> Result<Vec<u8>> {
    if !sealer.seals() {
        return Ok(page);
    }
    let opened = sealer.open_message(no, &identity(run), &page);
    let Some(opened) = opened else {
        let what = "the seal does not hold, expected a page of this run";
        return Err(damaged(
            place,
            u64::from(no) * PAGE_BYTES as u64,
            what.into(),
        ));
    };
    let mut plain = opened.into_owned();
    plain.resize(PAGE_BYTES, 0);
    Ok(plain)
}

fn widths(span: u64, chunks_max: u64, zones: Option<(u64, u64)>, place_max: u16) -> [u8; 4] {
    let bytes = |number: u64| (u64::BITS - number.leading_zeros()).div_ceil(8) as u8;
    [
        bytes(span),
        bytes(chunks_max << 1 | 1),
        bytes(zones.map_or(0, |(min, max)| max - min)),
        bytes(u64::from(place_max)),
    ]
}

fn stride(widths: &[u8; 4]) -> usize {
    widths.iter().map(|width| usize::from(*width)).sum()
}

/// A page of a run, proved by its check.
pub struct RunPage {
    bytes: Vec<u8>,
    count: usize,
    widths: [u8; 4],
    lbn: u64,
    zone: u64,
}

impl RunPage {
    /// The page that `bytes` hold: page `no` of `run`. `place` names the file in errors.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged): they are not what was written, or say what cannot be.
    pub fn decode(
        bytes: Vec<u8>,
        run: RunId,
        no: u32,
        layout: &Layout,
        place: &str,
    ) -> Result<Self> {
        let offset = u64::from(no) * PAGE_BYTES as u64;
        if bytes.len() != PAGE_BYTES {
            let what = format!("a page of {} bytes, expected {PAGE_BYTES}", bytes.len());
            return Err(damaged(place, offset, what));
        }
        let mut reader = ByteReader::new(&bytes, place, offset);
        let (expected, count) = (reader.u32()?, reader.u16()?);
        let found = run_page_check(run, no, &bytes[4..]);
        if found != expected {
            let what = format!("checksum {found:#010x}, expected {expected:#010x}");
            return Err(damaged(place, offset, what));
        }
        let (widths, lbn, zone) = (reader.array()?, reader.u64()?, reader.u64()?);
        let page = Self {
            count: usize::from(count),
            widths,
            lbn,
            zone,
            bytes,
        };
        let problem = page.problem(layout);
        match problem {
            Some(what) => Err(damaged(place, offset, what)),
            None => Ok(page),
        }
    }

    /// Describes a value that cannot be, if there is any.
    fn problem(&self, layout: &Layout) -> Option<String> {
        let is_wide = self.widths.iter().any(|width| *width > 8);
        let fits = !is_wide && HEADER_BYTES + self.count * stride(&self.widths) <= PAGE_BYTES;
        if !fits || self.count == 0 {
            let (count, widths) = (self.count, self.widths);
            return Some(format!("{count} extents of widths {widths:?} fill no page"));
        }
        let mut end_before = 0;
        for at in 0..self.count {
            let [ahead, chunks, zone, place] = self.numbers(at);
            let (chunks, is_mapped) = (chunks >> 1, chunks & 1 == 1);
            let lbn = self.lbn.checked_add(ahead);
            let end = lbn.and_then(|lbn| lbn.checked_add(chunks));
            let is_in_zone = are_in_zone(place, chunks, layout)
                && (self.zone.checked_add(zone)).is_some_and(|zone| !ZoneId(zone).is_pending());
            let is_sound = chunks > 0 && (!is_mapped || is_in_zone);
            match (lbn, end) {
                (Some(lbn), Some(end)) if is_sound && lbn >= end_before => end_before = end,
                _ => return Some(format!("extent {at} overlaps another, or lies nowhere")),
            }
        }
        None
    }

    fn numbers(&self, at: usize) -> [u64; 4] {
        let mut start = HEADER_BYTES + at * stride(&self.widths);
        self.widths.map(|width| {
            let number = number(&self.bytes[start..], usize::from(width));
            start += usize::from(width);
            number
        })
    }

    /// How many extents it holds.
    pub fn len(&self) -> usize {
        self.count
    }

    /// An extent by its place in the page.
    pub fn extent(&self, at: usize) -> Extent {
        let [ahead, chunks, zone, place] = self.numbers(at);
        let target =
            (chunks & 1 == 1).then(|| ZonePlace(place as u16).in_zone(ZoneId(self.zone + zone)));
        Extent {
            lbn: self.lbn + ahead,
            chunks: chunks >> 1,
            target,
        }
    }

    /// Place of the first extent that ends behind `lbn`; [`len`](Self::len) where there is none.
    pub fn first_behind(&self, lbn: u64) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            if self.extent(middle).end() > lbn {
                high = middle
            } else {
                low = middle + 1
            }
        }
        low
    }
}

/// The number of so many bytes that `bytes` begin with.
fn number(bytes: &[u8], width: usize) -> u64 {
    // A load of fixed length is much faster than a copy of some bytes.
    match bytes.first_chunk() {
        Some(eight) if width < 8 => u64::from_le_bytes(*eight) & ((1 << (8 * width)) - 1),
        Some(eight) => u64::from_le_bytes(*eight),
        None => {
            let mut number = [0; 8];
            number[..width].copy_from_slice(&bytes[..width]);
            u64::from_le_bytes(number)
        }
    }
}

/// Whether a zone has room for chunks that lie one behind the other from a place on: in pages, or in slots of one page.
fn are_in_zone(place: u64, chunks: u64, layout: &Layout) -> bool {
    if place > ZonePlace::MAX {
        return false;
    }
    let place = ZonePlace(place as u16);
    let pages = match place.slot() {
        WHOLE => chunks.saturating_mul(u64::from(layout.chunk_pages)),
        _ => 1,
    };
    let end = u64::from(place.page()).saturating_add(pages);
    place.has_behind(chunks) && end <= u64::from(layout.groups_end())
}

#[cfg(test)]
mod tests {
    use onefold_io::Random;

    use super::*;
    use crate::log::layout::Address;

    fn layout() -> Layout {
        Layout::new(1 << 30, 4096).expect("large enough")
    }

    /// Extents in order, as many as are asked for.
    fn some_extents(random: &mut Random, count: usize) -> Vec<Extent> {
        let mut lbn = random.below(1 << 40);
        let gap_max = [1, 2, 1000, 1 << 50][random.below(4) as usize];
        (0..count)
            .map(|_| {
                lbn += random.below(gap_max);
                let chunks = 1 + random.below(20);
                let is_mapped = !random.one_in(5);
                let extent = Extent {
                    lbn,
                    chunks: if is_mapped {
                        chunks
                    } else {
                        chunks << random.below(50)
                    },
                    target: is_mapped.then(|| Address {
                        zone: ZoneId(1000 + random.below(1 << 18)),
                        page: random.below(40) as u32,
                        slot: if chunks < 4 && random.one_in(2) {
                            1 + random.below(13) as u8
                        } else {
                            WHOLE
                        },
                    }),
                };
                lbn = extent.end();
                extent
            })
            .collect()
    }

    fn page_of(extents: &[Extent]) -> (Vec<u8>, usize) {
        let mut builder = PageBuilder::default();
        let count = extents.iter().take_while(|it| builder.push(**it)).count();
        let mut bytes = Vec::new();
        builder.finish(RunId(3), 5, &PageSealer::Crc32c, &mut bytes);
        assert_eq!(builder.first_lbn(), None);
        (bytes, count)
    }

    #[test]
    fn a_page_comes_back_and_is_searched_as_a_list() {
        let mut random = Random(1);
        for _ in 0..200 {
            let count = 1 + random.below(900) as usize;
            let extents = some_extents(&mut random, count);
            let (bytes, count) = page_of(&extents);
            let page = RunPage::decode(bytes, RunId(3), 5, &layout(), "run").expect("whole");
            let found: Vec<Extent> = (0..page.len()).map(|at| page.extent(at)).collect();
            assert_eq!(found, extents[..count]);
            for _ in 0..50 {
                let some = extents[random.below(count as u64) as usize];
                let lbn = (some.lbn + random.below(3)).saturating_sub(1);
                let expected = found.iter().position(|it| it.end() > lbn);
                assert_eq!(page.first_behind(lbn), expected.unwrap_or(count));
            }
        }
    }

    #[test]
    fn lone_random_chunks_take_eight_bytes() {
        let mut random = Random(2);
        let lone = |lbn: u64| Extent {
            lbn: lbn * 2,
            chunks: 1,
            target: Some(Address {
                zone: ZoneId(random.below(1 << 18)),
                page: 1 + random.below(40) as u32,
                slot: WHOLE,
            }),
        };
        let extents: Vec<Extent> = (0..1000).map(lone).collect();
        let (_, count) = page_of(&extents);
        assert!(count > 500, "{count}");
    }

    #[test]
    fn a_flipped_bit_or_another_place_is_damage() {
        let mut random = Random(3);
        for _ in 0..200 {
            let (bytes, _) = page_of(&some_extents(&mut random, 200));
            let decode = |bytes: &[u8], run, no| {
                RunPage::decode(bytes.to_vec(), RunId(run), no, &layout(), "run").is_err()
            };
            assert!(decode(&bytes, 3, 6) && decode(&bytes, 4, 5) && decode(&bytes[1..], 3, 5));
            let mut hurt = bytes.clone();
            hurt[random.below(4096) as usize] ^= 1 << random.below(8);
            assert!(decode(&hurt, 3, 5));
        }
    }

    #[test]
    fn a_page_that_says_what_cannot_be_is_damage() {
        let mut random = Random(4);
        for _ in 0..3000 {
            let (mut bytes, count) = page_of(&some_extents(&mut random, 20));
            for _ in 0..1 + random.below(3) {
                let at = 4 + random.below(HEADER_BYTES as u64 + 16 * count as u64) as usize;
                bytes[at] = random.next() as u8;
            }
            let check = run_page_check(RunId(3), 5, &bytes[4..]);
            bytes[..4].copy_from_slice(&check.to_le_bytes());
            let Ok(page) = RunPage::decode(bytes, RunId(3), 5, &layout(), "run") else {
                continue;
            };
            let all: Vec<Extent> = (0..page.len()).map(|at| page.extent(at)).collect();
            assert!(all.is_sorted_by(|a, b| a.end() <= b.lbn && b.chunks > 0));
        }
    }
}
