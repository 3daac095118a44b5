//! Checks of neighbouring pages as they are stored: a CRC-32C of each, or the tag of its seal.

use std::ops::Range;

/// Bytes of a CRC-32C.
pub const CRC_BYTES: u32 = 4;

/// Checks of one zone, group or chunk, one behind the other, all of the same width.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checks {
    bytes: Vec<u8>,
    width: usize,
}

impl Checks {
    /// No checks, of so many bytes each.
    pub fn none(width: u32) -> Self {
        Self::stored(width, Vec::new())
    }

    /// Zeros for so many pages.
    pub fn zeros(width: u32, pages: usize) -> Self {
        Self::stored(width, vec![0; pages * width as usize])
    }

    /// The checks that `bytes` are: as many as are whole.
    pub fn stored(width: u32, bytes: Vec<u8>) -> Self {
        let width = width as usize;
        Self { bytes, width }
    }

    /// The checks as they are stored.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.width
    }

    /// The check of a page; `None` behind the end.
    pub fn get(&self, page: usize) -> Option<&[u8]> {
        let start = page.checked_mul(self.width)?;
        self.bytes.get(start..start + self.width)
    }

    /// The checks of some pages; `None` where there are fewer.
    pub fn of(&self, pages: Range<usize>) -> Option<Self> {
        let bytes = self
            .bytes
            .get(pages.start * self.width..pages.end * self.width)?;
        Some(Self {
            bytes: bytes.to_vec(),
            width: self.width,
        })
    }

    /// Adds the check of the next page.
    pub fn push(&mut self, check: &[u8]) {
        debug_assert_eq!(check.len(), self.width);
        self.bytes.extend_from_slice(check);
    }

    /// Puts checks in place of those from page `first` on.
    pub fn put(&mut self, first: usize, checks: &Self) {
        let start = first * self.width;
        self.bytes[start..start + checks.bytes.len()].copy_from_slice(&checks.bytes);
    }

    /// Adds checks from page `first` on, which lies at the end or behind it; zeros stand between.
    pub fn extend_at(&mut self, first: usize, checks: &Self) {
        self.resize(first);
        self.bytes.extend_from_slice(&checks.bytes);
    }

    /// As many as there are pages: zeros are added, or the last ones go.
    pub fn resize(&mut self, pages: usize) {
        self.bytes.resize(pages * self.width, 0);
    }

    /// Heap bytes.
    pub fn ram_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
