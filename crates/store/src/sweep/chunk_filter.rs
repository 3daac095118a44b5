//! Filters of chunks that go, by the prefixes of their fingerprints.

use onefold_chunk::Fingerprint;
use onefold_index::Filter;
use onefold_index::filters::BlockedBloom;

use crate::Result;

/// Bytes of the filter for each chunk that goes: it errs about once in two thousand. With a fuller filter nearly all
/// references of a large repository would be looked for, and the tables of containers that go would be read again for
/// each lot of them.
const FILTER_BYTES_A_CHUNK: usize = 2;
const FILTER_BYTES_MAX: usize = 16 << 20;
/// Chunks of what goes that are in the filter at once.
pub(super) const CHUNKS_AT_ONCE: u64 = (FILTER_BYTES_MAX / FILTER_BYTES_A_CHUNK) as u64;

/// Makes a filter for this number of chunks.
pub(super) fn filter_for(chunks: u64) -> Result<BlockedBloom> {
    let bytes = (chunks as usize * FILTER_BYTES_A_CHUNK).clamp(1 << 10, FILTER_BYTES_MAX);
    Ok(BlockedBloom::with_bytes(bytes, chunks.max(1))?)
}

/// Which of `prefixes` are in the filter, perhaps.
pub(super) fn met(filter: &mut BlockedBloom, prefixes: &[u64]) -> Result<Vec<bool>> {
    let keys: Vec<Fingerprint> = prefixes.iter().map(|prefix| key(*prefix)).collect();
    let mut is_there = vec![false; keys.len()];
    filter.may_contain(&keys, &mut is_there)?;
    Ok(is_there)
}

/// A prefix as the filter takes keys: little-endian words, of which it goes by the highest bits, where a product has
/// all bits of its factors.
pub(super) fn key(prefix: u64) -> Fingerprint {
    let mut key = [0; 32];
    // 2⁶⁴ ÷ φ, and an odd number of as many ones as zeros.
    let words = [1, 0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93_u64];
    for (bytes, factor) in key.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&prefix.wrapping_mul(factor).to_le_bytes());
    }
    Fingerprint(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_does_not_go_the_filter_tells_nearly_all_apart() {
        for chunks in [100, 4_000, 62_000, 1_000_000] {
            let mut filter = filter_for(chunks).unwrap();
            let key = |number: u64| key(Fingerprint::of(&number.to_le_bytes()).prefix());
            let keys: Vec<_> = (0..chunks).map(key).collect();
            filter.insert(&keys).unwrap();
            let absent: Vec<_> = (chunks..chunks + 10_000).map(key).collect();
            let mut met = vec![false; absent.len()];
            filter.may_contain(&absent, &mut met).unwrap();
            let met = met.iter().filter(|met| **met).count();
            assert!(met < 50, "{met} of 10,000 beside {chunks} chunks");
        }
    }
}
