//! The linear bits with carry-less multiplication on AArch64 (PMULL): 16 positions at a time, as with 128-bit vectors
//! on x86.

use alloc::vec;
use alloc::vec::Vec;
use core::arch::aarch64::*;

use super::isa::SieveIsa;
use super::lanes::{Lanes, scan_with};
use super::linear::{KEY, NEVER_ZERO};
use super::positions::{Area, Positions};

/// The instruction sets of this module that this CPU has, slowest first.
pub fn available() -> Vec<SieveIsa> {
    // PMULL of 64-bit words comes with the AES instructions.
    if std::arch::is_aarch64_feature_detected!("aes") {
        vec![SieveIsa::Neon]
    } else {
        Vec::new()
    }
}

/// The search that [`super::scan::scan`] promises; that function has checked the bounds.
pub fn scan(data: &[u8], area: Area, found: &mut Positions) -> usize {
    // SAFETY: `Sieve` holds `SieveIsa::Neon` only if `available` found it on this CPU, and the bounds were checked.
    unsafe { scan_neon(data, area, found) }
}

#[target_feature(enable = "neon,aes")]
unsafe fn scan_neon(data: &[u8], area: Area, found: &mut Positions) -> usize {
    // SAFETY: the caller promises the same.
    unsafe { scan_with::<Neon>(data, area, found) }
}

struct Neon {
    never_zero: uint8x16_t,
    masks: uint8x16_t,
    /// The bit of each byte within eight bytes of positions.
    places: uint8x16_t,
    /// The product of the previous odd word.
    odd: uint64x2_t,
}

impl Lanes for Neon {
    #[inline]
    #[target_feature(enable = "neon,aes")]
    unsafe fn new(before: u64, mask: u8) -> Self {
        Self {
            never_zero: vdupq_n_u8(NEVER_ZERO),
            masks: vdupq_n_u8(mask),
            places: vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201)),
            odd: vreinterpretq_u64_p128(vmull_p64(before, KEY)),
        }
    }

    #[inline(always)]
    fn prefetch(_at: *const u8) {
        // There is no stable intrinsic; the hardware's own prefetch must do.
    }

    #[inline]
    #[target_feature(enable = "neon,aes")]
    unsafe fn block(&mut self, at: *const u8) -> (u64, u64) {
        // SAFETY: the caller promises the same.
        unsafe {
            let mut zero = [vdupq_n_u8(0); 4];
            let mut masked = zero;
            for quarter in 0..4 {
                let words = vreinterpretq_u64_u8(vld1q_u8(at.add(16 * quarter)));
                let even = vreinterpretq_u64_p128(vmull_p64(vgetq_lane_u64::<0>(words), KEY));
                let odd = vreinterpretq_u64_p128(vmull_p64(vgetq_lane_u64::<1>(words), KEY));
                // Low halves, and high halves of the products before.
                let low = vzip1q_u64(even, odd);
                let high = vzip2q_u64(self.odd, even);
                self.odd = odd;
                let bits = vreinterpretq_u8_u64(veorq_u64(low, high));
                let bits = veorq_u8(bits, self.never_zero);
                zero[quarter] = vandq_u8(vceqzq_u8(bits), self.places);
                masked[quarter] = vandq_u8(vceqzq_u8(vandq_u8(bits, self.masks)), self.places);
            }
            (gathered(zero), gathered(masked))
        }
    }
}

/// One bit of each byte as one word; no two bytes of the same eight have their bit in the same place.
#[inline]
#[target_feature(enable = "neon")]
fn gathered(quarters: [uint8x16_t; 4]) -> u64 {
    let [a, b, c, d] = quarters;
    let sums = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)))
}
