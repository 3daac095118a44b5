//! The linear bits: eight GF(2)-linear hash bits of the nine bytes that end at a position.
//!
//! They are one byte of the carry-less product of the data, read as one long little-endian number, with [`KEY`]. CPUs that multiply so do it
//! for 8 positions an instruction and more. For all others the key is a product itself: multiplying by `1 + xⁿ` is one shift and one XOR, so
//! four of these give sixteen taps, for the eight positions of a word at once.

use super::scan::{Area, Found};

/// The powers `n` of the key's factors `1 + xⁿ`. Modulo 8 their sums meet every bit of a byte twice; no two subsets have one sum, so the key
/// has 16 bits; and a word with its predecessor holds all that a tap reaches, the sum of all being below 64.
const FACTORS: [u32; 4] = [9, 10, 12, 29];

/// The multiplier of the carry-less convolution: the product of all factors.
///
/// An even number of its bits is set. So the linear bits of a run of one byte have even parity, whatever the byte.
pub const KEY: u64 = {
    let mut key = 1u64;
    let mut i = 0;
    while i < FACTORS.len() {
        key ^= key << FACTORS[i];
        i += 1;
    }
    key
};

/// XORed to the linear bits. Its parity is odd, so no run of one byte, zeros among them, becomes zero. Of twelve such constants tried it is the one
/// whose dedup ratios were above the average on both kinds of data that the module names.
pub const NEVER_ZERO: u8 = 0x8f;

/// Bytes before a position that its linear bits depend on.
pub const REACH: usize = 8;

/// One factor a step, each with the word before, from which bits are carried over.
#[derive(Clone, Copy)]
struct Product {
    before: [u64; FACTORS.len()],
}

impl Product {
    /// As if zeros were before.
    const NEW: Self = Self {
        before: [0; FACTORS.len()],
    };

    /// The linear bits of the eight positions of the next word, a byte each, XOR [`NEVER_ZERO`].
    #[inline(always)]
    fn next(&mut self, mut word: u64) -> u64 {
        for (before, n) in self.before.iter_mut().zip(FACTORS) {
            let carried = *before >> (64 - n);
            *before = word;
            word ^= word << n ^ carried;
        }
        word ^ (ONES * NEVER_ZERO as u64)
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = ONES << 7;

/// The bits at position `t ≥ 8`.
pub fn bits_at(data: &[u8], t: usize) -> u8 {
    let mut product = Product::NEW;
    product.next(word(&data[t - REACH..]));
    product.next(data[t].into()) as u8
}

/// The first eight bytes, or zeros behind fewer.
#[inline(always)]
fn word(data: &[u8]) -> u64 {
    match data.first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => data
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// The high bit of every byte of `word` that is zero.
#[inline(always)]
fn zero_bytes(word: u64) -> u64 {
    !((word & !HIGHS).wrapping_add(!HIGHS) | word | !HIGHS)
}

/// As [`super::scan::scan`] promises, eight positions at a time.
pub fn scan(data: &[u8], area: Area, found: &mut Found) -> usize {
    let Area { from, to, mask } = area;
    let masks = ONES * u64::from(mask);
    let mut product = Product::NEW;
    product.next(word(&data[from - 2 * REACH..]));
    let mut before = product.next(word(&data[from - REACH..]));
    let mut t = from;
    for eight in data[from..to].chunks(8) {
        let bits = product.next(word(eight));
        if bits.wrapping_sub(ONES) & !bits & HIGHS != 0 {
            let shifted = bits << 8 | before >> 56;
            let inside = HIGHS >> (8 * (8 - eight.len()));
            let mut hits = zero_bytes(bits) & zero_bytes(shifted & masks) & inside;
            while hits != 0 {
                found.push(t + hits.trailing_zeros() as usize / 8);
                hits &= hits - 1;
            }
            if found.is_full() {
                return t + eight.len();
            }
        }
        before = bits;
        t += 8;
    }
    to
}
