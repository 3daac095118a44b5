//! The table of frequent segments: the estimator's result, the one-pass chunker's memory, and the sketch that a later
//! run starts from. Its size is limited: a chunker that tracks heavy hitters drops the half that was seen least and
//! longest ago. (The estimator, which counts candidates, makes its pre-filter coarser instead, so that the remaining
//! counts stay right.)

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::filter::mix;
use super::window::{RabinWindow, passes};

/// The facts known of a segment.
///
/// ```
/// use onefold_chunk::fbc::SegmentFacts;
///
/// assert_eq!((SegmentFacts::default().count, SegmentFacts::default().chunk_bytes), (0, 0));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SegmentFacts {
    /// Number of occurrences, seen or estimated.
    pub count: u32,
    /// Length in bytes of the chunk that was cut to end with the segment; 0 if none was yet.
    pub chunk_bytes: u32,
    /// Epoch (in MiB cut) when the segment was last seen; not part of the sketch.
    pub(super) epoch: u32,
    /// Hash of the last chunk that the segment ended; 0 if unknown.
    pub(super) content: u32,
}

/// Segments by signature.
///
/// ```
/// use onefold_chunk::fbc::{Estimator, Params, Segments};
///
/// let mut estimator = Estimator::new(Params::new(512), 1);
/// (0..20).for_each(|_| estimator.feed(&[7; 5000]));
/// let frequent = estimator.finish();
/// let sketch = frequent.encode();
/// assert_eq!(Segments::decode(&sketch, Params::ENTRIES_MAX)?.len(), frequent.len());
/// # Ok::<(), onefold_chunk::fbc::SketchError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Segments {
    pub(super) window_bytes: u32,
    pub(super) modulo: u32,
    entries_max: usize,
    pub(super) entries: HashMap<u64, SegmentFacts, BuildHasherDefault<Spread>>,
}

/// Bytes of the table for each entry, at the load that it grows to.
const ENTRY_BYTES: usize = size_of::<(u64, SegmentFacts)>() + 1;
/// Version of the sketch.
pub const VERSION: u8 = 2;
/// The first version, whose entries have no hash of their chunk.
const VERSION_WITHOUT_CONTENT: u8 = 1;
/// Bytes of a sketch before its entries, and of an entry.
pub(super) const HEAD_BYTES: usize = 13;
pub(super) const ITEM_BYTES: usize = 20;
/// Shortest window of a sketch: [`Params`](super::Params) has no shorter segments, and cuts beside shorter ones would
/// be empty.
const WINDOW_BYTES_MIN: u32 = 64;
/// Largest window, modulo and chunk of a sketch.
const SANE: u32 = 1 << 30;

impl Segments {
    /// An empty table for segments of `window_bytes` whose signatures pass `modulo` (a power of two).
    pub fn new(window_bytes: usize, modulo: u32, entries_max: usize) -> Self {
        Self {
            window_bytes: window_bytes as u32,
            modulo,
            entries_max: entries_max.max(2),
            entries: HashMap::default(),
        }
    }

    /// The facts known of the segment with this signature.
    #[inline]
    pub fn get(&self, signature: u64) -> Option<&SegmentFacts> {
        self.entries.get(&signature)
    }

    /// The number of occurrences of each of these segments, as far as known: 0 where it is not in the table, `None`
    /// where the pre-filter does not let it pass.
    pub fn estimates<'a>(&self, segments: impl Iterator<Item = &'a [u8]>) -> Vec<Option<u32>> {
        let window = RabinWindow::new(self.window_bytes());
        segments
            .map(|segment| window.of(segment))
            .map(|signature| {
                let count = self.get(signature).map_or(0, |segment| segment.count);
                passes(signature, self.modulo).then_some(count)
            })
            .collect()
    }

    /// The number of segments.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table has no segment.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Length of a segment in bytes.
    pub fn window_bytes(&self) -> usize {
        self.window_bytes as usize
    }

    /// The pre-filter: one window in this many is a candidate.
    pub fn modulo(&self) -> u32 {
        self.modulo
    }

    /// RAM of the table in bytes.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * 8 / 7 * ENTRY_BYTES
    }

    /// The largest RAM that the table can take, in bytes.
    pub fn bytes_max(&self) -> usize {
        (self.entries_max + 1).next_power_of_two() * 2 * ENTRY_BYTES
    }

    /// Makes room: forgets the half that was seen least, among equals the oldest, and halves the counts, so that
    /// segments which were frequent long ago fade.
    pub(super) fn forget(&mut self) {
        if self.entries.len() <= self.entries_max {
            return;
        }
        let rank = |segment: &SegmentFacts| (segment.count, segment.epoch);
        let mut ranks: Vec<_> = self.entries.values().map(rank).collect();
        let half = ranks.len() / 2;
        let (_, border, _) = ranks.select_nth_unstable(half);
        let border = *border;
        let mut room = self.entries_max / 2;
        self.entries.retain(|_, segment| {
            let stays = rank(segment) >= border && room > 0;
            room -= usize::from(stays);
            segment.count = segment.count.div_ceil(2);
            stays
        });
    }

    /// The sketch: version, window, modulo, number of entries, then each entry by ascending signature.
    pub fn encode(&self) -> Vec<u8> {
        let mut all: Vec<_> = self.entries.iter().collect();
        all.sort_unstable_by_key(|(signature, _)| **signature);
        let mut out = Vec::with_capacity(HEAD_BYTES + ITEM_BYTES * all.len());
        out.push(VERSION);
        out.extend(self.window_bytes.to_le_bytes());
        out.extend(self.modulo.to_le_bytes());
        out.extend((all.len() as u32).to_le_bytes());
        for (signature, segment) in all {
            out.extend(signature.to_le_bytes());
            out.extend(segment.count.to_le_bytes());
            out.extend(segment.chunk_bytes.to_le_bytes());
            out.extend(segment.content.to_le_bytes());
        }
        out
    }

    /// The inverse of [`encode`](Self::encode), for a table of at most `entries_max`.
    ///
    /// # Errors
    /// [`SketchError`]: more entries than `entries_max`, bytes missing or left over, an unknown version, or an
    /// impossible window, modulo, order or length.
    pub fn decode(bytes: &[u8], entries_max: usize) -> Result<Self, SketchError> {
        let (head, items) = bytes
            .split_at_checked(HEAD_BYTES)
            .ok_or(SketchError("a sketch shorter than its head"))?;
        let item_bytes = match head[0] {
            VERSION => ITEM_BYTES,
            VERSION_WITHOUT_CONTENT => ITEM_BYTES - 4,
            _ => return Err(SketchError("a sketch of a version that is not known")),
        };
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let (window_bytes, modulo, count) = (word(1), word(5), word(9) as usize);
        if !(WINDOW_BYTES_MIN..=SANE).contains(&window_bytes)
            || !modulo.is_power_of_two()
            || modulo > SANE
        {
            return Err(SketchError("a sketch with an impossible window or modulo"));
        }
        if count > entries_max || items.len() != count * item_bytes {
            return Err(SketchError(
                "a sketch with more or fewer entries than it may have",
            ));
        }
        let mut segments = Self::new(window_bytes as usize, modulo, entries_max);
        let mut before = None;
        for item in items.chunks_exact(item_bytes) {
            let signature = u64::from_le_bytes(item[..8].try_into().expect("eight bytes"));
            let count = u32::from_le_bytes(item[8..12].try_into().expect("four bytes"));
            let chunk_bytes = u32::from_le_bytes(item[12..16].try_into().expect("four bytes"));
            let content = item[16..]
                .first_chunk()
                .map_or(0, |c| u32::from_le_bytes(*c));
            let is_length = chunk_bytes == 0 || (window_bytes..=SANE).contains(&chunk_bytes);
            if before >= Some(signature) || !passes(signature, modulo) || !is_length {
                return Err(SketchError("a sketch with an impossible entry"));
            }
            before = Some(signature);
            let segment = SegmentFacts {
                count,
                chunk_bytes,
                content,
                ..SegmentFacts::default()
            };
            segments.entries.insert(signature, segment);
        }
        Ok(segments)
    }
}

/// The reason why bytes are no valid sketch.
///
/// ```
/// use onefold_chunk::fbc::{Params, Segments, SketchError};
///
/// let error: SketchError = Segments::decode(b"no sketch", Params::ENTRIES_MAX).unwrap_err();
/// assert!(!error.to_string().is_empty());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SketchError(pub(super) &'static str);

impl std::fmt::Display for SketchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for SketchError {}

/// A hasher that only spreads: signatures are remainders already.
#[derive(Clone, Default)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.0 = mix(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(word);
    }
}
