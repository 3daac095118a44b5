//! Decoding and encoding the fields of formats (FORMAT.md, preamble): fixed-width little-endian numbers, varints, and
//! byte strings.
//!
//! [`ByteReader`] reads a slice front to back. It never panics and never allocates: every length is compared with the
//! remaining bytes, so that a decoder built on it turns any bytes from outside into values or an error.

use crate::{Error, Result};

/// The longest varint: 9 × 7 bits and one last bit.
pub const VARINT_BYTES_MAX: usize = 10;

/// Appends `value` as a varint: LEB128, shortest form.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the length of `bytes` as a varint, then `bytes`.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Maps small negative and positive numbers to small unsigned ones: 0, −1, 1, −2 … become 0, 1, 2, 3 …
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reads fields from a slice, front to back. A failed call leaves the position unchanged.
#[derive(Clone, Debug)]
pub struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
    of: &'a str,
    base: u64,
}

impl<'a> ByteReader<'a> {
    /// A reader of `bytes`, which came from `of` (a path, or "recipe") at offset `base`; both are for errors only.
    pub fn new(bytes: &'a [u8], of: &'a str, base: u64) -> Self {
        Self {
            bytes,
            at: 0,
            of,
            base,
        }
    }

    /// Number of bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Whether all bytes were read.
    pub fn is_at_end(&self) -> bool {
        self.remaining() == 0
    }

    /// Number of bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Offset of the next byte in the file or record that errors name.
    pub fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// The remaining bytes, without reading them.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Checks that all bytes were read.
    ///
    /// # Errors
    /// [`Damaged`](crate::ErrorKind::Damaged) where bytes remain.
    pub fn end(&self) -> Result<()> {
        if self.is_at_end() {
            Ok(())
        } else {
            Err(self.damaged(format!(
                "expected the end, found {} more bytes",
                self.remaining()
            )))
        }
    }

    /// Reads `len` bytes.
    ///
    /// # Errors
    /// [`Damaged`](crate::ErrorKind::Damaged) where fewer remain.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        match self.rest().get(..len) {
            Some(bytes) => {
                self.at += len;
                Ok(bytes)
            }
            None => Err(self.ends_early(len as u64)),
        }
    }

    /// Reads `N` bytes.
    ///
    /// # Errors
    /// [`Damaged`](crate::ErrorKind::Damaged) where fewer remain.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.rest().first_chunk::<N>() {
            Some(bytes) => {
                self.at += N;
                Ok(*bytes)
            }
            None => Err(self.ends_early(N as u64)),
        }
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// [`Damaged`](crate::ErrorKind::Damaged) at the end.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads two little-endian bytes.
    ///
    /// # Errors
    /// [`Damaged`](crate::ErrorKind::Damaged) where fewer remain.
    #[inline]
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Reads four little-endian bytes.
    ///
    /// # Errors
    /// [`Damaged`](crate::ErrorKind::Damaged) where fewer remain.
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Reads eight little-endian bytes.
    ///
    /// # Errors
    /// [`Damaged`](crate::ErrorKind::Damaged) where fewer remain.
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a varint.
    ///
    /// # Errors
    /// [`Damaged`](crate::ErrorKind::Damaged) for one that isn't in its shortest form, exceeds 64 bits, or goes on
    /// behind the end.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        match self.rest().first() {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for (i, &byte) in self.rest().iter().take(VARINT_BYTES_MAX).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * i);
            if byte < 0x80 {
                let padded = byte == 0 && i > 0;
                let too_big = i == VARINT_BYTES_MAX - 1 && byte > 1;
                if padded || too_big {
                    return Err(self.damaged(
                        "a varint is not in its shortest form or exceeds 64 bits".into(),
                    ));
                }
                self.at += i + 1;
                return Ok(value);
            }
        }
        let what = if self.remaining() < VARINT_BYTES_MAX {
            "the bytes end within a varint"
        } else {
            "a varint exceeds ten bytes"
        };
        Err(self.damaged(what.into()))
    }

    /// Reads a varint of at most `max`.
    ///
    /// # Errors
    /// [`Damaged`](crate::ErrorKind::Damaged) for a larger one, and the errors of [`varint`](Self::varint).
    pub fn varint_max(&mut self, max: u64) -> Result<u64> {
        let before = self.at;
        let value = self.varint()?;
        if value > max {
            self.at = before;
            return Err(self.damaged(format!("expected a number of at most {max}, found {value}")));
        }
        Ok(value)
    }

    /// Reads a varint that counts following items of at least `item_bytes_min` bytes. The count is at most what the
    /// remaining bytes can hold, so a decoder may allocate for it.
    ///
    /// # Errors
    /// [`Damaged`](crate::ErrorKind::Damaged) for a larger count, and the errors of [`varint`](Self::varint).
    pub fn count(&mut self, item_bytes_min: usize) -> Result<usize> {
        let before = self.at;
        let count = self.varint()?;
        let max = (self.remaining() / item_bytes_min.max(1)) as u64;
        if count > max {
            self.at = before;
            return Err(self.damaged(format!(
                "expected at most {max} items in what is left, found a count of {count}"
            )));
        }
        Ok(count as usize)
    }

    /// Reads a varint length and as many bytes.
    ///
    /// # Errors
    /// [`Damaged`](crate::ErrorKind::Damaged) where fewer remain, and the errors of [`varint`](Self::varint).
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let before = self.at;
        let len = self.varint()?;
        match usize::try_from(len)
            .ok()
            .and_then(|len| self.rest().get(..len))
        {
            Some(bytes) => {
                self.at += bytes.len();
                Ok(bytes)
            }
            None => {
                let error = self.ends_early(len);
                self.at = before;
                Err(error)
            }
        }
    }

    /// An error at the present position, for a decoder that finds a wrong value: `what` says what was expected and
    /// found.
    #[cold]
    pub fn damaged(&self, what: String) -> Error {
        Error::damaged("decode", self.of, self.offset(), what)
    }

    #[cold]
    fn ends_early(&self, wanted: u64) -> Error {
        self.damaged(format!(
            "expected {wanted} bytes, found {}",
            self.remaining()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use proptest::prelude::*;

    fn encoded(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        out
    }

    #[test]
    fn golden_varints() {
        assert_eq!(encoded(0), [0]);
        assert_eq!(encoded(127), [0x7F]);
        assert_eq!(encoded(128), [0x80, 0x01]);
        assert_eq!(encoded(300), [0xAC, 0x02]);
        assert_eq!(
            encoded(u64::MAX),
            [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01]
        );
    }

    #[test]
    fn longer_forms_and_overflow_are_damage() {
        let refused: [&[u8]; 6] = [
            &[],
            &[0x80],
            &[0x80, 0x00],
            &[0xFF, 0x80, 0x00],
            &[0xFF; 11],
            &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02],
        ];
        for bytes in refused {
            let mut reader = ByteReader::new(bytes, "test", 0);
            assert_eq!(
                reader.varint().unwrap_err().kind,
                ErrorKind::Damaged,
                "{bytes:x?}"
            );
            assert_eq!(reader.position(), 0);
        }
    }

    #[test]
    fn counts_and_lengths_are_checked_against_what_is_left() {
        assert!(
            ByteReader::new(&[5, 1, 2, 3, 4], "test", 0)
                .bytes()
                .is_err()
        );
        assert_eq!(
            ByteReader::new(&[4, 1, 2, 3, 4], "test", 0)
                .bytes()
                .unwrap(),
            [1, 2, 3, 4]
        );
        assert!(
            ByteReader::new(&[3, 1, 2, 3, 4], "test", 0)
                .count(2)
                .is_err()
        );
        assert_eq!(
            ByteReader::new(&[2, 1, 2, 3, 4], "test", 0)
                .count(2)
                .unwrap(),
            2
        );
        assert!(
            ByteReader::new(&encoded(u64::MAX), "test", 0)
                .bytes()
                .is_err()
        );
        assert!(ByteReader::new(&[9], "test", 0).varint_max(8).is_err());
        let error = ByteReader::new(&[1, 2], "leaf 3", 100).u32().unwrap_err();
        assert_eq!(
            error.to_string(),
            "decode leaf 3 at offset 100: expected 4 bytes, found 2"
        );
    }

    proptest! {
        #[test]
        fn varints_come_back(value in any::<u64>(), shift in 0..64u32) {
            let value = value >> shift;
            let bytes = encoded(value);
            let bits = 64 - (value | 1).leading_zeros() as usize;
            prop_assert_eq!(bytes.len(), bits.div_ceil(7));
            let mut reader = ByteReader::new(&bytes, "test", 0);
            prop_assert_eq!(reader.varint().unwrap(), value);
            reader.end().unwrap();
            prop_assert_eq!(unzigzag(zigzag(value as i64)), value as i64);
        }

        #[test]
        fn a_varint_that_decodes_encodes_to_the_same_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            let mut reader = ByteReader::new(&bytes, "test", 0);
            if let Ok(value) = reader.varint() {
                prop_assert_eq!(encoded(value), &bytes[..reader.position()]);
            }
        }

        #[test]
        fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40), calls in proptest::collection::vec(0..9u8, 0..20)) {
            let mut reader = ByteReader::new(&bytes, "test", 0);
            for call in calls {
                let before = reader.position();
                let failed = match call {
                    0 => reader.u8().is_err(),
                    1 => reader.u16().is_err(),
                    2 => reader.u32().is_err(),
                    3 => reader.u64().is_err(),
                    4 => reader.varint().is_err(),
                    5 => reader.bytes().is_err(),
                    6 => reader.count(3).is_err(),
                    7 => reader.varint_max(1000).is_err(),
                    _ => reader.array::<5>().is_err(),
                };
                prop_assert!(!failed || reader.position() == before);
            }
        }
    }
}
