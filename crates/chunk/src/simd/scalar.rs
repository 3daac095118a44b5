//! The searches a byte at a time: the reference for the others, which use it at the ends of data, and the only version
//! on CPUs without vectors.

use super::{SlopeEnd, Slopes, value_at};

/// The search of [`super::Simd::largest`], but every byte is looked at, as in the paper.
///
/// Larger bytes are rare, so the comparison is a branch that is predicted well. `black_box` keeps the compiler from
/// making vectors of the loop, which would measure other instructions than the chosen ones.
pub fn largest(data: &[u8]) -> u8 {
    data.iter().fold(0, |largest, byte| {
        if *byte > largest {
            core::hint::black_box(*byte)
        } else {
            largest
        }
    })
}

/// The search of [`super::Simd::position_from`].
pub fn position_from(data: &[u8], least: u8) -> Option<usize> {
    data.iter().position(|byte| *byte >= least)
}

/// The search of [`super::Simd::position_above`], from position `from` on.
pub fn position_above(data: &[u8], than: u64, from: usize) -> Option<usize> {
    let mut values = data.get(from..)?.windows(8);
    let above = |value: &[u8]| value_at(value, 0) > than;
    Some(from + values.position(above)?)
}

/// The search of [`super::Simd::slopes`].
pub fn slopes(
    data: &[u8],
    from: usize,
    slopes: &mut Slopes,
    length: u32,
    trigger: u32,
) -> SlopeEnd {
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
            return SlopeEnd::Sequence(from + i);
        }
        if slopes.downs == trigger {
            return SlopeEnd::Downs(from + i);
        }
    }
    SlopeEnd::Nothing
}
