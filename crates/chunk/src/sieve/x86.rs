//! The linear bits with carry-less multiplication: 16, 32 or 64 positions at a time.
//!
//! The product of a 64-bit word with the key is 128 bits long: its low half belongs to the positions of that word, its high half to those of
//! the next. So the bits of a word are the low half of its own product XOR the high half of the product before.

use std::arch::x86_64::*;
use std::ops::Range;

use super::scalar::{self, KEY, NEVER_ZERO};
use super::{CANDIDATES_MAX, Isa};

/// Those that this CPU has, slowest first.
pub fn available() -> Vec<Isa> {
    let mut found = Vec::new();
    if is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.1") {
        found.push(Isa::Pclmul);
    }
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
    {
        found.push(Isa::Avx2);
    }
    let wide = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq");
    if wide && found.contains(&Isa::Avx2) {
        found.push(Isa::Avx512);
    }
    found
}

/// As [`scalar::find`]. `isa` must be one that [`available`] gave: `Sieve` takes it from nowhere else.
pub fn find(isa: Isa, data: &[u8], positions: Range<usize>, mask: u8, found: &mut Vec<u32>) {
    assert!(positions.start >= 2 * scalar::REACH && positions.end <= data.len());
    let done = match isa {
        // SAFETY: `Sieve` holds only an `Isa` that `available` found on this CPU, and the bounds were just checked.
        Isa::Avx512 => unsafe { find_512(data, positions.clone(), mask, found) },
        // SAFETY: as above.
        Isa::Avx2 => unsafe { find_256(data, positions.clone(), mask, found) },
        // SAFETY: as above.
        Isa::Pclmul => unsafe { find_128(data, positions.clone(), mask, found) },
        Isa::Scalar => positions.start,
    };
    if done < positions.end {
        scalar::find(data, done..positions.end, mask, found);
    }
}

/// Appends the positions of the bits that are set, plus one.
#[inline(always)]
fn push(mut bits: u64, base: usize, found: &mut Vec<u32>) {
    while bits != 0 {
        found.push((base + bits.trailing_zeros() as usize + 1) as u32);
        bits &= bits - 1;
    }
}

/// Whether the position before `t` has the masked bits zero, as the lowest bit.
fn carry_at(data: &[u8], t: usize, mask: u8) -> u64 {
    u64::from(scalar::bits_at(data, t - 1) & mask == 0)
}

/// Bytes ahead that are asked for: the hardware's own prefetch stops at pages.
const PREFETCH_BYTES: usize = 4096;

/// Gives the first position that was not searched, or the end once [`CANDIDATES_MAX`] are listed.
///
/// # Safety
/// The CPU has these features; at least 16 bytes lie before `positions`, which lie within `data`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,vpclmulqdq,pclmulqdq")]
unsafe fn find_512(data: &[u8], positions: Range<usize>, mask: u8, found: &mut Vec<u32>) -> usize {
    let mut t = positions.start;
    let key = _mm512_set1_epi64(KEY as i64);
    let never_zero = _mm512_set1_epi8(NEVER_ZERO as i8);
    let masks = _mm512_set1_epi8(mask as i8);
    let mut carry = carry_at(data, t, mask);
    // SAFETY: `t ≥ 16`, so the eight bytes before `t` are within `data`.
    let word = unsafe { data.as_ptr().add(t - 8).cast::<i64>().read_unaligned() };
    let product = _mm_clmulepi64_si128(_mm_set_epi64x(0, word), _mm512_castsi512_si128(key), 0);
    let mut previous = _mm512_inserti64x2(_mm512_setzero_si512(), product, 3);
    while t + 128 <= positions.end {
        let mut zero = [0u64; 2];
        let mut masked = [0u64; 2];
        for half in 0..2 {
            // SAFETY: `t + 128 ≤ positions.end ≤ data.len()`; a prefetch may point anywhere.
            let words = unsafe {
                let at = data.as_ptr().add(t + 64 * half);
                _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(PREFETCH_BYTES).cast());
                _mm512_loadu_si512(at.cast())
            };
            let even = _mm512_clmulepi64_epi128(words, key, 0x00);
            let odd = _mm512_clmulepi64_epi128(words, key, 0x01);
            // The products of the odd words, each moved to where the next even word is.
            let before = _mm512_alignr_epi64(odd, previous, 6);
            previous = odd;
            let low = _mm512_unpacklo_epi64(even, odd);
            let high = _mm512_unpackhi_epi64(before, even);
            let bits = _mm512_ternarylogic_epi64(low, high, never_zero, 0x96);
            zero[half] = _mm512_testn_epi8_mask(bits, bits);
            masked[half] = _mm512_testn_epi8_mask(bits, masks);
        }
        let first = zero[0] & (masked[0] << 1 | carry);
        let second = zero[1] & (masked[1] << 1 | masked[0] >> 63);
        carry = masked[1] >> 63;
        if first | second != 0 {
            push(first, t, found);
            push(second, t + 64, found);
            if found.len() >= CANDIDATES_MAX {
                return positions.end;
            }
        }
        t += 128;
    }
    t
}

/// As [`find_512`].
///
/// # Safety
/// As there.
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq")]
unsafe fn find_256(data: &[u8], positions: Range<usize>, mask: u8, found: &mut Vec<u32>) -> usize {
    let mut t = positions.start;
    let key = _mm256_set1_epi64x(KEY as i64);
    let never_zero = _mm256_set1_epi8(NEVER_ZERO as i8);
    let masks = _mm256_set1_epi8(mask as i8);
    let none = _mm256_setzero_si256();
    let mut carry = carry_at(data, t, mask);
    while t + 64 <= positions.end {
        let mut zero = [0u64; 2];
        let mut masked = [0u64; 2];
        for half in 0..2 {
            // SAFETY: `16 ≤ t` and `t + 64 ≤ positions.end ≤ data.len()`; a prefetch may point anywhere.
            let (words, words_before) = unsafe {
                let at = data.as_ptr().add(t + 32 * half);
                _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(PREFETCH_BYTES).cast());
                (
                    _mm256_loadu_si256(at.cast()),
                    _mm256_loadu_si256(at.sub(8).cast()),
                )
            };
            let even = _mm256_clmulepi64_epi128(words, key, 0x00);
            let odd = _mm256_clmulepi64_epi128(words, key, 0x01);
            let before = _mm256_clmulepi64_epi128(words_before, key, 0x00);
            let low = _mm256_unpacklo_epi64(even, odd);
            let high = _mm256_unpackhi_epi64(before, even);
            let bits = _mm256_xor_si256(_mm256_xor_si256(low, high), never_zero);
            zero[half] = u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bits, none)) as u32);
            masked[half] = u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(
                _mm256_and_si256(bits, masks),
                none,
            )) as u32);
        }
        let masked = masked[0] | masked[1] << 32;
        let candidates = (zero[0] | zero[1] << 32) & (masked << 1 | carry);
        carry = masked >> 63;
        push(candidates, t, found);
        if found.len() >= CANDIDATES_MAX {
            return positions.end;
        }
        t += 64;
    }
    t
}

/// As [`find_512`].
///
/// # Safety
/// As there.
#[target_feature(enable = "sse4.1,pclmulqdq")]
unsafe fn find_128(data: &[u8], positions: Range<usize>, mask: u8, found: &mut Vec<u32>) -> usize {
    let mut t = positions.start;
    let key = _mm_set1_epi64x(KEY as i64);
    let never_zero = _mm_set1_epi8(NEVER_ZERO as i8);
    let masks = _mm_set1_epi8(mask as i8);
    let none = _mm_setzero_si128();
    let mut carry = carry_at(data, t, mask);
    // SAFETY: `t ≥ 16`, so the eight bytes before `t` are within `data`.
    let word = unsafe { data.as_ptr().add(t - 8).cast::<i64>().read_unaligned() };
    let mut previous = _mm_clmulepi64_si128(_mm_set_epi64x(0, word), key, 0);
    while t + 16 <= positions.end {
        // SAFETY: `t + 16 ≤ positions.end ≤ data.len()`.
        let words = unsafe { _mm_loadu_si128(data.as_ptr().add(t).cast()) };
        let even = _mm_clmulepi64_si128(words, key, 0x00);
        let odd = _mm_clmulepi64_si128(words, key, 0x01);
        let low = _mm_unpacklo_epi64(even, odd);
        let high = _mm_unpackhi_epi64(previous, even);
        previous = odd;
        let bits = _mm_xor_si128(_mm_xor_si128(low, high), never_zero);
        let zero = _mm_movemask_epi8(_mm_cmpeq_epi8(bits, none)) as u64;
        let masked = _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_and_si128(bits, masks), none)) as u64;
        push(zero & (masked << 1 | carry), t, found);
        if found.len() >= CANDIDATES_MAX {
            return positions.end;
        }
        carry = masked >> 15 & 1;
        t += 16;
    }
    t
}
