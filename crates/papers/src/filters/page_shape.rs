//! The bits of a key when all lie in one page, and the number of keys that a page can take.

use onefold_chunk::Fingerprint;

/// Bytes of a page, which is a whole Bloom filter of its own.
pub const PAGE_BYTES: usize = 4096;
/// Bits of a page.
pub const PAGE_BITS: u32 = PAGE_BYTES as u32 * 8;

/// Bits a key and keys a page for a false-positive rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PageShape {
    /// Number of bits that a key sets, k.
    pub hashes: u32,
    /// Number of keys that a page takes before its rate exceeds the planned one, N.
    pub keys: u32,
}

/// The rule by which a layer of a forest, or a filter of a chain, is full and the next one begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// Full when some page holds as many keys as its rate allows: no page's rate is ever higher (§3.4.4).
    FullestPage,
    /// Full when the pages hold this number in the mean, so that half of them hold more. Table 3.5's layer 0 left RAM
    /// so, with 2.337 M keys in 1024 pages of 2281.
    MeanPage,
}

impl PageShape {
    /// The shape with the most keys at the rate `f`: k = log2(1/f), N = M·(ln 2)²/ln(1/f).
    pub fn for_rate(f: f64) -> PageShape {
        PageShape::with_hashes(f, (1.0 / f).log2().round().max(1.0) as u32)
    }

    /// The shape with k' hashes, fewer than the best: fewer keys a page, but fewer updates to buffer. From M' =
    /// −N·k'/ln(1 − f^(1/k')) (dissertation §3.4.3), for M' = a page.
    pub fn with_hashes(f: f64, hashes: u32) -> PageShape {
        let keys = -(1.0 - f.powf(1.0 / f64::from(hashes))).ln() * f64::from(PAGE_BITS)
            / f64::from(hashes);
        PageShape {
            hashes,
            keys: (keys as u32).max(1),
        }
    }

    /// The expected false-positive rate of a page with `keys` keys.
    pub fn rate(&self, keys: f64) -> f64 {
        let k = f64::from(self.hashes);
        (1.0 - (-k * keys / f64::from(PAGE_BITS)).exp()).powf(k)
    }

    /// The bits of `key` within its page, from other words than those that choose the page.
    #[inline]
    pub fn bits(&self, key: &Fingerprint) -> impl Iterator<Item = u16> + use<> {
        let (start, step) = (word(key, 2), word(key, 3) | 1);
        (0..u64::from(self.hashes))
            .map(move |i| (start.wrapping_add(i.wrapping_mul(step)) >> 49) as u16)
    }
}

/// The page of `key` among `pages` (h0).
#[inline]
pub fn page_of(key: &Fingerprint, pages: u32) -> u32 {
    ((u128::from(word(key, 0)) * u128::from(pages)) >> 64) as u32
}

/// Digit `layer` (base `branching`) of the key's path through a forest (h1).
pub fn digit_of(key: &Fingerprint, layer: u32, branching: u32) -> u32 {
    let (mut way, base) = (word(key, 1), u64::from(branching));
    for _ in 0..layer {
        way /= base;
    }
    (way % base) as u32
}

/// Eight of the fingerprint's 32 bytes. Fingerprints are uniform, so each eight bytes serve as a hash of their own.
#[inline]
pub fn word(key: &Fingerprint, number: usize) -> u64 {
    u64::from_le_bytes(
        key.0[number * 8..number * 8 + 8]
            .try_into()
            .expect("eight bytes"),
    )
}

/// Whether all `bits` are set in `page`.
pub fn all_set(page: &[u8], mut bits: impl Iterator<Item = u16>) -> bool {
    bits.all(|bit| page[usize::from(bit) / 8] >> (bit % 8) & 1 == 1)
}

/// Sets `bits` in `page`.
pub fn set(page: &mut [u8], bits: impl Iterator<Item = u16>) {
    bits.for_each(|bit| page[usize::from(bit) / 8] |= 1 << (bit % 8));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_those_of_the_formulas() {
        let best = PageShape::for_rate(0.001);
        assert_eq!(best.hashes, 10);
        assert!(
            (best.keys as f64 - 32768.0 * 0.0696).abs() < 30.0,
            "{best:?}"
        );
        let fewer = PageShape::with_hashes(0.001, 2);
        assert!(
            fewer.keys < best.keys / 4 && fewer.rate(f64::from(fewer.keys)) < 0.00101,
            "{fewer:?}"
        );
    }
}
