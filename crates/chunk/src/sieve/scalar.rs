//! The linear bits one position at a time: a shift and a table lookup a byte. The versions for vectors must find exactly these.

use std::ops::Range;

use super::CANDIDATES_MAX;

/// The multiplier of the carry-less convolution: 2⁶⁴ divided by the golden ratio.
pub const KEY: u64 = 0x9e37_79b9_7f4a_7c15;
/// XORed to the linear bits, so that zeros, whose linear bits are zero, are no candidates.
pub const NEVER_ZERO: u8 = 0x5b;
/// Bytes that the linear bits of a position depend on.
pub const REACH: usize = 9;

/// Product of every byte with the key.
const PRODUCTS: [u128; 256] = {
    let mut products = [0u128; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                products[byte] ^= (KEY as u128) << bit;
            }
            bit += 1;
        }
        byte += 1;
    }
    products
};

/// The linear bits at position `t`, XOR [`NEVER_ZERO`].
pub fn bits_at(data: &[u8], t: usize) -> u8 {
    let mut sum = 0u128;
    for byte in &data[t + 1 - REACH..=t] {
        sum = (sum >> 8) ^ PRODUCTS[*byte as usize];
    }
    sum as u8 ^ NEVER_ZERO
}

/// Appends `t + 1` for every candidate position `t` until [`CANDIDATES_MAX`] are listed; at least [`REACH`] bytes lie before the first.
pub fn find(data: &[u8], positions: Range<usize>, mask: u8, found: &mut Vec<u32>) {
    let start = positions.start;
    let mut sum = 0u128;
    for byte in &data[start - REACH..start] {
        sum = (sum >> 8) ^ PRODUCTS[*byte as usize];
    }
    let mut before = sum as u8 ^ NEVER_ZERO;
    for (t, byte) in data[positions.clone()].iter().enumerate() {
        sum = (sum >> 8) ^ PRODUCTS[*byte as usize];
        let bits = sum as u8 ^ NEVER_ZERO;
        if bits == 0 && before & mask == 0 {
            found.push((start + t + 1) as u32);
            if found.len() >= CANDIDATES_MAX {
                return;
            }
        }
        before = bits;
    }
}
