//! The searches with vectors, each written once for all widths ([`Vector`]) and compiled for SSE2, AVX2 and AVX-512.
//!
//! Every function here takes an [`Isa`] from [`available`] that [`super::Simd`] holds, which has only those of this
//! CPU: the calls of `unsafe` functions rely on that. [`scalar`] does the bytes that do not fill a vector.

use alloc::vec;
use alloc::vec::Vec;
use core::arch::x86_64::*;
use core::ops::Range;

use super::vector::Vector;
use super::{Isa, SlopeEnd, Slopes, scalar, value_at};

/// The instruction sets that this CPU has, slowest first. SSE2 is part of x86-64.
pub fn available() -> Vec<Isa> {
    let mut found = vec![Isa::Sse2];
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
        found.push(Isa::Avx2);
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            found.push(Isa::Avx512);
        }
    }
    found
}

/// Defines a function that runs `$with` for the width of the instruction set, and the functions that are compiled for
/// each.
macro_rules! for_each_isa {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $out:ty, $with:ident) => {
        $(#[$doc])*
        pub fn $name(isa: Isa, $($arg: $type),*) -> $out {
            #[target_feature(enable = "sse2")]
            fn sse2($($arg: $type),*) -> $out {
                // SAFETY: the features are those of this function.
                unsafe { $with::<__m128i>($($arg),*) }
            }
            #[target_feature(enable = "avx2,bmi2")]
            fn avx2($($arg: $type),*) -> $out {
                // SAFETY: the features are those of this function.
                unsafe { $with::<__m256i>($($arg),*) }
            }
            #[target_feature(enable = "avx512f,avx512bw,avx2,bmi2")]
            fn avx512($($arg: $type),*) -> $out {
                // SAFETY: the features are those of this function.
                unsafe { $with::<__m512i>($($arg),*) }
            }
            match isa {
                // SAFETY: `available` found it on this CPU, see the module.
                Isa::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                Isa::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: every x86-64 CPU has SSE2.
                _ => unsafe { sse2($($arg),*) },
            }
        }
    };
}

for_each_isa! {
    /// The search of [`super::Simd::largest`].
    largest(data: &[u8]) -> u8, largest_by
}
for_each_isa! {
    /// The search of [`super::Simd::position_from`].
    position_from(data: &[u8], least: u8) -> Option<usize>, position_from_by
}
for_each_isa! {
    /// The search of [`super::Simd::position_above`].
    position_above(data: &[u8], than: u64) -> Option<usize>, position_above_by
}

/// Number of vectors that are compared before the result is tested.
const AT_ONCE: usize = 4;

#[inline(always)]
unsafe fn largest_by<V: Vector>(data: &[u8]) -> u8 {
    let step = AT_ONCE * V::BYTES;
    let mut at = 0;
    // SAFETY: the caller's CPU has the instruction set; every load ends within `data`.
    unsafe {
        let (top, mut largest) = (V::splat(255), V::splat(0));
        while at + step <= data.len() {
            let from = data.as_ptr().add(at);
            for i in 0..AT_ONCE {
                largest = largest.max(V::load(from.add(i * V::BYTES)));
            }
            if largest.at_least(top) != 0 {
                return 255;
            }
            at += step;
        }
        while at + V::BYTES <= data.len() {
            largest = largest.max(V::load(data.as_ptr().add(at)));
            at += V::BYTES;
        }
        data[at..]
            .iter()
            .fold(largest.largest(), |largest, byte| largest.max(*byte))
    }
}

#[inline(always)]
unsafe fn position_from_by<V: Vector>(data: &[u8], least: u8) -> Option<usize> {
    let step = AT_ONCE * V::BYTES;
    let mut at = 0;
    // SAFETY: the caller's CPU has the instruction set; every load ends within `data`.
    unsafe {
        let wanted = V::splat(least);
        while at + step <= data.len() {
            let from = data.as_ptr().add(at);
            let first = V::load(from).max(V::load(from.add(V::BYTES)));
            let last = V::load(from.add(2 * V::BYTES)).max(V::load(from.add(3 * V::BYTES)));
            if first.max(last).at_least(wanted) != 0 {
                break;
            }
            at += step;
        }
        while at + V::BYTES <= data.len() {
            let mask = V::load(data.as_ptr().add(at)).at_least(wanted);
            if mask != 0 {
                return Some(at + mask.trailing_zeros() as usize);
            }
            at += V::BYTES;
        }
    }
    Some(at + scalar::position_from(&data[at..], least)?)
}

/// A value above `than` begins with a byte above its first, or with an equal one and then a byte at least its second.
/// Few other values do, and those are compared whole.
#[inline(always)]
unsafe fn position_above_by<V: Vector>(data: &[u8], than: u64) -> Option<usize> {
    let [first, second, ..] = than.to_be_bytes();
    let mut at = 0;
    // SAFETY: the caller's CPU has the instruction set; every load ends within `data`.
    unsafe {
        let (first, second) = (V::splat(first), V::splat(second));
        while at + V::BYTES + 7 <= data.len() {
            let from = data.as_ptr().add(at);
            let (bytes, next) = (V::load(from), V::load(from.add(1)));
            let mut mask = bytes.at_least(first) & (bytes.above(first) | next.at_least(second));
            while mask != 0 {
                let found = at + mask.trailing_zeros() as usize;
                if value_at(data, found) > than {
                    return Some(found);
                }
                mask &= mask - 1;
            }
            at += V::BYTES;
        }
    }
    scalar::position_above(data, than, at)
}

/// The search of [`super::Simd::slopes`]; `isa` is one with BMI2.
pub fn slopes(
    isa: Isa,
    data: &[u8],
    from: usize,
    slopes: &mut Slopes,
    length: u32,
    trigger: u32,
) -> SlopeEnd {
    #[target_feature(enable = "avx2,bmi2")]
    fn avx2(data: &[u8], from: usize, slopes: &mut Slopes, length: u32, trigger: u32) -> SlopeEnd {
        // SAFETY: the features are those of this function.
        unsafe { slopes_by::<__m256i>(data, from, slopes, length, trigger) }
    }
    #[target_feature(enable = "avx512f,avx512bw,avx2,bmi2")]
    fn avx512(
        data: &[u8],
        from: usize,
        slopes: &mut Slopes,
        length: u32,
        trigger: u32,
    ) -> SlopeEnd {
        // SAFETY: the features are those of this function.
        unsafe { slopes_by::<__m512i>(data, from, slopes, length, trigger) }
    }
    match isa {
        // SAFETY: `available` found it on this CPU, see the module.
        Isa::Avx512 => unsafe { avx512(data, from, slopes, length, trigger) },
        // SAFETY: as above.
        Isa::Avx2 => unsafe { avx2(data, from, slopes, length, trigger) },
        _ => scalar::slopes(data, from, slopes, length, trigger),
    }
}

/// Each step of a vector becomes one bit, up or down. Level steps are removed (`pext`), so that a sequence is a run of
/// bits; the position of a match is then mapped back (`pdep`).
#[inline(always)]
unsafe fn slopes_by<V: Vector>(
    data: &[u8],
    from: usize,
    slopes: &mut Slopes,
    length: u32,
    trigger: u32,
) -> SlopeEnd {
    let mut at = from;
    assert!(from >= 1);
    while at + V::BYTES <= data.len() {
        // SAFETY: the caller's CPU has the instruction set; `1 ≤ at` and the loads end within `data`.
        let (ups, steps) = unsafe {
            let here = V::load(data.as_ptr().add(at));
            let before = V::load(data.as_ptr().add(at - 1));
            let ups = here.above(before);
            (ups, ups | before.above(here))
        };
        // SAFETY: the caller's CPU has BMI2.
        let squeezed = unsafe { _pext_u64(ups, steps) };
        let count = steps.count_ones();
        let downs = !squeezed & mask_of(count);
        let mut sequences = squeezed;
        for shift in 1..length {
            // The steps before, in the order of time: the latest stands right below the lowest bit.
            let earlier = (slopes.ups & mask_of(shift)).reverse_bits() >> (64 - shift);
            sequences &= squeezed << shift | earlier;
        }
        let sequence = sequences.trailing_zeros();
        let wanted = trigger - slopes.downs;
        // SAFETY: the caller's CPU has BMI2.
        let last_down = unsafe { _pdep_u64(1 << (wanted - 1).min(63), downs) }.trailing_zeros();
        let last_down = if wanted > 64 { 64 } else { last_down };
        if sequence.min(last_down) < 64 {
            let bit = 1u64 << sequence.min(last_down);
            // SAFETY: the caller's CPU has BMI2.
            let position = at + unsafe { _pdep_u64(bit, steps) }.trailing_zeros() as usize;
            return if sequence < last_down {
                SlopeEnd::Sequence(position)
            } else {
                SlopeEnd::Downs(position)
            };
        }
        slopes.downs += downs.count_ones();
        slopes.ups = match count {
            0 => slopes.ups,
            64 => squeezed.reverse_bits(),
            _ => slopes.ups << count | squeezed.reverse_bits() >> (64 - count),
        };
        at += V::BYTES;
    }
    scalar::slopes(data, at, slopes, length, trigger)
}

/// The lowest `count` bits.
#[inline(always)]
fn mask_of(count: u32) -> u64 {
    if count >= 64 {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

/// Prefetches as [`super::Simd::prefetch`] does.
#[inline(always)]
pub fn prefetch(data: &[u8], range: Range<usize>) {
    for at in range.step_by(64) {
        // SAFETY: a prefetch reads nothing that the program sees, and may point anywhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(data.as_ptr().wrapping_add(at).cast()) };
    }
}
