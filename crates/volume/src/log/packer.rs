//! Packing: the chunks of a group are compressed, and as many as fit share a page.
//!
//! ```text
//! chunks of a group ─▶ compressed, where that is likely to be worth it
//!                   ─▶ the largest first, into the fullest page that has room
//!                   ─▶ a page that holds one alone: that chunk is stored as it is
//! ```
//!
//! A group is packed as a whole when it is closed. Until then its chunks lie in RAM as they came, so reads of them cost
//! nothing, and what is packed together is known before anything is written. Where a zone has no room for the group as
//! it is, what came so far is packed to know what it takes: that, and a page for each chunk that comes later, is a bound
//! which the closing keeps.

use std::collections::{BTreeSet, HashMap};

use super::group_buffer::GroupBuffer;
use super::layout::{PAGE_BYTES, SLOTS_MAX, WHOLE, ZonePlace};
use super::packed_page::{ROOM_BYTES, bytes_taken, pack};
use crate::{Compression, HeadId};

/// A compressed chunk that is longer than this finds hardly another one to share a page with.
const COMPRESSED_BYTES_MAX: usize = 3584;
/// Chunks of a volume that did not shrink one behind the other, after which few are tried,
const UNSHRUNK_MAX: u32 = 64;
/// and one in this many is tried then.
const TRIED_OF: u32 = 8;
/// Chunks that came since a group was packed last, before it is worth packing it again.
const SETTLED_AFTER: usize = 8;

/// Packs groups.
pub(super) struct Packer {
    compression: Compression,
    trials: HashMap<HeadId, ShrinkTrials>,
    /// Chunks of the group.
    chunks: usize,
    /// Those that shrank.
    candidates: Vec<PackCandidate>,
    /// Their compressed bytes, one behind the other.
    compressed: Vec<u8>,
    settled: Settled,
    /// The packed group.
    buffer: GroupBuffer,
    pub totals: PackTotals,
}

/// Counters since the engine was opened.
#[derive(Clone, Copy, Default)]
pub(super) struct PackTotals {
    /// Chunks that were compressed, whether that was worth it or not.
    pub tried: u64,
    /// Chunks that share a page.
    pub packed_chunks: u64,
    /// Pages that they share.
    pub packed_pages: u64,
    /// Bytes of them, compressed.
    pub packed_bytes: u64,
}

/// The first chunks of a group, packed.
#[derive(Default)]
struct Settled {
    chunks: usize,
    /// Pages of two chunks or more.
    shared: Vec<Vec<PackCandidate>>,
}

impl Settled {
    /// Pages that its chunks take.
    fn pages(&self) -> usize {
        let saved: usize = self.shared.iter().map(|page| page.len() - 1).sum();
        self.chunks - saved
    }
}

/// How well the last chunks of a volume shrank.
#[derive(Clone, Copy, Default)]
struct ShrinkTrials {
    /// Chunks that did not, since one did.
    unshrunk: u32,
    /// Chunks since one was tried.
    passed: u32,
}

impl ShrinkTrials {
    /// Whether the next chunk is tried.
    fn take_turn(&mut self) -> bool {
        self.passed += 1;
        let is_tried = self.unshrunk < UNSHRUNK_MAX || self.passed >= TRIED_OF;
        if is_tried {
            self.passed = 0;
        }
        is_tried
    }

    fn note(&mut self, has_shrunk: bool) {
        self.unshrunk = if has_shrunk {
            0
        } else {
            self.unshrunk.saturating_add(1)
        };
    }
}

/// A chunk of a group that may be packed.
#[derive(Clone, Copy)]
struct PackCandidate {
    /// Its place among the group's chunks.
    chunk: usize,
    /// Its compressed bytes in the packer's buffer.
    begin: usize,
    bytes: usize,
}

impl Packer {
    /// Packs as `compression` wants it; chunks of several pages are never packed.
    pub fn new(compression: Compression, chunk_pages: u32) -> Self {
        Self {
            compression: match chunk_pages {
                1 => compression,
                _ => Compression::None,
            },
            trials: HashMap::new(),
            chunks: 0,
            candidates: Vec::new(),
            compressed: Vec::new(),
            settled: Settled::default(),
            buffer: GroupBuffer::new(),
            totals: PackTotals::default(),
        }
    }

    /// Whether chunks may be packed.
    pub fn is_on(&self) -> bool {
        self.compression != Compression::None
    }

    /// Compresses the group's next chunk, where it may be packed: then `volume` wrote it.
    pub fn add(&mut self, bytes: &[u8], volume: Option<HeadId>) {
        let chunk = self.chunks;
        self.chunks += 1;
        let Some(volume) = volume.filter(|_| self.is_on()) else {
            return;
        };
        let trials = self.trials.entry(volume).or_default();
        if self.compression == Compression::Auto && !trials.take_turn() {
            return;
        }
        self.totals.tried += 1;
        let found = compress_onto(&mut self.compressed, bytes);
        trials.note(found.is_some());
        self.candidates
            .extend(found.map(|(begin, bytes)| PackCandidate {
                chunk,
                begin,
                bytes,
            }));
    }

    /// Pages that the group's chunks take at most, where they take `unpacked` as they are.
    pub fn data_pages(&self, unpacked: usize) -> usize {
        if self.is_on() {
            self.pages_max()
        } else {
            unpacked
        }
    }

    fn pages_max(&self) -> usize {
        self.settled.pages() + self.chunks - self.settled.chunks
    }

    /// Packs what came so far, where enough came since the last time. Returns whether the group takes fewer pages now.
    pub fn settle(&mut self) -> bool {
        let is_worth_it = self.is_on() && self.chunks >= self.settled.chunks + SETTLED_AFTER;
        is_worth_it && self.settle_now()
    }

    fn settle_now(&mut self) -> bool {
        let settled = Settled {
            chunks: self.chunks,
            shared: share_pages(self.candidates.clone()),
        };
        let is_better = settled.pages() < self.pages_max();
        if is_better {
            self.settled = settled;
        }
        is_better
    }

    /// Packs the group, of which `data` are the chunks. Returns the packed data, of as many pages as
    /// [`data_pages`](Self::data_pages) said at most, and each chunk's place in it; `None`: nothing is to be gained.
    pub fn pack(&mut self, data: &[u8]) -> Option<(&mut GroupBuffer, Vec<ZonePlace>)> {
        if !self.is_on() {
            return None;
        }
        self.settle_now();
        let shared = std::mem::take(&mut self.settled.shared);
        if shared.is_empty() {
            return None;
        }
        Some(self.lay_out(data, &shared))
    }

    /// Copies the group as it is, of which `data` are the chunks: what is sealed does not lie where readers find it.
    pub fn copy(&mut self, data: &[u8]) -> &mut GroupBuffer {
        self.buffer.clear();
        self.buffer.push(data);
        &mut self.buffer
    }

    /// Gives away the group that was packed or copied last, and takes `empty` for the next one.
    pub fn give_away(&mut self, empty: GroupBuffer) -> GroupBuffer {
        std::mem::replace(&mut self.buffer, empty)
    }

    /// Begins the next group.
    pub fn clear(&mut self) {
        self.chunks = 0;
        self.candidates.clear();
        self.compressed.clear();
        self.settled = Settled::default();
    }

    /// Copies what is not packed, and packs the rest. A packed page lies where its first chunk came.
    fn lay_out(
        &mut self,
        data: &[u8],
        pages: &[Vec<PackCandidate>],
    ) -> (&mut GroupBuffer, Vec<ZonePlace>) {
        let chunks = data.len() / PAGE_BYTES;
        // By chunk: the packed page that it shares, and its slot there.
        let mut shared: Vec<Option<(usize, u8)>> = vec![None; chunks];
        for (no, page) in pages.iter().enumerate() {
            for (slot, candidate) in (1..).zip(page) {
                shared[candidate.chunk] = Some((no, slot));
            }
        }
        self.buffer.clear();
        let mut numbers = vec![None; pages.len()];
        let mut places = Vec::with_capacity(chunks);
        for (bytes, shared) in data.chunks_exact(PAGE_BYTES).zip(shared) {
            let next = self.buffer.pages() as u32;
            places.push(match shared {
                None => {
                    self.buffer.push(bytes);
                    ZonePlace::new(next, WHOLE)
                }
                Some((no, slot)) => {
                    let page = *numbers[no].get_or_insert_with(|| {
                        let slots: Vec<&[u8]> = (pages[no].iter())
                            .map(|it| &self.compressed[it.begin..it.begin + it.bytes])
                            .collect();
                        pack(self.buffer.push_zeros(), &slots);
                        next
                    });
                    ZonePlace::new(page, slot)
                }
            });
        }
        let packed = pages.iter().flatten();
        self.totals.packed_chunks += packed.clone().count() as u64;
        self.totals.packed_bytes += packed.map(|it| it.bytes as u64).sum::<u64>();
        self.totals.packed_pages += pages.len() as u64;
        (&mut self.buffer, places)
    }
}

/// Appends a chunk's compressed bytes to `out`, and returns where they lie; `None`: it did not shrink enough.
fn compress_onto(out: &mut Vec<u8>, chunk: &[u8]) -> Option<(usize, usize)> {
    let begin = out.len();
    out.resize(
        begin + lz4_flex::block::get_maximum_output_size(chunk.len()),
        0,
    );
    let bytes = lz4_flex::block::compress_into(chunk, &mut out[begin..]).unwrap_or(usize::MAX);
    let has_shrunk = bytes <= COMPRESSED_BYTES_MAX;
    out.truncate(if has_shrunk { begin + bytes } else { begin });
    has_shrunk.then_some((begin, bytes))
}

/// Pages of two chunks or more: the largest chunk first, each into the fullest page that has room. Chunks of a page lie
/// in the order in which they came.
fn share_pages(mut candidates: Vec<PackCandidate>) -> Vec<Vec<PackCandidate>> {
    candidates.sort_by_key(|it| (std::cmp::Reverse(it.bytes), it.chunk));
    let mut pages: Vec<Vec<PackCandidate>> = Vec::new();
    // Room and number of pages that take more.
    let mut open: BTreeSet<(usize, usize)> = BTreeSet::new();
    for candidate in candidates {
        let taken = bytes_taken(candidate.bytes);
        let fullest = open.range((taken, 0)..).next().copied();
        let (room, no) = fullest.unwrap_or((ROOM_BYTES, pages.len()));
        match fullest {
            Some(page) => _ = open.remove(&page),
            None => pages.push(Vec::new()),
        }
        pages[no].push(candidate);
        if pages[no].len() < usize::from(SLOTS_MAX) {
            open.insert((room - taken, no));
        }
    }
    pages.retain(|page| page.len() > 1);
    for page in &mut pages {
        page.sort_unstable_by_key(|it| it.chunk);
    }
    pages
}

#[cfg(test)]
mod tests {
    use onefold_io::Random;

    use super::super::packed_page::unpack;
    use super::*;

    /// A chunk of which about this many bytes do not compress.
    fn chunk(random: &mut Random, noise: usize) -> Vec<u8> {
        let mut chunk = vec![0; PAGE_BYTES];
        chunk[..noise].copy_from_slice(&random.bytes(noise));
        chunk
    }

    /// Packs chunks as a group of their own: the packed pages and places, or `None`.
    fn pack(
        packer: &mut Packer,
        data: &[u8],
        volumes: &[Option<HeadId>],
    ) -> Option<(Vec<u8>, Vec<ZonePlace>)> {
        packer.clear();
        for (chunk, volume) in data.chunks_exact(PAGE_BYTES).zip(volumes) {
            packer.add(chunk, *volume);
            // Now and then a zone has no room for the group as it is.
            if packer.chunks.is_multiple_of(13) {
                packer.settle();
            }
        }
        let pages_max = packer.pages_max();
        let (buffer, places) = packer.pack(data)?;
        assert!(buffer.pages() <= pages_max, "a bound that is not kept");
        Some((buffer.data().to_vec(), places))
    }

    fn assert_whole(data: &[u8], packed: &[u8], places: &[ZonePlace]) {
        let mut found = vec![0; PAGE_BYTES];
        for (chunk, place) in data.chunks_exact(PAGE_BYTES).zip(places) {
            let page = &packed[place.page() as usize * PAGE_BYTES..][..PAGE_BYTES];
            match place.slot() {
                WHOLE => found.copy_from_slice(page),
                slot => unpack(page, slot, &mut found).expect("a slot"),
            }
            assert!(found == chunk);
        }
    }

    #[test]
    fn every_chunk_of_a_packed_group_is_found_and_pages_hold_two_or_more() {
        let mut random = Random(1);
        let mut packer = Packer::new(Compression::Lz4, 1);
        for _ in 0..60 {
            let count = 1 + random.below(100) as usize;
            let data: Vec<u8> = (0..count)
                .flat_map(|_| {
                    let noise = random.below(4097) as usize;
                    chunk(&mut random, noise)
                })
                .collect();
            let volumes: Vec<Option<HeadId>> = (0..count)
                .map(|_| (!random.one_in(5)).then_some(HeadId(1)))
                .collect();
            let Some((packed, places)) = pack(&mut packer, &data, &volumes) else {
                continue;
            };
            assert!(packed.len() < data.len());
            assert_whole(&data, &packed, &places);
            for (place, volume) in places.iter().zip(&volumes) {
                let sharing = places.iter().filter(|it| it.page() == place.page()).count();
                assert_eq!(sharing > 1, place.slot() != WHOLE);
                assert!(volume.is_some() || place.slot() == WHOLE);
            }
        }
        assert!(packer.totals.packed_chunks > 500);
    }

    #[test]
    fn chunks_of_a_third_share_pages_by_three() {
        let mut random = Random(2);
        let mut packer = Packer::new(Compression::Lz4, 1);
        let data: Vec<u8> = (0..90).flat_map(|_| chunk(&mut random, 1300)).collect();
        let (packed, places) =
            pack(&mut packer, &data, &[Some(HeadId(0)); 90]).expect("they shrink");
        assert_eq!(packed.len(), 30 * PAGE_BYTES);
        assert_whole(&data, &packed, &places);
    }

    #[test]
    fn after_chunks_that_did_not_shrink_one_in_eight_is_tried() {
        let mut random = Random(3);
        let mut packer = Packer::new(Compression::Auto, 1);
        let noise = random.bytes(PAGE_BYTES * 128);
        let volumes = [Some(HeadId(0)); 128];
        assert!(pack(&mut packer, &noise, &volumes).is_none());
        assert_eq!(packer.totals.tried, 64 + 8);
        // Another volume has trials of its own, and one chunk that shrinks begins anew.
        assert!(pack(&mut packer, &noise, &[Some(HeadId(1)); 128]).is_none());
        assert_eq!(packer.totals.tried, 2 * (64 + 8));
        let zeros = vec![7; PAGE_BYTES * 128];
        assert!(pack(&mut packer, &zeros, &volumes).is_some());
        assert!(
            packer.totals.packed_chunks >= 120,
            "{}",
            packer.totals.packed_chunks
        );
    }

    #[test]
    fn nothing_is_packed_where_it_is_off_or_chunks_have_several_pages() {
        let data = vec![7; PAGE_BYTES * 8];
        for (compression, chunk_pages) in [(Compression::None, 1), (Compression::Lz4, 2)] {
            let mut packer = Packer::new(compression, chunk_pages);
            assert!(pack(&mut packer, &data, &[Some(HeadId(0)); 8]).is_none());
        }
    }
}
