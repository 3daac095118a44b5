//! Numbers in names: a fixed count of lower-case hexadecimal digits.

/// Parses `text` as a number of exactly `digits` digits, at most 16; `None` for any other text.
pub fn hex_number(text: &str, digits: usize) -> Option<u64> {
    let is_digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    let is_ours = text.len() == digits && text.bytes().all(is_digit);
    is_ours.then(|| u64::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::hex_number;

    #[test]
    fn only_what_was_written_so_is_a_number() {
        assert_eq!(hex_number("00ff", 4), Some(255));
        assert_eq!(hex_number("ffffffffffffffff", 16), Some(u64::MAX));
        for (text, digits) in [("ff", 4), ("00FF", 4), ("+0ff", 4), ("00fg", 4), ("", 4)] {
            assert_eq!(hex_number(text, digits), None, "{text:?}");
        }
    }
}
