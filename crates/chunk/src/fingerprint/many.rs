//! Fingerprints of many chunks at once, as fast as BLAKE3 is on long input.
//!
//! BLAKE3 cuts its input into leaves of 1 KiB and hashes up to sixteen of them side by side; a chunk of some KiB leaves
//! most of those lanes empty. Here leaf number *i* of all chunks goes through the lanes together, and so do their
//! parents, level by level. The results are BLAKE3's own, bit by bit (a test compares them for all shapes of chunk).
//! Last leaves, of any length, and whole leaves too few to fill the lanes go through lanes of our own (`ragged`).
//! Measured on one Zen 4 core (GB/s, keyed, sieve's chunks out of memory): 4.8 at a mean of 4 KiB, 5.0 at 8 KiB and 5.5
//! at 16 KiB, where one after the other gives 1.5, 2.1 and 2.8.
//!
//! The module uses `blake3::platform`, which is public but documented nowhere: the version of the crate is therefore
//! pinned.

use alloc::vec;
use alloc::vec::Vec;
use blake3::platform::Platform;
use blake3::{BLOCK_LEN, CHUNK_LEN, IncrementCounter, OUT_LEN};

use super::Fingerprint;
use super::leaf::{HashLeaf, IV, LEAF_END, LEAF_START};
use super::order::longest_first;
use super::ragged;

const PARENT: u8 = 4;
const ROOT: u8 = 8;
const KEYED: u8 = 16;
/// Bytes from which a chunk fills all lanes alone, leaf behind leaf, so that memory is read in one direction.
const ALONE_BYTES: usize = 256 << 10;

type Cv = [u8; OUT_LEN];

/// A chunk being hashed. Its leaves' chaining values are `cvs[first..first + count]`, fewer with each level.
#[derive(Clone, Copy)]
struct Message<'a> {
    data: &'a [u8],
    first: usize,
    count: usize,
    number: usize,
}

impl Message<'_> {
    fn whole_leaves(&self) -> usize {
        self.data.len() / CHUNK_LEN
    }

    /// The number of whole leaves plus that of all leaves: it grows with both, and orders messages.
    fn half_leaves(&self) -> usize {
        self.whole_leaves() + self.count
    }
}

/// Parameters for computing the nodes of the tree.
struct NodeParams {
    platform: Platform,
    key: [u32; 8],
    mode: u8,
}

impl NodeParams {
    /// Computes the parents of pairs of chaining values.
    fn join(&self, root: u8, pairs: &[&[u8; BLOCK_LEN]], out: &mut [u8]) {
        let flags = self.mode | PARENT | root;
        self.platform
            .hash_many(pairs, &self.key, 0, IncrementCounter::No, flags, 0, 0, out);
    }

    /// Computes the chaining values of whole leaves, all of them number `i` of their chunk.
    fn leaves(&self, i: usize, leaves: &[&[u8; CHUNK_LEN]], out: &mut [u8]) {
        let (start, end) = (LEAF_START, LEAF_END);
        let no = IncrementCounter::No;
        self.platform
            .hash_many(leaves, &self.key, i as u64, no, self.mode, start, end, out);
    }
}

struct LeafLanes {
    node: NodeParams,
    cvs: Vec<Cv>,
    out: Vec<u8>,
}

/// Fingerprints of chunks, in order: equal to those of [`Fingerprint::keyed`] or, without a key, [`Fingerprint::of`].
///
/// Some hundred chunks at a time fill all lanes and are still in the processor's cache.
///
/// ```
/// use onefold_chunk::{Fingerprint, fingerprints};
///
/// let chunks = [&b"one"[..], b"two"];
/// assert_eq!(fingerprints(None, chunks), chunks.map(Fingerprint::of));
/// ```
pub fn fingerprints<'a>(
    key: Option<&[u8; 32]>,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<Fingerprint> {
    on(Platform::detect(), key, chunks)
}

/// The same result as [`fingerprints`], by instructions of `platform`, which this CPU has.
fn on<'a>(
    platform: Platform,
    key: Option<&[u8; 32]>,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<Fingerprint> {
    let chunks = chunks.into_iter();
    let mut out = Vec::with_capacity(chunks.size_hint().0);
    let mut leaves = 0;
    let mut messages = Vec::with_capacity(chunks.size_hint().0);
    let mut short = Vec::new();
    for chunk in chunks {
        if chunk.is_empty() || chunk.len() >= ALONE_BYTES {
            out.push(match key {
                Some(key) => Fingerprint::keyed(key, chunk),
                None => Fingerprint::of(chunk),
            });
            continue;
        }
        if chunk.len() <= CHUNK_LEN {
            short.push((out.len(), chunk));
            out.push(Fingerprint([0; OUT_LEN]));
            continue;
        }
        let count = chunk.len().div_ceil(CHUNK_LEN);
        messages.push(Message {
            data: chunk,
            first: leaves,
            count,
            number: out.len(),
        });
        leaves += count;
        out.push(Fingerprint([0; OUT_LEN]));
    }
    // Messages with a leaf number i stand in front.
    let mut messages = longest_first(&messages, Message::half_leaves);
    let mut lanes = LeafLanes::new(platform, key, leaves, messages.len());
    let left = lanes.whole_leaves(&messages);
    lanes.ragged_leaves(&messages, &short, left, &mut out);
    lanes.parents(&mut messages);
    lanes.roots(&messages, &mut out);
    out
}

impl LeafLanes {
    fn new(platform: Platform, key: Option<&[u8; 32]>, leaves: usize, messages: usize) -> Self {
        let words = |key: &[u8; 32]| {
            core::array::from_fn(|i| {
                u32::from_le_bytes(key[4 * i..][..4].try_into().expect("four bytes"))
            })
        };
        Self {
            node: NodeParams {
                platform,
                key: key.map_or(IV, words),
                mode: if key.is_some() { KEYED } else { 0 },
            },
            cvs: vec![[0; OUT_LEN]; leaves],
            out: vec![0; messages.max(leaves / 2) * OUT_LEN],
        }
    }

    /// Computes the whole leaves, and returns those that do not fill the lanes.
    fn whole_leaves<'a>(&mut self, messages: &[Message<'a>]) -> Vec<HashLeaf<'a>> {
        let together = ragged::whole_together(self.node.platform);
        let mut inputs: Vec<&[u8; CHUNK_LEN]> = Vec::with_capacity(messages.len());
        let mut left = Vec::with_capacity(3 * messages.len());
        for i in 0..messages.first().map_or(0, Message::whole_leaves) {
            let live = messages.partition_point(|message| message.whole_leaves() > i);
            let (full, rest) = messages[..live].split_at(live - live % together);
            inputs.clear();
            inputs.extend(full.iter().map(|message| &message.data.as_chunks().0[i]));
            self.node.leaves(i, &inputs, &mut self.out);
            for (message, cv) in full.iter().zip(self.out.as_chunks().0) {
                self.cvs[message.first + i] = *cv;
            }
            left.extend(rest.iter().map(|message| HashLeaf {
                data: &message.data[i * CHUNK_LEN..][..CHUNK_LEN],
                counter: i as u64,
                last: 0,
                cv: self.node.key,
                number: message.first + i,
            }));
        }
        left
    }

    /// Computes the last leaves shorter than a KiB, the short chunks of one such leaf alone, and the whole leaves that
    /// were `left`.
    fn ragged_leaves<'a>(
        &mut self,
        messages: &[Message<'a>],
        short: &[(usize, &'a [u8])],
        mut left: Vec<HashLeaf<'a>>,
        out: &mut [Fingerprint],
    ) {
        left.extend(messages.iter().map(|message| HashLeaf {
            data: message.data.as_chunks::<CHUNK_LEN>().1,
            counter: message.whole_leaves() as u64,
            last: 0,
            cv: self.node.key,
            number: message.first + message.count - 1,
        }));
        // Numbers from here on mean short chunks, not leaves.
        let chunks_from = self.cvs.len();
        left.extend(short.iter().map(|(number, data)| HashLeaf {
            data,
            counter: 0,
            last: ROOT,
            cv: self.node.key,
            number: chunks_from + number,
        }));
        for leaf in &ragged::compress(self.node.platform, self.node.mode, left) {
            match leaf.number.checked_sub(chunks_from) {
                None => self.cvs[leaf.number] = bytes_of(&leaf.cv),
                Some(chunk) => out[chunk] = Fingerprint(bytes_of(&leaf.cv)),
            }
        }
    }

    /// Joins neighbours, level by level, until each message has two chaining values; one without a neighbour goes up
    /// unchanged.
    fn parents(&mut self, messages: &mut [Message<'_>]) {
        loop {
            let live = messages.partition_point(|message| message.count > 2);
            if live == 0 {
                return;
            }
            let mut inputs: Vec<&[u8; BLOCK_LEN]> = Vec::with_capacity(self.cvs.len() / 2);
            for message in &messages[..live] {
                inputs.extend(pairs(&self.cvs[message.first..][..message.count]));
            }
            self.node.join(0, &inputs, &mut self.out);
            let mut joined = self.out.as_chunks().0.iter();
            for message in &mut messages[..live] {
                let cvs = &mut self.cvs[message.first..][..message.count];
                let halves = message.count / 2;
                for (cv, joined) in cvs.iter_mut().zip(joined.by_ref().take(halves)) {
                    *cv = *joined;
                }
                if message.count % 2 == 1 {
                    cvs[halves] = cvs[message.count - 1];
                }
                message.count = message.count.div_ceil(2);
            }
        }
    }

    fn roots(&mut self, messages: &[Message<'_>], out: &mut [Fingerprint]) {
        let mut inputs: Vec<&[u8; BLOCK_LEN]> = Vec::with_capacity(messages.len());
        for message in messages {
            inputs.extend(pairs(&self.cvs[message.first..][..2]));
        }
        self.node.join(ROOT, &inputs, &mut self.out);
        for (message, root) in messages.iter().zip(self.out.as_chunks().0) {
            out[message.number] = Fingerprint(*root);
        }
    }
}

/// Pairs of neighbouring chaining values; one without a neighbour is left out.
fn pairs(cvs: &[Cv]) -> &[[u8; BLOCK_LEN]] {
    cvs.as_flattened().as_chunks().0
}

fn bytes_of(cv: &[u32; 8]) -> Cv {
    let mut bytes = [0; OUT_LEN];
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(cv) {
        *bytes = word.to_le_bytes();
    }
    bytes
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    /// All platforms that this CPU has, not only the best.
    fn platforms() -> Vec<Platform> {
        #[cfg(target_arch = "x86_64")]
        let own = [
            Platform::sse2(),
            Platform::sse41(),
            Platform::avx2(),
            Platform::avx512(),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let own = [Some(Platform::detect())];
        own.into_iter()
            .flatten()
            .chain([Platform::portable()])
            .collect()
    }

    #[test]
    fn every_platform_gives_what_blake3_gives() {
        let data: Vec<u8> = (0..400_000u32)
            .map(|i| (i.wrapping_mul(i) >> 7) as u8)
            .collect();
        let chunks: Vec<&[u8]> = (0..40)
            .map(|i| &data[i * 100..][..i * 773 % 9000])
            .chain([&data[..]])
            .collect();
        for key in [None, Some(&[5; 32])] {
            let one = |chunk: &&[u8]| match key {
                Some(key) => Fingerprint::keyed(key, chunk),
                None => Fingerprint::of(chunk),
            };
            let expected: Vec<Fingerprint> = chunks.iter().map(one).collect();
            for platform in platforms() {
                let found = on(platform, key, chunks.iter().copied());
                assert_eq!(found, expected, "{platform:?}");
            }
        }
    }
}
