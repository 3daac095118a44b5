//! The linear bits with carry-less multiplication: 64 positions a block, in vectors of 128, 256 or 512 bits.
//!
//! The product of a 64-bit word with the key is 128 bits long: its low half belongs to the positions of that word, its
//! high half to those of the next. The bits of a word are therefore the low half of its own product XOR the high half
//! of the product before.

use alloc::vec::Vec;
use core::arch::x86_64::*;

use super::isa::SieveIsa;
use super::lanes::{Lanes, scan_with};
use super::linear::{KEY, NEVER_ZERO};
use super::positions::{Area, Positions};

/// The instruction sets of this module that this CPU has, slowest first.
pub fn available() -> Vec<SieveIsa> {
    let mut found = Vec::new();
    if is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.1") {
        found.push(SieveIsa::Pclmul);
    }
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("bmi1");
    if avx2 {
        found.push(SieveIsa::Avx2);
    }
    let wide = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq");
    if wide && avx2 {
        found.push(SieveIsa::Avx512);
    }
    found
}

/// The search that [`super::scan::scan`] promises; that function has checked the bounds.
pub fn scan(isa: SieveIsa, data: &[u8], area: Area, found: &mut Positions) -> usize {
    match isa {
        // SAFETY: `Sieve` holds only an `SieveIsa` that `available` found on this CPU, and the bounds were checked.
        SieveIsa::Avx512 => unsafe { scan_512(data, area, found) },
        // SAFETY: as above.
        SieveIsa::Avx2 => unsafe { scan_256(data, area, found) },
        // SAFETY: as above.
        _ => unsafe { scan_128(data, area, found) },
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx2,vpclmulqdq,pclmulqdq,bmi1")]
unsafe fn scan_512(data: &[u8], area: Area, found: &mut Positions) -> usize {
    // SAFETY: the caller promises the same.
    unsafe { scan_with::<Lanes512>(data, area, found) }
}

#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,bmi1")]
unsafe fn scan_256(data: &[u8], area: Area, found: &mut Positions) -> usize {
    // SAFETY: the caller promises the same.
    unsafe { scan_with::<Lanes256>(data, area, found) }
}

#[target_feature(enable = "sse4.1,pclmulqdq")]
unsafe fn scan_128(data: &[u8], area: Area, found: &mut Positions) -> usize {
    // SAFETY: the caller promises the same.
    unsafe { scan_with::<Lanes128>(data, area, found) }
}

#[inline(always)]
fn prefetch(at: *const u8) {
    // SAFETY: a prefetch may point anywhere.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

struct Lanes512 {
    key: __m512i,
    never_zero: __m512i,
    masks: __m512i,
    /// The products of the odd words of the previous block.
    odd: __m512i,
}

impl Lanes for Lanes512 {
    #[inline(always)]
    unsafe fn new(before: u64, mask: u8) -> Self {
        // SAFETY: the caller promises the same.
        unsafe {
            let key = _mm512_set1_epi64(KEY as i64);
            let before = _mm_set_epi64x(0, before as i64);
            let product = _mm_clmulepi64_si128(before, _mm512_castsi512_si128(key), 0);
            Self {
                key,
                never_zero: _mm512_set1_epi8(NEVER_ZERO as i8),
                masks: _mm512_set1_epi8(mask as i8),
                odd: _mm512_inserti64x2(_mm512_setzero_si512(), product, 3),
            }
        }
    }

    #[inline(always)]
    fn prefetch(at: *const u8) {
        prefetch(at);
    }

    #[inline(always)]
    unsafe fn block(&mut self, at: *const u8) -> (u64, u64) {
        // SAFETY: the caller promises the same.
        unsafe {
            let words = _mm512_loadu_si512(at.cast());
            let even = _mm512_clmulepi64_epi128(words, self.key, 0x00);
            let odd = _mm512_clmulepi64_epi128(words, self.key, 0x01);
            // The products of the odd words, each moved to where the next even word is.
            let before = _mm512_alignr_epi64(odd, self.odd, 6);
            self.odd = odd;
            let low = _mm512_unpacklo_epi64(even, odd);
            let high = _mm512_unpackhi_epi64(before, even);
            let bits = _mm512_ternarylogic_epi64(low, high, self.never_zero, 0x96);
            (
                _mm512_testn_epi8_mask(bits, bits),
                _mm512_testn_epi8_mask(bits, self.masks),
            )
        }
    }
}

struct Lanes256 {
    key: __m256i,
    never_zero: __m256i,
    masks: __m256i,
    odd: __m256i,
}

impl Lanes for Lanes256 {
    #[inline(always)]
    unsafe fn new(before: u64, mask: u8) -> Self {
        // SAFETY: the caller promises the same.
        unsafe {
            let key = _mm256_set1_epi64x(KEY as i64);
            let before = _mm_set_epi64x(0, before as i64);
            let product = _mm_clmulepi64_si128(before, _mm256_castsi256_si128(key), 0);
            Self {
                key,
                never_zero: _mm256_set1_epi8(NEVER_ZERO as i8),
                masks: _mm256_set1_epi8(mask as i8),
                odd: _mm256_inserti128_si256(_mm256_setzero_si256(), product, 1),
            }
        }
    }

    #[inline(always)]
    fn prefetch(at: *const u8) {
        prefetch(at);
    }

    #[inline(always)]
    unsafe fn block(&mut self, at: *const u8) -> (u64, u64) {
        let (mut zero, mut masked) = (0, 0);
        for half in 0..2 {
            // SAFETY: the caller promises the same.
            unsafe {
                let words = _mm256_loadu_si256(at.add(32 * half).cast());
                let even = _mm256_clmulepi64_epi128(words, self.key, 0x00);
                let odd = _mm256_clmulepi64_epi128(words, self.key, 0x01);
                let before = _mm256_permute2x128_si256(self.odd, odd, 0x21);
                self.odd = odd;
                let low = _mm256_unpacklo_epi64(even, odd);
                let high = _mm256_unpackhi_epi64(before, even);
                let bits = _mm256_xor_si256(_mm256_xor_si256(low, high), self.never_zero);
                let none = _mm256_setzero_si256();
                let zeros = _mm256_movemask_epi8(_mm256_cmpeq_epi8(bits, none)) as u32;
                let bits = _mm256_and_si256(bits, self.masks);
                let maskeds = _mm256_movemask_epi8(_mm256_cmpeq_epi8(bits, none)) as u32;
                zero |= u64::from(zeros) << (32 * half);
                masked |= u64::from(maskeds) << (32 * half);
            }
        }
        (zero, masked)
    }
}

struct Lanes128 {
    key: __m128i,
    never_zero: __m128i,
    masks: __m128i,
    odd: __m128i,
}

impl Lanes for Lanes128 {
    #[inline(always)]
    unsafe fn new(before: u64, mask: u8) -> Self {
        // SAFETY: the caller promises the same.
        unsafe {
            let key = _mm_set1_epi64x(KEY as i64);
            Self {
                key,
                never_zero: _mm_set1_epi8(NEVER_ZERO as i8),
                masks: _mm_set1_epi8(mask as i8),
                odd: _mm_clmulepi64_si128(_mm_set_epi64x(0, before as i64), key, 0),
            }
        }
    }

    #[inline(always)]
    fn prefetch(at: *const u8) {
        prefetch(at);
    }

    #[inline(always)]
    unsafe fn block(&mut self, at: *const u8) -> (u64, u64) {
        let (mut zero, mut masked) = (0, 0);
        for quarter in 0..4 {
            // SAFETY: the caller promises the same.
            unsafe {
                let words = _mm_loadu_si128(at.add(16 * quarter).cast());
                let even = _mm_clmulepi64_si128(words, self.key, 0x00);
                let odd = _mm_clmulepi64_si128(words, self.key, 0x01);
                let low = _mm_unpacklo_epi64(even, odd);
                let high = _mm_unpackhi_epi64(self.odd, even);
                self.odd = odd;
                let bits = _mm_xor_si128(_mm_xor_si128(low, high), self.never_zero);
                let none = _mm_setzero_si128();
                let zeros = _mm_movemask_epi8(_mm_cmpeq_epi8(bits, none)) as u16;
                let bits = _mm_and_si128(bits, self.masks);
                let maskeds = _mm_movemask_epi8(_mm_cmpeq_epi8(bits, none)) as u16;
                zero |= u64::from(zeros) << (16 * quarter);
                masked |= u64::from(maskeds) << (16 * quarter);
            }
        }
        (zero, masked)
    }
}
