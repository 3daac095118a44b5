//! Chunks that a dry run would have stored by now, in bounded RAM: exactly up to some half a million chunks, beyond
//! that in a filter.
//!
//! Invariant: a chunk that was added is found. Beyond [`EXACT_MAX`] a chunk that was not may be found too, so the dry
//! run counts a little less than a real one would store: one chunk in a thousand of eight million, one in 30 of 16
//! million.

use std::collections::HashSet;

use onefold_chunk::Fingerprint;
use onefold_index::Filter;
use onefold_index::filters::BlockedBloom;

use crate::Result;

/// New chunks that a dry run counts exactly: they take 10 MiB.
pub const EXACT_MAX: usize = 1 << 19;
/// The filter's bytes.
const FILTER_BYTES: usize = 16 << 20;

/// Chunks that a dry run would have stored, in bounded RAM.
pub struct Imagined {
    exact: HashSet<u64>,
    filter: Option<BlockedBloom>,
    exact_max: usize,
    filter_bytes: usize,
}

impl Default for Imagined {
    fn default() -> Self {
        Self::with(EXACT_MAX, FILTER_BYTES)
    }
}

impl Imagined {
    fn with(exact_max: usize, filter_bytes: usize) -> Self {
        Self {
            exact: HashSet::new(),
            filter: None,
            exact_max,
            filter_bytes,
        }
    }

    /// Adds a chunk.
    pub fn insert(&mut self, fingerprint: &Fingerprint) -> Result<()> {
        if let Some(filter) = &mut self.filter {
            return Ok(filter.insert(&[spread(fingerprint.prefix())])?);
        }
        self.exact.insert(fingerprint.prefix());
        if self.exact.len() > self.exact_max {
            let keys = self.filter_bytes as u64 / 2;
            let mut filter = BlockedBloom::with_bytes(self.filter_bytes, keys)?;
            for prefix in std::mem::take(&mut self.exact) {
                filter.insert(&[spread(prefix)])?;
            }
            self.filter = Some(filter);
        }
        Ok(())
    }

    /// Whether a chunk was added.
    pub fn contains(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        let Some(filter) = &mut self.filter else {
            return Ok(self.exact.contains(&fingerprint.prefix()));
        };
        let mut found = [false];
        filter.may_contain(&[spread(fingerprint.prefix())], &mut found)?;
        Ok(found[0])
    }
}

/// A key for the filter from the eight bytes that are kept: each word of it depends on all of them.
fn spread(prefix: u64) -> Fingerprint {
    let mut key = [0; 32];
    let mut word = prefix;
    for eight in key.chunks_exact_mut(8) {
        eight.copy_from_slice(&word.to_be_bytes());
        word = (word ^ (word >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    Fingerprint(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(number: u64) -> Fingerprint {
        Fingerprint(*blake3::hash(&number.to_le_bytes()).as_bytes())
    }

    #[test]
    fn beyond_what_is_exact_everything_added_is_found_and_little_else() {
        let mut imagined = Imagined::with(1_000, 20_000);
        for number in 0..10_000 {
            let is_exact = number <= 1_000;
            assert!(!(is_exact && imagined.contains(&chunk(number)).unwrap()));
            imagined.insert(&chunk(number)).unwrap();
        }
        assert!((0..10_000).all(|number| imagined.contains(&chunk(number)).unwrap()));
        let wrong = (10_000..20_000).filter(|number| imagined.contains(&chunk(*number)).unwrap());
        assert!(wrong.count() < 100);
        assert!(imagined.exact.capacity() == 0 && imagined.filter.unwrap().ram_bytes() <= 20_480);
    }
}
