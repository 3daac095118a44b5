//! Numbers and byte strings inside payloads: fixed-width little-endian, LEB128 varints in their shortest form, and a reader that never
//! believes a length that the bytes at hand do not bear out.

use crate::{Result, frame::damaged};

/// Appends `value` as LEB128: seven bits a byte, low bits first, at most ten bytes.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Maps small magnitudes of either sign to small numbers: 0, −1, 1, −2 … become 0, 1, 2, 3 …
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reads numbers and byte strings off the front of a slice. Every failure names the file and the offset of the field.
#[derive(Clone, Debug)]
pub struct ByteReader<'a> {
    data: &'a [u8],
    at: usize,
    path: &'a str,
    base: u64,
}

impl<'a> ByteReader<'a> {
    /// Reads from `data`, which came from `path` at offset `base` (named in errors only).
    pub fn new(data: &'a [u8], path: &'a str, base: u64) -> Self {
        Self {
            data,
            at: 0,
            path,
            base,
        }
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.data.len() - self.at
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        if len > self.remaining() {
            return Err(self.damaged(format!(
                "{len} more bytes wanted, {} are there",
                self.remaining()
            )));
        }
        let bytes = &self.data[self.at..self.at + len];
        self.at += len;
        Ok(bytes)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self
            .take(N)?
            .try_into()
            .expect("take gives what was asked for"))
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Two bytes, little-endian.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A varint in its shortest form.
    pub fn varint(&mut self) -> Result<u64> {
        let start = self.at;
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 || shift > 0 && byte == 0 {
                self.at = start;
                return Err(
                    self.damaged("a varint over 64 bits or not in its shortest form".into())
                );
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        self.at = start;
        Err(self.damaged("a varint of over ten bytes".into()))
    }

    /// A varint that counts things of at least `bytes_each` bytes which follow: refused where they cannot all be there.
    pub fn count(&mut self, bytes_each: usize) -> Result<usize> {
        let start = self.at;
        let count = self.varint()?;
        let most = self.remaining() / bytes_each.max(1);
        if count > most as u64 {
            self.at = start;
            return Err(self.damaged(format!("a count of {count}, but no more than {most} fit")));
        }
        Ok(count as usize)
    }

    /// A varint length and that many bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.count(1)?;
        self.take(len)
    }

    /// Fails unless everything was read.
    pub fn end(&self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            more => Err(self.damaged(format!("{more} bytes after the end"))),
        }
    }

    /// The error for a field at the current place.
    pub fn damaged(&self, what: String) -> crate::Error {
        damaged(self.path, self.base + self.at as u64, what)
    }
}
