//! Building blocks of all formats of this crate, over [`onefold_io::varint`]: errors name what is being read.

use onefold_io::frame;
use onefold_io::varint::ByteReader;
pub use onefold_io::varint::{put_bytes, put_varint as put, zigzag};
use onefold_store::digest::Digest;

use crate::{Error, Result};

/// Writes a digest: a byte that is 0 or 1, then the digest if there is one.
pub fn put_digest(out: &mut Vec<u8>, digest: Option<Digest>) {
    out.push(digest.is_some().into());
    out.extend(digest.iter().flat_map(|digest| digest.0));
}

/// Reads the values that the `put` functions write; a length is never trusted beyond the bytes that are left.
pub struct WireReader<'a>(ByteReader<'a>, &'static str);

impl<'a> WireReader<'a> {
    /// Reads `bytes`, which errors call `what`.
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self(ByteReader::new(bytes, what, 0), what)
    }

    /// Makes the error for the current offset.
    pub fn fail(&self, why: impl std::fmt::Display) -> Error {
        Error::Malformed(self.0.damaged(why.to_string()))
    }

    /// Reads a format's version, which must be `known`: the bytes have a checksum, so another version was written on
    /// purpose.
    pub fn version(&mut self, known: u8) -> Result<()> {
        let (what, at) = (self.1, self.0.position() as u64);
        let version = self.u8()?.into();
        Ok(frame::check_version(what, at, version, known.into())?)
    }

    pub fn left(&self) -> usize {
        self.0.remaining()
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.0.u8()?)
    }

    pub fn u64_le(&mut self) -> Result<u64> {
        Ok(self.0.u64()?)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.0.array()?)
    }

    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        Ok(self.0.take(n)?)
    }

    pub fn varint(&mut self) -> Result<u64> {
        Ok(self.0.varint()?)
    }

    pub fn signed(&mut self) -> Result<i64> {
        Ok(onefold_io::varint::unzigzag(self.0.varint()?))
    }

    /// Reads a varint that must fit a smaller type.
    pub fn small<T: TryFrom<u64>>(&mut self) -> Result<T> {
        let n = self.varint()?;
        T::try_from(n).map_err(|_| self.fail(format_args!("{n} is too large here")))
    }

    /// Reads the number of things that follow, each at least one byte long.
    pub fn count(&mut self) -> Result<usize> {
        Ok(self.0.count(1)?)
    }

    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        Ok(self.0.bytes()?)
    }

    pub fn text(&mut self) -> Result<&'a str> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|_| self.fail("text is not UTF-8"))
    }

    /// Reads a digest of [`put_digest`].
    pub fn digest(&mut self) -> Result<Option<Digest>> {
        match self.u8()? {
            0 => Ok(None),
            1 => Ok(Some(Digest(self.array()?))),
            other => Err(self.fail(format_args!("{other} digests"))),
        }
    }

    /// Reads a column, and returns a reader over its bytes.
    pub fn column(&mut self, what: &'static str) -> Result<WireReader<'a>> {
        Ok(WireReader::new(what, self.bytes()?))
    }

    pub fn end(&self) -> Result<()> {
        Ok(self.0.end()?)
    }
}
