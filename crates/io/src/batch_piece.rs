//! One read of a batch, for each way in which batches are read.

use std::fs::File;

/// Largest number of a batch's reads in flight. The gain levels off at about 32 on NVMe and cloud disks alike; twice
/// that hides the submission.
pub const IN_FLIGHT_MAX: usize = 64;

/// One read of a batch.
pub(crate) struct BatchPiece<'a> {
    pub file: &'a File,
    /// Whether the file is read through the page cache.
    pub cached: bool,
    pub offset: u64,
    pub buf: &'a mut [u8],
    /// The number of bytes that must be read; more may be, up to the whole of `buf`.
    pub need: usize,
}

/// A piece that is still to be read, and its number in the batch.
pub(crate) struct Numbered<'a, 'b> {
    pub number: usize,
    pub piece: &'a mut BatchPiece<'b>,
}
