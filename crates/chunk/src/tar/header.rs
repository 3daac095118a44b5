//! One header block of a tar archive: the kind and the length of the member that follows.

use super::{BLOCK, Tars};

/// The data that follows a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follows {
    /// Content of a file, of this length unless a pax record says otherwise.
    Content(u64),
    /// Content of a file, of this length, behind further blocks that list its holes.
    SparseMap(u64),
    /// The records of a pax header for the next member.
    PaxRecords(u64),
    /// Other data about members: long names, global records, lists of folders.
    About(u64),
    /// No data: the next header follows.
    Nothing,
}

/// Reads a block where a header is expected; `None` if it is neither a header nor zeros, as at the end of an archive.
pub fn read(block: &[u8; BLOCK]) -> Option<Follows> {
    if block.iter().all(|byte| *byte == 0) {
        return Some(Follows::Nothing);
    }
    if !has_right_checksum(block) {
        return None;
    }
    let size = number(&block[124..136])?;
    Some(match block[156] {
        // Links, devices, folders, pipes and labels have no content, whatever their size says.
        b'1'..=b'6' | b'V' => Follows::Nothing,
        b'x' | b'X' => Follows::PaxRecords(size),
        b'g' | b'L' | b'K' | b'N' | b'D' => Follows::About(size),
        b'S' if block[482] != 0 => Follows::SparseMap(size),
        _ => Follows::Content(size),
    })
}

/// Whether a stream that begins with this block is taken for a tar.
pub fn begins(block: &[u8; BLOCK], tars: Tars) -> bool {
    let has_magic = &block[257..262] == b"ustar" && matches!(block[262], 0 | b' ');
    (has_magic || tars == Tars::Checksum) && has_right_checksum(block)
}

/// Whether the checksum is right: the sum of all bytes, its own counted as spaces. Some old programs added signed
/// bytes.
fn has_right_checksum(block: &[u8; BLOCK]) -> bool {
    let field = &block[148..156];
    let Some(expected) = number(field).and_then(|sum| i64::try_from(sum).ok()) else {
        return false;
    };
    let unsigned = i64::from(sum(block) - sum(field)) + 8 * i64::from(b' ');
    expected == unsigned || expected == unsigned - 256 * (negative(block) - negative(field))
}

/// The sum of at most a block's bytes: eight at a time, as four sums of 16 bits.
fn sum(bytes: &[u8]) -> u32 {
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let sums: u64 = words.map(|word| (word & EVEN) + (word >> 8 & EVEN)).sum();
    let sums = (0..4).map(|lane| (sums >> (16 * lane)) as u16);
    let rest = rest.iter().map(|byte| u32::from(*byte));
    sums.map(u32::from).sum::<u32>() + rest.sum::<u32>()
}

/// The number of bytes that are negative as signed bytes: each lowers the sum by 256.
fn negative(bytes: &[u8]) -> i64 {
    bytes.iter().map(|byte| i64::from(byte >> 7)).sum()
}

/// A number in octal digits between spaces and zeros, or in base 256 where the first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let mut bytes = field[1..].iter();
        // negative numbers begin with another byte
        let number = bytes.try_fold(0u64, |number, byte| {
            Some(number.checked_mul(256)? | u64::from(*byte))
        });
        return number.filter(|_| field[0] == 0x80);
    }
    let mut digits = field
        .iter()
        .skip_while(|byte| **byte == b' ')
        .take_while(|byte| !matches!(**byte, 0 | b' '));
    digits.try_fold(0u64, |number, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        number.checked_mul(8)?.checked_add(u64::from(digit))
    })
}

/// The `size` of the last pax record that has one. A record is `LENGTH KEY=VALUE\n`, its length counting all of it.
pub fn pax_size(mut records: &[u8]) -> Option<u64> {
    let mut size = None;
    while let Some((length, _)) = split_at_byte(records, b' ') {
        let length: usize = core::str::from_utf8(length).ok()?.parse().ok()?;
        let record = records.get(..length)?;
        let (_, pair) = split_at_byte(record, b' ')?;
        if let Some(value) = pair.strip_prefix(b"size=") {
            let digits = value.strip_suffix(b"\n")?;
            size = core::str::from_utf8(digits).ok()?.parse().ok();
        }
        records = &records[length..];
    }
    size
}

fn split_at_byte(bytes: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|found| *found == byte)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_signed_and_of_unsigned_bytes_are_right() {
        let mut block = [0; BLOCK];
        block[..3].copy_from_slice(&[0x80, 0xff, b'a']);
        for (sum, right) in [
            (0x80 + 0xff + 97 + 256, true),
            (97 + 256 - 128 - 1, true),
            (97 + 256 - 128, false),
        ] {
            block[148..156].fill(0);
            let digits = [sum >> 6, sum >> 3, sum].map(|digit: i32| b'0' + (digit & 7) as u8);
            block[148..151].copy_from_slice(&digits);
            assert_eq!(has_right_checksum(&block), right, "{sum}");
        }
    }
}
