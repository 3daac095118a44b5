//! The linear bits: eight GF(2)-linear hash bits of the nine bytes that end at a position.
//!
//! The bits are one byte of the carry-less product of the data, read as one long little-endian number, with [`KEY`].
//! CPUs with such a multiplication do it for 8 positions an instruction and more. For all others the key is a product
//! itself: multiplying by `1 + xⁿ` is one shift and one XOR, so four of these give sixteen taps, for the eight
//! positions of a word at once.

use super::positions::{Area, Positions};

/// The powers `n` of the key's factors `1 + xⁿ`. Modulo 8 their sums meet every bit of a byte twice; no two subsets
/// have one sum, so the key has 16 bits; and a word with its predecessor holds all that a tap reaches, the sum of all
/// being below 64.
const FACTORS: [u32; 4] = [9, 10, 12, 29];

/// The multiplier of the carry-less convolution: the product of all factors.
///
/// An even number of its bits is set, so the linear bits of a run of one byte have even parity, whatever the byte.
#[cfg_attr(not(feature = "std"), allow(dead_code))]
pub const KEY: u64 = {
    let mut key = 1u64;
    let mut i = 0;
    while i < FACTORS.len() {
        key ^= key << FACTORS[i];
        i += 1;
    }
    key
};

/// Constant that is XORed to the linear bits. Its parity is odd, so no run of one byte, zeros among them, becomes zero.
/// Twelve such constants were tried; with this one, dedup ratios were above the average on both kinds of data that the
/// module names.
pub const NEVER_ZERO: u8 = 0x8f;

/// Number of bytes before a position that its linear bits depend on.
pub const REACH: usize = 8;

/// The product in steps of one factor, each with the bits carried over from the word before.
///
/// Carried bits are shifted down when their word is seen, not when they are used: the latter would make a double shift
/// of both words, which takes many CPUs six operations instead of two.
#[derive(Clone, Copy)]
struct Product {
    carried: [u64; FACTORS.len()],
}

impl Product {
    /// The state where all bytes before are zeros.
    const NEW: Self = Self {
        carried: [0; FACTORS.len()],
    };

    /// The linear bits of the eight positions of the next word, a byte each, XOR [`NEVER_ZERO`].
    #[inline(always)]
    fn next(&mut self, mut word: u64) -> u64 {
        for (carried, n) in self.carried.iter_mut().zip(FACTORS) {
            let next = word >> (64 - n);
            word ^= word << n ^ *carried;
            *carried = next;
        }
        word ^ (ONES * NEVER_ZERO as u64)
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = ONES << 7;

/// The linear bits at position `t ≥ 8`.
#[cfg_attr(not(feature = "std"), allow(dead_code))]
pub fn bits_at(data: &[u8], t: usize) -> u8 {
    let mut product = Product::NEW;
    product.next(word(&data[t - REACH..]));
    product.next(data[t].into()) as u8
}

/// The first eight bytes of `data`, with zeros behind where there are fewer.
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

/// The high bit of each byte of `word` that is zero.
#[inline(always)]
fn zero_bytes(word: u64) -> u64 {
    !((word & !HIGHS).wrapping_add(!HIGHS) | word | !HIGHS)
}

/// The search that [`super::scan::scan`] promises, eight positions at a time.
pub fn scan(data: &[u8], area: Area, found: &mut Positions) -> usize {
    let Area { from, to, mask } = area;
    let (mut product, mut before) = warmed_up(data, from);
    let (words, rest) = data[from..to].as_chunks();
    let mut t = from;
    for bytes in words {
        let bits = product.next(u64::from_le_bytes(*bytes));
        if may_have_zero(bits) {
            push_all(bits, before, mask, t, found);
            if found.is_full() {
                return t + 8;
            }
        }
        (before, t) = (bits, t + 8);
    }
    if !rest.is_empty() {
        // Bytes behind the end become all ones, which are not zero.
        let bits = product.next(word(rest)) | u64::MAX << (8 * rest.len());
        push_all(bits, before, mask, t, found);
    }
    to
}

/// Whether there may be a zero byte: `false` only if there is none. Candidates are so rare that an exact test gains
/// nothing.
#[inline(always)]
fn may_have_zero(bits: u64) -> bool {
    bits.wrapping_sub(ONES) & !bits & HIGHS != 0
}

/// Appends the candidates among the eight positions from `t` on.
#[inline(never)]
fn push_all(bits: u64, before: u64, mask: u8, t: usize, found: &mut Positions) {
    let shifted = bits << 8 | before >> 56;
    let mut hits = zero_bytes(bits) & zero_bytes(shifted & (ONES * u64::from(mask)));
    while hits != 0 {
        found.push(t + hits.trailing_zeros() as usize / 8);
        hits &= hits - 1;
    }
}

/// The state before position `from`, and the linear bits there. A function of its own, so that the compiler does not
/// move the shifts back.
#[inline(never)]
fn warmed_up(data: &[u8], from: usize) -> (Product, u64) {
    let mut product = Product::NEW;
    product.next(word(&data[from - 2 * REACH..]));
    let before = product.next(word(&data[from - REACH..]));
    (product, before)
}
