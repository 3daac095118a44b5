//! Rabin fingerprints over a sliding window, as in LBFS (Muthitacharoen et al., 2001, §3.1): the remainder of 48 bytes,
//! read as a polynomial over GF(2), modulo an irreducible polynomial of degree 53.

use crate::odds::{mean_of, odds_for, usual_limits};
use crate::real;
use crate::sliding::{Sliding, first_match};
use crate::{ChunkLimits, Chunker};

pub use crate::sliding::WINDOW;

/// Irreducible, of degree 53: a property that a test proves.
pub const POLYNOMIAL: u64 = 0x003d_a335_8b4d_c173;
const DEGREE: u32 = 53;
/// XORed to the low 32 bits before they are compared: a run of zeros has fingerprint 0 and must not match.
const PATTERN: u32 = 0x9e37_79b9;

/// Content-defined chunks by Rabin fingerprint.
///
/// ```
/// use onefold_chunk::{Chunks, rabin::Rabin};
///
/// let old: Vec<u8> = (0..200_000u32).flat_map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes()).collect();
/// let new = [b"in front", &old[..]].concat();
/// let chunks = |data| Chunks::new(Rabin::new(8192), data).collect::<std::collections::HashSet<&[u8]>>();
/// let (before, after) = (chunks(&old[..]), chunks(&new[..]));
/// // All but the first few chunks are found again.
/// assert!(after.difference(&before).count() < 5);
/// ```
#[derive(Clone, Debug)]
pub struct Rabin {
    limits: ChunkLimits,
    threshold: u32,
}

impl Rabin {
    /// Chunks of `mean` bytes (at least 256) between a quarter and four times that.
    pub fn new(mean: usize) -> Self {
        let limits = usual_limits(mean);
        let threshold = (odds_for(limits) * real::power_of_two(32)) as u32;
        Self { limits, threshold }
    }

    /// LBFS's form: a cut where `bits` bits of the fingerprint have a certain value, between `min` and `max` bytes (13
    /// bits, 2 KiB and 64 KiB there). The mean follows by PRUNE's eq. 2.
    ///
    /// # Panics
    /// Unless `64 ≤ min < max` and `1 ≤ bits ≤ 31`.
    pub fn with_pattern(min: usize, max: usize, bits: u32) -> Self {
        assert!(64 <= min && min < max && (1..=31).contains(&bits));
        let mean = mean_of(min, max, real::exp2(-f64::from(bits))) as usize;
        let limits = ChunkLimits { min, mean, max };
        let threshold = 1 << (32 - bits);
        Self { limits, threshold }
    }

    /// Whether a chunk may end where the window before has this fingerprint.
    #[inline(always)]
    pub fn matches(&self, sum: Sum) -> bool {
        sum.mark() < self.threshold
    }
}

impl Chunker for Rabin {
    fn limits(&self) -> ChunkLimits {
        self.limits
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        let ChunkLimits { min, max, .. } = self.limits;
        if data.len() <= min {
            return data.len();
        }
        let end = data.len().min(max);
        first_match(data, min, end, |sum| self.matches(sum)).map_or(end, |at| at + 1)
    }
}

/// A window's fingerprint as it slides.
///
/// ```
/// use onefold_chunk::rabin::Sum;
///
/// let text = b"forty-eight bytes are a window, and here are some more of them.";
/// let mut sum = Sum::of(&text[..48]);
/// sum.slide(text[0], text[48]);
/// assert_eq!(sum.0, Sum::of(&text[1..49]).0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Sum(pub u64);

impl Sum {
    /// The fingerprint of `window`.
    pub fn of(window: &[u8]) -> Self {
        let mut sum = Self(0);
        window.iter().for_each(|byte| sum.append(*byte));
        sum
    }

    /// Takes `oldest` out in front and appends `newest`.
    #[inline(always)]
    pub fn slide(&mut self, oldest: u8, newest: u8) {
        self.0 ^= LEAVING[oldest as usize];
        self.append(newest);
    }

    /// 32 bits, uniform on random data, that are compared with a threshold.
    #[inline(always)]
    pub fn mark(self) -> u32 {
        self.0 as u32 ^ PATTERN
    }

    #[inline(always)]
    fn append(&mut self, byte: u8) {
        let top = (self.0 >> (DEGREE - 8)) as usize & 0xff;
        self.0 = ((self.0 << 8) | u64::from(byte)) ^ REDUCED[top];
    }
}

impl Sliding for Sum {
    const EMPTY: Self = Self(0);

    #[inline(always)]
    fn append(&mut self, newest: u8) {
        self.append(newest);
    }

    #[inline(always)]
    fn slide(&mut self, oldest: u8, newest: u8) {
        self.slide(oldest, newest);
    }
}

/// `top · x⁵³` plus its remainder: XORing the entry clears the bits above the degree.
static REDUCED: [u64; 256] = {
    let mut table = [0u64; 256];
    let mut top = 0;
    while top < 256 {
        let shifted = (top as u128) << DEGREE;
        table[top] = (shifted ^ remainder(shifted) as u128) as u64;
        top += 1;
    }
    table
};

/// The contribution of a byte to the fingerprint when it is the oldest of the window.
static LEAVING: [u64; 256] = {
    let mut table = [0u64; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u64;
        let mut after = 1;
        while after < WINDOW {
            value = remainder((value as u128) << 8);
            after += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

/// `value` modulo the polynomial, by long division.
///
/// ```
/// use onefold_chunk::rabin::remainder;
///
/// // What has a lower degree than the polynomial, 53, is its own remainder.
/// assert_eq!(remainder(1 << 52), 1 << 52);
/// assert!(remainder(1 << 53) < 1 << 53);
/// ```
pub const fn remainder(mut value: u128) -> u64 {
    let mut bit = 127;
    while bit >= DEGREE {
        if value >> bit & 1 == 1 {
            value ^= (POLYNOMIAL as u128) << (bit - DEGREE);
        }
        bit -= 1;
    }
    value as u64
}
