//! Transposing sixteen blocks: from a row of words for each lane to a row of lanes for each word.
//!
//! Word by word this takes 256 loads and stores, nearly half of the cost of such a block; shuffles need 64
//! instructions.

use core::arch::x86_64::*;

use super::leaf::LANES;

/// A row of words for each lane before transposing, a row of lanes for each word after it.
pub type Rows = [[u32; LANES]; LANES];

/// Transposes on any CPU: the vector versions are tested against this.
#[cfg(test)]
pub fn plain(rows: &Rows) -> Rows {
    core::array::from_fn(|word| core::array::from_fn(|lane| rows[lane][word]))
}

/// Transposes by AVX-512: swaps four words of four lanes inside each quarter of a vector, then the quarters.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn avx512(rows: &Rows) -> Rows {
    // SAFETY: both types are 16 × 64 plain bytes.
    let r: [__m512i; 16] = unsafe { core::mem::transmute(*rows) };
    let mut fours = [_mm512_setzero_si512(); 16];
    for i in 0..4 {
        let [a, b, c, d] = [r[4 * i], r[4 * i + 1], r[4 * i + 2], r[4 * i + 3]];
        let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        let (hi_ab, hi_cd) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        fours[4 * i] = _mm512_unpacklo_epi64(ab, cd);
        fours[4 * i + 1] = _mm512_unpackhi_epi64(ab, cd);
        fours[4 * i + 2] = _mm512_unpacklo_epi64(hi_ab, hi_cd);
        fours[4 * i + 3] = _mm512_unpackhi_epi64(hi_ab, hi_cd);
    }
    let mut out = [_mm512_setzero_si512(); 16];
    for i in 0..4 {
        let [a, b, c, d] = [fours[i], fours[4 + i], fours[8 + i], fours[12 + i]];
        // Quarters 0 and 2 of two lanes' groups, then 1 and 3.
        let even = (
            _mm512_shuffle_i32x4::<0x88>(a, b),
            _mm512_shuffle_i32x4::<0x88>(c, d),
        );
        let odd = (
            _mm512_shuffle_i32x4::<0xdd>(a, b),
            _mm512_shuffle_i32x4::<0xdd>(c, d),
        );
        out[i] = _mm512_shuffle_i32x4::<0x88>(even.0, even.1);
        out[4 + i] = _mm512_shuffle_i32x4::<0x88>(odd.0, odd.1);
        out[8 + i] = _mm512_shuffle_i32x4::<0xdd>(even.0, even.1);
        out[12 + i] = _mm512_shuffle_i32x4::<0xdd>(odd.0, odd.1);
    }
    // SAFETY: as above.
    unsafe { core::mem::transmute(out) }
}

/// Transposes by AVX2, in squares of eight by eight.
#[inline]
#[target_feature(enable = "avx2")]
pub fn avx2(rows: &Rows) -> Rows {
    // SAFETY: both types are 32 × 32 plain bytes: vector 2·lane + half.
    let r: [__m256i; 32] = unsafe { core::mem::transmute(*rows) };
    let mut out = [_mm256_setzero_si256(); 32];
    for lanes in 0..2 {
        for words in 0..2 {
            let row = |lane: usize| r[2 * (8 * lanes + lane) + words];
            let mut fours = [_mm256_setzero_si256(); 8];
            for i in 0..2 {
                let [a, b, c, d] = [row(4 * i), row(4 * i + 1), row(4 * i + 2), row(4 * i + 3)];
                let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
                let (hi_ab, hi_cd) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
                fours[4 * i] = _mm256_unpacklo_epi64(ab, cd);
                fours[4 * i + 1] = _mm256_unpackhi_epi64(ab, cd);
                fours[4 * i + 2] = _mm256_unpacklo_epi64(hi_ab, hi_cd);
                fours[4 * i + 3] = _mm256_unpackhi_epi64(hi_ab, hi_cd);
            }
            for i in 0..4 {
                let (a, b) = (fours[i], fours[4 + i]);
                out[2 * (8 * words + i) + lanes] = _mm256_permute2x128_si256::<0x20>(a, b);
                out[2 * (8 * words + 4 + i) + lanes] = _mm256_permute2x128_si256::<0x31>(a, b);
            }
        }
    }
    // SAFETY: as above.
    unsafe { core::mem::transmute(out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_as_the_plain_one() {
        let rows: Rows =
            core::array::from_fn(|lane| core::array::from_fn(|word| (lane << 16 | word) as u32));
        let turned = plain(&rows);
        assert_eq!(turned[3][5], 5 << 16 | 3);
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: this CPU has the feature.
            assert_eq!(unsafe { avx512(&rows) }, turned);
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            assert_eq!(unsafe { avx2(&rows) }, turned);
        }
    }
}
