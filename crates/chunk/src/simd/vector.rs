//! Vectors of bytes of three widths behind one trait, so that every search is written once.
//!
//! All methods are `#[inline(always)]`: they become instructions of the calling function, which has
//! `#[target_feature]`.

use core::arch::x86_64::*;

/// A vector of unsigned bytes. In masks the lowest bit is that of the first byte.
///
/// # Safety
/// The CPU must have the instruction set, for all methods.
pub trait Vector: Copy {
    /// Number of bytes in the vector; at most 64.
    const BYTES: usize;
    /// The mask of all bytes.
    const ALL: u64 = u64::MAX >> (64 - Self::BYTES);

    /// Reads [`Self::BYTES`] bytes.
    ///
    /// # Safety
    /// The bytes at `from` can be read. They need no alignment.
    unsafe fn load(from: *const u8) -> Self;

    /// A vector with `byte` everywhere.
    ///
    /// # Safety
    /// The CPU has the instruction set.
    unsafe fn splat(byte: u8) -> Self;

    /// The larger byte of each pair.
    ///
    /// # Safety
    /// The CPU has the instruction set.
    unsafe fn max(self, other: Self) -> Self;

    /// The mask of bytes that are at least the other's.
    ///
    /// # Safety
    /// The CPU has the instruction set.
    unsafe fn at_least(self, other: Self) -> u64;

    /// The mask of bytes that are more than the other's.
    ///
    /// # Safety
    /// The CPU has the instruction set.
    #[inline(always)]
    unsafe fn above(self, other: Self) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { !other.at_least(self) & Self::ALL }
    }

    /// The largest byte.
    ///
    /// # Safety
    /// The CPU has the instruction set.
    unsafe fn largest(self) -> u8;
}

impl Vector for __m128i {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm_loadu_si128(from.cast()) }
    }

    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm_set1_epi8(byte as i8) }
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm_max_epu8(self, other) }
    }

    #[inline(always)]
    unsafe fn at_least(self, other: Self) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_max_epu8(self, other), self)) as u64 }
    }

    #[inline(always)]
    unsafe fn largest(self) -> u8 {
        // SAFETY: as the caller promises.
        unsafe {
            let of_8 = _mm_max_epu8(self, _mm_srli_si128(self, 8));
            let of_4 = _mm_max_epu8(of_8, _mm_srli_si128(of_8, 4));
            let of_2 = _mm_max_epu8(of_4, _mm_srli_si128(of_4, 2));
            _mm_cvtsi128_si32(_mm_max_epu8(of_2, _mm_srli_si128(of_2, 1))) as u8
        }
    }
}

impl Vector for __m256i {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm256_set1_epi8(byte as i8) }
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm256_max_epu8(self, other) }
    }

    #[inline(always)]
    unsafe fn at_least(self, other: Self) -> u64 {
        // SAFETY: as the caller promises.
        let mask =
            unsafe { _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(self, other), self)) };
        u64::from(mask as u32)
    }

    #[inline(always)]
    unsafe fn largest(self) -> u8 {
        // SAFETY: as the caller promises; AVX2 includes SSE2.
        unsafe {
            let half = _mm256_extracti128_si256(self, 1);
            _mm256_castsi256_si128(self).max(half).largest()
        }
    }
}

impl Vector for __m512i {
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm512_set1_epi8(byte as i8) }
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm512_max_epu8(self, other) }
    }

    #[inline(always)]
    unsafe fn at_least(self, other: Self) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { _mm512_cmpge_epu8_mask(self, other) }
    }

    #[inline(always)]
    unsafe fn largest(self) -> u8 {
        // SAFETY: as the caller promises; AVX-512 includes AVX2.
        unsafe {
            let half = _mm512_extracti64x4_epi64(self, 1);
            _mm512_castsi512_si256(self).max(half).largest()
        }
    }
}
