//! The parallel filter (§2.4.2): v Bloom filters. A candidate that is in all of them is counted; any other is put into
//! one of them at random.

/// A source of random choices that is the same at every run: splitmix64.
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next word.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.word()) * n as u128) >> 64) as usize
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        p >= 1.0 || (self.word() as f64) < p * 2f64.powi(64)
    }
}

/// Spreads a word over all 64 bits.
pub fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Mean number of occurrences of a candidate before it is in all of `filters`: v·Σ1/i (eq. 2.4).
///
/// ```
/// // 3 · (1 + 1/2 + 1/3)
/// assert_eq!(onefold_chunk::fbc::bias(3), 5.5);
/// ```
pub fn bias(filters: usize) -> f64 {
    filters as f64 * (1..=filters).map(|i| 1.0 / i as f64).sum::<f64>()
}

/// Bits that one element sets in a filter. The filters are overfull by design, and few hashes suit that best.
const HASHES: u32 = 3;

/// v Bloom filters side by side.
#[derive(Clone, Debug)]
pub struct ParallelFilter {
    filters: Vec<Vec<u64>>,
    random: SplitMix,
}

impl ParallelFilter {
    /// `count` empty filters of `bytes` bytes each; the choice among them follows from `seed`.
    pub fn new(count: usize, bytes: usize, seed: u64) -> Self {
        Self {
            filters: vec![vec![0; (bytes / 8).max(1)]; count],
            random: SplitMix(seed),
        }
    }

    /// Whether the candidate was in all filters; if not, one of them holds it now.
    pub fn passes(&mut self, signature: u64) -> bool {
        let places = FilterPlaces::of(signature, self.filters[0].len());
        if self.filters.iter().all(|filter| places.are_set(filter)) {
            return true;
        }
        let chosen = self.random.below(self.filters.len());
        places.set(&mut self.filters[chosen]);
        false
    }

    /// RAM of the filters in bytes.
    pub fn bytes(&self) -> usize {
        self.filters.iter().map(|filter| filter.len() * 8).sum()
    }
}

struct FilterPlaces([(usize, u64); HASHES as usize]);

impl FilterPlaces {
    /// The places of a signature by double hashing over `words` words.
    fn of(signature: u64, words: usize) -> Self {
        let (first, step) = (mix(signature), mix(signature ^ !0) | 1);
        Self(std::array::from_fn(|i| {
            let hash = first.wrapping_add(step.wrapping_mul(i as u64));
            let bit = ((u128::from(hash) * (words as u128 * 64)) >> 64) as usize;
            (bit / 64, 1 << (bit % 64))
        }))
    }

    fn are_set(&self, filter: &[u64]) -> bool {
        self.0.iter().all(|(word, bit)| filter[*word] & bit != 0)
    }

    fn set(&self, filter: &mut [u64]) {
        self.0.iter().for_each(|(word, bit)| filter[*word] |= bit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bias_is_what_the_dissertation_says() {
        assert!((bias(3) - 5.5).abs() < 1e-9);
        assert!((bias(5) - 11.4).abs() < 0.02);
    }

    #[test]
    fn a_candidate_passes_after_as_many_occurrences_as_the_bias_says() {
        let mut filter = ParallelFilter::new(3, 800_000, 7);
        let tries = 20_000;
        let mut occurrences = 0u32;
        for candidate in 0..tries {
            while !filter.passes(mix(candidate)) {
                occurrences += 1;
            }
        }
        let mean = f64::from(occurrences) / tries as f64;
        assert!((mean - bias(3)).abs() < 0.1, "{mean}");
    }
}
