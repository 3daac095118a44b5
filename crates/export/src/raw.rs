//! A raw file or block device as a [`BlockDevice`]: what a transport costs is measured over it.

use std::ops::Range;
use std::sync::Arc;

use onefold_io::Disk;
use onefold_volume::{
    BlockDevice, Buffer, Error, ExtentKind, Geometry, Op, Request, Result, Visit,
};

/// Serves the bytes of a disk as they are, one request at a time.
pub struct RawDevice {
    disk: Arc<dyn Disk>,
    geometry: Geometry,
}

impl RawDevice {
    /// A device over `disk`, of its length.
    ///
    /// # Errors
    /// The disk does not tell its length.
    pub fn new(disk: Arc<dyn Disk>, name: &str) -> Result<Self> {
        let geometry = Geometry {
            bytes: disk.len()?,
            chunk_bytes: 4096,
            io_bytes_max: 32 << 20,
            is_writable: true,
            name: name.to_string(),
        };
        Ok(Self { disk, geometry })
    }

    fn carry_out(&self, request: &mut Request) -> Result<()> {
        let end = request.offset.checked_add(request.bytes);
        if end.is_none_or(|end| end > self.geometry.bytes) {
            return Err(Error::Invalid {
                what: format!(
                    "{} bytes at {} lie beyond the device's {} bytes",
                    request.bytes, request.offset, self.geometry.bytes
                ),
            });
        }
        match request.op {
            Op::Read => self.disk.read_at(&mut request.buffer, request.offset)?,
            Op::Write => self.disk.write_at(&request.buffer, request.offset)?,
            Op::Discard => self.disk.discard(request.offset, request.bytes)?,
            Op::WriteZeroes => self.write_zeroes(request.offset..request.offset + request.bytes)?,
            Op::Flush => self.disk.sync()?,
        }
        if request.fua && request.op != Op::Flush {
            self.disk.sync()?;
        }
        Ok(())
    }

    fn write_zeroes(&self, range: Range<u64>) -> Result<()> {
        let zeros = Buffer::zeroed(1 << 20);
        let mut at = range.start;
        while at < range.end {
            let count = (range.end - at).min(zeros.len() as u64);
            self.disk.write_at(&zeros[..count as usize], at)?;
            at += count;
        }
        Ok(())
    }
}

impl BlockDevice for RawDevice {
    fn geometry(&self) -> Geometry {
        self.geometry.clone()
    }

    fn submit(&self, requests: &mut Vec<Request>) {
        for mut request in requests.drain(..) {
            let result = self.carry_out(&mut request);
            let buffer = request.buffer;
            request.completion.done(result.map(|()| buffer));
        }
    }

    fn extents(&self, range: Range<u64>, visit: Visit<'_>) -> Result<()> {
        visit(range, ExtentKind::Data);
        Ok(())
    }
}
