//! Seeded numbers for simulations, benchmarks and tests: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom
//! number generators", 2014). The same seed gives the same numbers on every machine. The numbers can be guessed: no
//! secret may come from here.

/// The state of a generator; a seed is the first state.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// A generator for `seed` with the separate sequence number `stream`.
    pub(crate) fn of_stream(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed ^ stream.wrapping_mul(0xD1B5_4A32_D192_ED03));
        random.next();
        random
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix64(self.0)
    }

    /// A random number below `end`; 0 where `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        (u128::from(self.next()) * u128::from(end)).wrapping_shr(64) as u64
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A random number from 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Random bytes, which neither repeat nor compress.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes());
        let mut bytes: Vec<u8> = words.collect();
        bytes.truncate(len);
        bytes
    }
}

/// The finaliser of SplitMix64: spreads a number over all 64 bits; different numbers stay different.
pub fn mix64(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// The first numbers of the reference implementation, for the seed 1234567.
    #[test]
    fn numbers_are_those_of_the_paper() {
        let mut random = Random(1_234_567);
        let numbers = [(); 3].map(|()| random.next());
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(numbers, expected);
    }
}
