//! Names and paths in JSON that are not UTF-8. JSON is text, so bytes that are not UTF-8 become U+FFFD; then a second
//! field, `NAME_base64` beside `NAME`, holds all bytes. A name in UTF-8 has no second field.

use serde_json::Value;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Returns the second field's value: `bytes` in base64 if they are not UTF-8.
pub fn base64(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).is_err().then(|| encoded(bytes))
}

/// Returns the second field's value for a list: all names, in order, if one of them is not UTF-8.
pub fn base64_of_all<B: AsRef<[u8]>>(all: &[B]) -> Option<Vec<String>> {
    let mut names = all.iter().map(AsRef::as_ref);
    names
        .any(|name| std::str::from_utf8(name).is_err())
        .then(|| all.iter().map(|name| encoded(name.as_ref())).collect())
}

/// Adds a second field for `field` to the object if `bytes`, which the field shows, are not UTF-8.
pub fn add(object: &mut Value, field: &str, bytes: &[u8]) {
    if let Some(text) = base64(bytes) {
        object[format!("{field}_base64")] = text.into();
    }
}

/// Encodes bytes in base64 with padding (RFC 4648).
fn encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * at) & 63) as usize];
            let is_there = at <= group.len();
            text.push(if is_there { letter.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_other_programs_read_them() {
        // Test vectors of RFC 4648, section 10.
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encoded(bytes.as_bytes()), text);
        }
        assert_eq!(base64(b"\xff\xfe\xfd").as_deref(), Some("//79"));
        assert_eq!(base64("Zoë".as_bytes()), None);
    }
}
