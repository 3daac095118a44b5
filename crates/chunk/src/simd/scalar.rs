//! The searches a byte at a time: what the others must give, what CPUs without vectors run, and the ends of the others.

use super::{Found, Slopes, value_at};

/// As [`super::Simd::largest`], but every byte is looked at, as in the paper.
///
/// Larger bytes are rare, so the comparison is a branch that is predicted well; `black_box` keeps the compiler from
/// making vectors of the loop, which other instruction sets than the one chosen would then have, too.
pub fn largest(data: &[u8]) -> u8 {
    data.iter().fold(0, |largest, byte| {
        if *byte > largest {
            core::hint::black_box(*byte)
        } else {
            largest
        }
    })
}

/// As [`super::Simd::position_from`].
pub fn position_from(data: &[u8], least: u8) -> Option<usize> {
    data.iter().position(|byte| *byte >= least)
}

/// As [`super::Simd::position_above`], from position `from` on.
pub fn position_above(data: &[u8], than: u64, from: usize) -> Option<usize> {
    let mut values = data.get(from..)?.windows(8);
    let above = |value: &[u8]| value_at(value, 0) > than;
    Some(from + values.position(above)?)
}

/// As [`super::Simd::slopes`].
pub fn slopes(data: &[u8], from: usize, slopes: &mut Slopes, length: u32, trigger: u32) -> Found {
    let sequence = (1u64 << length) - 1;
    let mut before = data[from - 1];
    for (i, byte) in data[from..].iter().enumerate() {
        let (last, byte) = (before, *byte);
        before = byte;
        if byte == last {
            continue;
        }
        slopes.ups = slopes.ups << 1 | u64::from(byte > last);
        slopes.downs += u32::from(byte < last);
        if slopes.ups & sequence == sequence {
            return Found::Sequence(from + i);
        }
        if slopes.downs == trigger {
            return Found::Downs(from + i);
        }
    }
    Found::Nothing
}
