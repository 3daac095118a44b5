//! BLAKE3's compression of one block of each of up to sixteen leaves at once, with a length, a counter and flags for
//! each lane.
//!
//! A word of every lane is an array that the compiler makes a vector of, in functions that are compiled for AVX-512 and
//! for AVX2. Lanes are sorted by length, longest first; a lane that has ended keeps its chaining value while the others
//! go on.

use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

use blake3::BLOCK_LEN;

use super::leaf::{HashLeaf, IV, LANES};
use super::transpose::{self, Rows};

/// A word of every lane.
type Word = [u32; LANES];

/// The width of the vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// Eight lanes in a register.
    Avx2,
    /// Sixteen lanes in a register.
    Avx512,
}

impl Width {
    /// The widest vectors that this CPU has.
    pub fn best() -> Option<Self> {
        [Self::Avx512, Self::Avx2]
            .into_iter()
            .find(|width| width.is_there())
    }

    /// Whether this CPU has vectors of this width.
    pub fn is_there(self) -> bool {
        match self {
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
            }
        }
    }
}

/// Compresses leaves side by side; the longest must come first.
///
/// # Panics
/// If this CPU does not have vectors of this width.
pub fn compress(width: Width, mode: u8, leaves: &mut [HashLeaf<'_>]) {
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq")]
    fn avx512(mode: u8, leaves: &mut [HashLeaf<'_>]) {
        lanes(mode, leaves, |rows| transpose::avx512(rows));
    }
    #[target_feature(enable = "avx2")]
    fn avx2(mode: u8, leaves: &mut [HashLeaf<'_>]) {
        lanes(mode, leaves, |rows| transpose::avx2(rows));
    }
    assert!(width.is_there());
    match width {
        // SAFETY: this CPU has the features, as was just asked.
        Width::Avx512 => unsafe { avx512(mode, leaves) },
        // SAFETY: as above.
        Width::Avx2 => unsafe { avx2(mode, leaves) },
    }
}

/// Blocks that are prefetched: earlier work may have pushed them out of the nearest cache.
const AHEAD: usize = 4;

#[inline(always)]
fn prefetch(data: &[u8], at: usize) {
    if let Some(byte) = data.get(at) {
        // SAFETY: a prefetch is a hint, of a place that is there; every x86-64 CPU has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(byte).cast()) };
    }
}

/// Compresses at most [`LANES`] leaves, longest first; `turn` transposes as [`transpose::plain`] does.
#[inline(always)]
pub fn lanes(mode: u8, leaves: &mut [HashLeaf<'_>], turn: impl Fn(&Rows) -> Rows) {
    let mut cvs = [[0; LANES]; 8];
    let (mut low, mut high) = ([0; LANES], [0; LANES]);
    for (lane, leaf) in leaves.iter().enumerate() {
        for (words, word) in cvs.iter_mut().zip(leaf.cv) {
            words[lane] = word;
        }
        (low[lane], high[lane]) = (leaf.counter as u32, (leaf.counter >> 32) as u32);
    }
    for step in 0..AHEAD {
        for leaf in &*leaves {
            prefetch(leaf.data, step * BLOCK_LEN);
        }
    }
    let mut rows = [[0; LANES]; LANES];
    let (mut lengths, mut flags) = ([0; LANES], [0; LANES]);
    for step in 0..leaves[0].blocks() {
        // all ones in each lane that still has a block
        let mut live = [0; LANES];
        for (lane, leaf) in leaves.iter().enumerate() {
            let (length, flag) = match leaf.inner(step, mode) {
                Some((bytes, flags)) => {
                    rows[lane] = words_of(bytes);
                    (BLOCK_LEN as u8, flags)
                }
                None => {
                    let Some(block) = leaf.block(step, mode) else {
                        break;
                    };
                    rows[lane] = words_of(&block.bytes);
                    (block.length, block.flags)
                }
            };
            prefetch(leaf.data, (step + AHEAD) * BLOCK_LEN);
            (lengths[lane], flags[lane]) = (length.into(), flag.into());
            live[lane] = u32::MAX;
        }
        let after = rounds(&cvs, &turn(&rows), [low, high, lengths, flags]);
        cvs = [
            chosen(&live, &after[0], &cvs[0]),
            chosen(&live, &after[1], &cvs[1]),
            chosen(&live, &after[2], &cvs[2]),
            chosen(&live, &after[3], &cvs[3]),
            chosen(&live, &after[4], &cvs[4]),
            chosen(&live, &after[5], &cvs[5]),
            chosen(&live, &after[6], &cvs[6]),
            chosen(&live, &after[7], &cvs[7]),
        ];
    }
    for (lane, leaf) in leaves.iter_mut().enumerate() {
        leaf.cv = core::array::from_fn(|word| cvs[word][lane]);
    }
}

#[inline(always)]
fn words_of(bytes: &[u8; BLOCK_LEN]) -> [u32; 16] {
    let mut words = [0; 16];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

/// The lanes of `new` where `live` is all ones, those of `old` where it is zero.
#[inline(always)]
fn chosen(live: &Word, new: &Word, old: &Word) -> Word {
    let mut out = *old;
    for lane in 0..LANES {
        out[lane] = new[lane] & live[lane] | old[lane] & !live[lane];
    }
    out
}

/// The position in the round before from which each round takes its words.
const PERMUTATION: [usize; 16] = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];

/// BLAKE3's seven rounds; returns the next chaining values. `rest` is counter, length and flags.
#[inline(always)]
fn rounds(cvs: &[Word; 8], words: &[Word; 16], rest: [Word; 4]) -> [Word; 8] {
    let [c0, c1, c2, c3, c4, c5, c6, c7] = *cvs;
    let [i0, i1, i2, i3, ..] = IV.map(|word| [word; LANES]);
    let [low, high, lengths, flags] = rest;
    let mut v = [
        c0, c1, c2, c3, c4, c5, c6, c7, i0, i1, i2, i3, low, high, lengths, flags,
    ];
    // Written out, so that every word's place is a constant.
    round(&mut v, words, &ORDERS[0]);
    round(&mut v, words, &ORDERS[1]);
    round(&mut v, words, &ORDERS[2]);
    round(&mut v, words, &ORDERS[3]);
    round(&mut v, words, &ORDERS[4]);
    round(&mut v, words, &ORDERS[5]);
    round(&mut v, words, &ORDERS[6]);
    // Word by word and not in a loop: the compiler would make vectors of words instead of lanes.
    [
        either(&v[0], &v[8]),
        either(&v[1], &v[9]),
        either(&v[2], &v[10]),
        either(&v[3], &v[11]),
        either(&v[4], &v[12]),
        either(&v[5], &v[13]),
        either(&v[6], &v[14]),
        either(&v[7], &v[15]),
    ]
}

#[inline(always)]
fn either(one: &Word, other: &Word) -> Word {
    let mut out = *one;
    for lane in 0..LANES {
        out[lane] ^= other[lane];
    }
    out
}

/// The order of words in each round.
const ORDERS: [[usize; 16]; 7] = {
    let mut orders = [[0; 16]; 7];
    let mut i = 0;
    while i < 16 {
        orders[0][i] = i;
        i += 1;
    }
    let mut round = 1;
    while round < 7 {
        let mut i = 0;
        while i < 16 {
            orders[round][i] = orders[round - 1][PERMUTATION[i]];
            i += 1;
        }
        round += 1;
    }
    orders
};

#[inline(always)]
fn round(v: &mut [Word; 16], words: &[Word; 16], order: &[usize; 16]) {
    mix(v, [0, 4, 8, 12], &words[order[0]], &words[order[1]]);
    mix(v, [1, 5, 9, 13], &words[order[2]], &words[order[3]]);
    mix(v, [2, 6, 10, 14], &words[order[4]], &words[order[5]]);
    mix(v, [3, 7, 11, 15], &words[order[6]], &words[order[7]]);
    mix(v, [0, 5, 10, 15], &words[order[8]], &words[order[9]]);
    mix(v, [1, 6, 11, 12], &words[order[10]], &words[order[11]]);
    mix(v, [2, 7, 8, 13], &words[order[12]], &words[order[13]]);
    mix(v, [3, 4, 9, 14], &words[order[14]], &words[order[15]]);
}

/// BLAKE3's quarter round on four words of the state.
#[inline(always)]
fn mix(v: &mut [Word; 16], [a, b, c, d]: [usize; 4], x: &Word, y: &Word) {
    let (mut va, mut vb, mut vc, mut vd) = (v[a], v[b], v[c], v[d]);
    for (message, first, second) in [(x, 16, 12), (y, 8, 7)] {
        for lane in 0..LANES {
            va[lane] = va[lane].wrapping_add(vb[lane]).wrapping_add(message[lane]);
            vd[lane] = (vd[lane] ^ va[lane]).rotate_right(first);
            vc[lane] = vc[lane].wrapping_add(vd[lane]);
            vb[lane] = (vb[lane] ^ vc[lane]).rotate_right(second);
        }
    }
    (v[a], v[b], v[c], v[d]) = (va, vb, vc, vd);
}
