//! Sieve, scalar: cheap linear hash bits pick candidates, a strong hash of the last 32 bytes picks the cut among them.

use crate::{Chunker, Limits};

const LINEAR_KEY: u64 = 0x9e37_79b9_7f4a_7c15;
const NEVER_ZERO: u8 = 0x5b;
const WINDOW: usize = 32;

/// Cuts at the candidate with the smallest strong hash between the limits.
#[derive(Clone)]
pub struct Sieve {
    limits: Limits,
    mask: u8,
    seed: [u64; 4],
    table: Box<[u128; 256]>,
}

impl Sieve {
    /// Chunks of `mean` bytes on average.
    pub fn new(mean: usize) -> Self {
        Self::with_seed(
            mean,
            [
                0x243f_6a88_85a3_08d3,
                0x1319_8a2e_0370_7344,
                0xa409_3822_299f_31d0,
                0x082e_fa98_ec4e_6c89,
            ],
        )
    }

    /// The same with cut points that depend on `key`.
    pub fn keyed(mean: usize, key: &[u8; 32]) -> Self {
        let (words, _) = key.as_chunks::<8>();
        Self::with_seed(mean, std::array::from_fn(|i| u64::from_le_bytes(words[i])))
    }

    fn with_seed(mean: usize, seed: [u64; 4]) -> Self {
        let min = (mean / 4).max(64);
        let max = (mean * 2 - min).max(min + 1);
        let extra = (((max - min) as f64 / 32.0).log2().round() as i32 - 8).clamp(0, 8) as u32;
        let mut table = Box::new([0u128; 256]);
        for (byte, entry) in table.iter_mut().enumerate() {
            *entry = (0..8)
                .filter(|bit| byte >> bit & 1 == 1)
                .fold(0, |sum, bit| sum ^ (u128::from(LINEAR_KEY) << bit));
        }
        Self {
            limits: Limits { min, mean, max },
            mask: ((1u32 << extra) - 1) as u8,
            seed,
            table,
        }
    }

    fn strong(&self, window: &[u8]) -> u64 {
        let (words, _) = window.as_chunks::<8>();
        let word = |i: usize| u64::from_le_bytes(words[i]) ^ self.seed[i];
        let fold = |a: u64, b: u64| {
            let p = u128::from(a) * u128::from(b);
            (p as u64) ^ (p >> 64) as u64
        };
        let mixed = fold(word(0), word(1)).rotate_left(29) ^ fold(word(2), word(3));
        fold(mixed ^ self.seed[0], 0x9fb2_1c65_1e98_df25)
    }
}

impl Chunker for Sieve {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let Limits { min, max, .. } = self.limits;
        if data.len() <= min {
            return data.len();
        }
        let end = data.len().min(max);
        let mut linear = 0u128;
        for byte in &data[min - 10..min - 1] {
            linear = (linear >> 8) ^ self.table[*byte as usize];
        }
        let (mut before, mut best, mut cut) = (linear as u8 ^ NEVER_ZERO, u64::MAX, end);
        for at in min - 1..end - 1 {
            linear = (linear >> 8) ^ self.table[data[at] as usize];
            let bits = linear as u8 ^ NEVER_ZERO;
            if bits == 0 && before & self.mask == 0 {
                let strong = self.strong(&data[at + 1 - WINDOW..=at]);
                if strong < best {
                    (best, cut) = (strong, at + 1);
                }
            }
            before = bits;
        }
        cut
    }
}
