//! The part of a data device that holds zones: all behind the copy of the configuration at its beginning.

use std::sync::Arc;

use onefold_io::{Disk, ReadAt, Result};

/// A stretch of a disk, as a disk of its own. Its length is that of the opening; what lies behind can be used all the
/// same.
pub struct DiskPart {
    disk: Arc<dyn Disk>,
    /// First byte of the stretch, a multiple of the page.
    start: u64,
    bytes: u64,
}

impl DiskPart {
    /// `bytes` of `disk` from `start` on.
    pub fn new(disk: Arc<dyn Disk>, start: u64, bytes: u64) -> Self {
        Self { disk, start, bytes }
    }
}

impl Disk for DiskPart {
    fn len(&self) -> Result<u64> {
        Ok(self.bytes)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.disk.read_at(buf, self.start + offset)
    }

    fn read_many_at(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        let mut shifted: Vec<ReadAt<'_>> = (reads.iter_mut())
            .map(|read| ReadAt {
                offset: self.start + read.offset,
                buf: &mut *read.buf,
            })
            .collect();
        self.disk.read_many_at(&mut shifted)
    }

    fn forget_cached(&self) {
        self.disk.forget_cached();
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.disk.write_at(data, self.start + offset)
    }

    fn sync(&self) -> Result<()> {
        self.disk.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.disk.set_len(self.start + len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.disk.allocate(self.start + offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.disk.discard(self.start + offset, len)
    }
}
