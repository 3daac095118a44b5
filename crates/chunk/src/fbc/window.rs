//! The signature of a fixed-size candidate: a Rabin fingerprint over a window of any length, and the pre-filter of
//! candidates.

use crate::rabin::remainder;

const DEGREE: u32 = 53;

/// Rabin fingerprints of every window of `bytes` bytes, at two table look-ups a byte.
#[derive(Clone)]
pub struct RabinWindow {
    /// Length of a candidate.
    pub bytes: usize,
    /// `top · x⁵³` plus its remainder, for each `top`.
    reduced: Box<[u64; 256]>,
    /// The contribution of each byte when it is the oldest of the window.
    leaving: Box<[u64; 256]>,
}

impl RabinWindow {
    /// Tables for candidates of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        let mut reduced = Box::new([0; 256]);
        let mut leaving = Box::new([0; 256]);
        for top in 0..256usize {
            let shifted = (top as u128) << DEGREE;
            reduced[top] = (shifted ^ u128::from(remainder(shifted))) as u64;
        }
        let mut window = Self {
            bytes,
            reduced,
            leaving: leaving.clone(),
        };
        // x^(8·(bytes−1)) once; each byte's share is its product with that.
        let mut power = 1u64;
        for _ in 1..bytes {
            power = window.append(power, 0);
        }
        for byte in 0..256u64 {
            leaving[byte as usize] = times(power, byte);
        }
        window.leaving = leaving;
        window
    }

    /// The fingerprint with one more byte.
    #[inline(always)]
    pub fn append(&self, sum: u64, byte: u8) -> u64 {
        let top = (sum >> (DEGREE - 8)) as usize & 0xff;
        ((sum << 8) | u64::from(byte)) ^ self.reduced[top]
    }

    /// The fingerprint of the window that ends one byte later.
    #[inline(always)]
    pub fn slide(&self, sum: u64, oldest: u8, newest: u8) -> u64 {
        self.append(sum ^ self.leaving[oldest as usize], newest)
    }

    /// The fingerprint of `data`, however long.
    pub fn of(&self, data: &[u8]) -> u64 {
        data.iter().fold(0, |sum, byte| self.append(sum, *byte))
    }
}

/// The product over GF(2) of a remainder and a byte, modulo the polynomial.
fn times(power: u64, byte: u64) -> u64 {
    let product = (0..8)
        .filter(|bit| byte >> bit & 1 == 1)
        .fold(0u128, |sum, bit| sum ^ (u128::from(power) << bit));
    remainder(product)
}

/// Whether a candidate passes the pre-filter: its fingerprint modulo `modulo`, a power of two, is 1 (§2.4.2).
#[inline(always)]
pub fn passes(signature: u64, modulo: u32) -> bool {
    signature & u64::from(modulo - 1) == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_slid_here_has_the_fingerprint_of_its_bytes() {
        let data: Vec<u8> = (0..4000u32).map(|i| ((i * i) >> 3) as u8).collect();
        for bytes in [1, 48, 333, 1024] {
            let window = RabinWindow::new(bytes);
            let mut sum = window.of(&data[..bytes]);
            for end in bytes..data.len() {
                sum = window.slide(sum, data[end - bytes], data[end]);
                assert_eq!(
                    sum,
                    window.of(&data[end + 1 - bytes..=end]),
                    "{bytes} {end}"
                );
            }
        }
    }

    #[test]
    fn fingerprints_of_48_bytes_are_those_of_the_rabin_chunker() {
        let data: Vec<u8> = (0..48u8).map(|i| i.wrapping_mul(77)).collect();
        assert_eq!(
            RabinWindow::new(48).of(&data),
            crate::rabin::Sum::of(&data).0
        );
    }
}
