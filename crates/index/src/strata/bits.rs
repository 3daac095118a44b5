//! Numbers of any width, packed without gaps: bit 0 is the lowest bit of byte 0.
//!
//! Invariant: no access outside the slice; reads behind its end give zeros.

/// The widest number that [`get`] reads in one piece: 64 bits less the seven that a start inside a byte costs.
pub const WIDTH_MAX: u32 = 57;

/// Reads the number of `width` bits (at most [`WIDTH_MAX`]) that starts at bit `bit`.
#[inline]
pub fn get(bytes: &[u8], bit: usize, width: u32) -> u64 {
    let at = bit / 8;
    let word = match bytes.get(at..at + 8) {
        Some(eight) => u64::from_le_bytes(eight.try_into().expect("eight bytes")),
        None => {
            let mut eight = [0u8; 8];
            let rest = bytes.get(at..).unwrap_or_default();
            eight[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(eight)
        }
    };
    (word >> (bit % 8)) & mask(width)
}

/// Adds `value`, a number of `width` bits, at bit `bit`, where the slice holds zeros. The slice must reach that far.
pub fn put(bytes: &mut [u8], bit: usize, width: u32, value: u64) {
    debug_assert!(width <= WIDTH_MAX && value <= mask(width));
    let word = (value << (bit % 8)).to_le_bytes();
    let used = (bit % 8 + width as usize).div_ceil(8);
    for (byte, add) in bytes[bit / 8..bit / 8 + used].iter_mut().zip(word) {
        *byte |= add;
    }
}

/// A number whose lowest `width` bits are ones.
#[inline]
pub fn mask(width: u32) -> u64 {
    if width >= 64 {
        u64::MAX
    } else {
        (1 << width) - 1
    }
}

/// The number of bits that a number up to `max` needs.
pub fn width_of(max: u64) -> u32 {
    64 - max.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_numbers_come_back() {
        for width in 1..=WIDTH_MAX {
            let values: Vec<u64> = (0..100u64)
                .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask(width))
                .collect();
            let mut bytes = vec![0; (100 * width as usize).div_ceil(8)];
            for (i, value) in values.iter().enumerate() {
                put(&mut bytes, i * width as usize, width, *value);
            }
            for (i, value) in values.iter().enumerate() {
                assert_eq!(
                    get(&bytes, i * width as usize, width),
                    *value,
                    "width {width}, number {i}"
                );
            }
        }
    }
}
