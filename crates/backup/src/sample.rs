//! Counts different things in bounded RAM: exactly up to half a million, beyond that by a sample.
//!
//! Things are sampled by their hashes: a thing that comes again is in the sample again or never was, and the same goes
//! for things with the same hash in another sample. Each time the sample has grown too large, half of it is dropped.
//! With a quarter of a million things or more left, a count is wrong by some 0.2 % (one standard deviation).

use std::collections::HashMap;

/// Largest number of different things that are counted exactly: with values of eight bytes they take 18 MiB.
pub const EXACT_MAX: usize = 1 << 19;

/// Things by their hashes, whose bits are as good as random, with a value for each.
pub struct Sample<V> {
    /// Values of things whose hash ends with `halvings` zeros.
    kept: HashMap<u64, V>,
    halvings: u32,
    exact_max: usize,
}

impl<V> Default for Sample<V> {
    fn default() -> Self {
        Self::with(EXACT_MAX)
    }
}

impl<V> Sample<V> {
    fn with(exact_max: usize) -> Self {
        Self {
            kept: HashMap::new(),
            halvings: 0,
            exact_max,
        }
    }

    /// Sum of `of` over all different things, estimated where the sample is not exact.
    pub fn sum(&self, of: impl Fn(&V) -> u64) -> u64 {
        self.kept.values().map(of).sum::<u64>() << self.halvings
    }

    /// Number of different things, estimated where the sample is not exact.
    pub fn count(&self) -> u64 {
        self.sum(|_| 1)
    }

    /// Returns the value of a thing, unless it never came or is left out of the sample.
    pub fn get(&self, hash: u64) -> Option<&V> {
        self.kept.get(&hash)
    }

    /// Whether sums are exact.
    pub fn is_exact(&self) -> bool {
        self.halvings == 0
    }
}

impl<V: Default> Sample<V> {
    /// Adds a thing, and calls `note` with its value. Returns whether it may be the first time: false is certain.
    pub fn meet(&mut self, hash: u64, note: impl FnOnce(&mut V)) -> bool {
        if hash.trailing_zeros() < self.halvings {
            return true;
        }
        let before = self.kept.len();
        note(self.kept.entry(hash).or_default());
        let is_new = self.kept.len() > before;
        while self.kept.len() > self.exact_max {
            self.halvings += 1;
            let halvings = self.halvings;
            self.kept
                .retain(|hash, _| hash.trailing_zeros() >= halvings);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use onefold_chunk::Fingerprint;

    use super::*;

    fn met_twice(things: u64, exact_max: usize) -> Sample<u64> {
        let mut sample = Sample::with(exact_max);
        for _ in 0..2 {
            for number in 0..things {
                let hash = Fingerprint::of(&number.to_le_bytes()).prefix();
                sample.meet(hash, |bytes| *bytes = number % 100);
            }
        }
        sample
    }

    #[test]
    fn few_things_are_counted_exactly() {
        let mut sample = met_twice(1_000, 1_000);
        assert!(sample.is_exact());
        assert_eq!(
            (sample.count(), sample.sum(|bytes| *bytes)),
            (1_000, 49_500)
        );
        assert!(!sample.meet(Fingerprint::of(&7u64.to_le_bytes()).prefix(), |_| {}));
    }

    #[test]
    fn many_things_are_counted_nearly_in_bounded_room() {
        let sample = met_twice(100_000, 4_096);
        assert!(!sample.is_exact() && sample.kept.len() <= 4_096);
        // Five standard deviations of a sample of 3,000 or more.
        let (count, bytes) = (sample.count(), sample.sum(|bytes| *bytes));
        assert!(count.abs_diff(100_000) < 9_000, "{count}");
        assert!(bytes.abs_diff(4_950_000) < 550_000, "{bytes}");
    }
}
