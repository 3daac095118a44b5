//! NH: the sum in 64 bits of the products of neighbouring 32-bit words, after a key word was added to each.
//!
//! Four passes, each under the key four words further on (a Toeplitz matrix), bring the chance that two blocks have the
//! same sums from 2⁻³² to 2⁻¹²⁸. The pairs are neighbours: the last one in which two blocks differ meets key words in
//! each pass that no pass before had for a differing pair.

use super::{BLOCK_BYTES, Sums};

/// Number of sums of a block: one for each pass.
pub const PASSES: usize = 4;
/// Words by which the key moves on in each pass.
const STEP: usize = 4;
/// Words of a block.
const WORDS: usize = BLOCK_BYTES / 4;
/// Words of the key for all passes.
pub const KEY_WORDS: usize = WORDS + STEP * (PASSES - 1);

/// The key of NH.
pub type Key = [u32; KEY_WORDS];
type Block = [u8; BLOCK_BYTES];

/// Computes the sums of each block by the best instructions that this CPU has, and passes them to `put`.
pub fn sums(key: &Key, blocks: &[Block], put: &mut impl FnMut(Sums)) {
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: this CPU has AVX2.
        return blocks
            .iter()
            .for_each(|block| put(unsafe { avx2(key, block) }));
    }
    blocks.iter().for_each(|block| put(plain(key, block)));
}

/// The sums of a block on any CPU: the vector version is tested against this.
pub fn plain(key: &Key, block: &Block) -> Sums {
    let mut sums = [0; PASSES];
    let word = |four: &[u8; 4]| u32::from_le_bytes(*four);
    for (at, pair) in block.as_chunks::<8>().0.iter().enumerate() {
        let [a, b] = pair.as_chunks::<4>().0 else {
            unreachable!("eight bytes are twice four");
        };
        for (pass, sum) in sums.iter_mut().enumerate() {
            let key = &key[2 * at + STEP * pass..];
            let factors = [word(a).wrapping_add(key[0]), word(b).wrapping_add(key[1])];
            let [a, b] = factors.map(u64::from);
            *sum = a.wrapping_mul(b).wrapping_add(*sum);
        }
    }
    sums
}

/// The sums of a block by AVX2, four pairs at a time.
#[cfg(all(feature = "std", target_arch = "x86_64"))]
#[target_feature(enable = "avx2")]
pub fn avx2(key: &Key, block: &Block) -> Sums {
    use core::arch::x86_64::*;

    const AT_ONCE: usize = 8;
    let mut sums = [_mm256_setzero_si256(); PASSES];
    for (at, words) in block.as_chunks::<{ 4 * AT_ONCE }>().0.iter().enumerate() {
        // SAFETY: the 32 bytes are there.
        let words = unsafe { _mm256_loadu_si256(words.as_ptr().cast()) };
        for (pass, sum) in sums.iter_mut().enumerate() {
            let key = &key[AT_ONCE * at + STEP * pass..][..AT_ONCE];
            // SAFETY: eight words are there.
            let key = unsafe { _mm256_loadu_si256(key.as_ptr().cast()) };
            let firsts = _mm256_add_epi32(words, key);
            let seconds = _mm256_srli_epi64::<32>(firsts);
            *sum = _mm256_add_epi64(*sum, _mm256_mul_epu32(firsts, seconds));
        }
    }
    sums.map(|sum| {
        // SAFETY: both types are 32 plain bytes.
        let fours: [u64; 4] = unsafe { core::mem::transmute(sum) };
        fours.into_iter().fold(0, u64::wrapping_add)
    })
}
