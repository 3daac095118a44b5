//! A raw file or block device as a [`BlockDevice`]: what a transport costs is measured over it.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use onefold_io::{Batching, DirectDisk, Disk, FileDisk, ReadAt, WriteAt};
use onefold_volume::{BlockDevice, Error, ExtentKind, Geometry, Op, Request, Result, Visit};

/// Serves the bytes of a disk as they are. Reads of one call go to the disk together, and so do writes.
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

    /// A device over the file or block device at `path`, past the page cache where the file system allows it. One that is
    /// writable has the file to itself.
    ///
    /// # Errors
    /// [`Error::Held`] where another has it; the device cannot be opened.
    pub fn open(path: &Path, name: &str, is_writable: bool) -> Result<Self> {
        let disk = if is_writable {
            FileDisk::open_alone(path)?
        } else {
            FileDisk::open(path)?
        };
        let disk: Arc<dyn Disk> = match DirectDisk::over(disk.batched(Batching::Ring)) {
            Ok(direct) => Arc::new(direct),
            Err(cached) => Arc::new(cached),
        };
        let device = Self::new(disk, name)?;
        let geometry = Geometry {
            is_writable,
            ..device.geometry
        };
        Ok(Self { geometry, ..device })
    }

    fn check(&self, request: &Request) -> Result<()> {
        let end = request.offset.checked_add(request.bytes);
        if end.is_none_or(|end| end > self.geometry.bytes) {
            return Err(Error::Invalid {
                what: format!(
                    "{} bytes at {} lie beyond the device's {} bytes",
                    request.bytes, request.offset, self.geometry.bytes
                ),
            });
        }
        let is_change = !matches!(request.op, Op::Read | Op::Flush);
        if is_change && !self.geometry.is_writable {
            Err(Error::ReadOnly {
                why: "the file is served read-only".into(),
            })
        } else {
            Ok(())
        }
    }

    /// Carries out requests that may go side by side.
    fn side_by_side(&self, requests: Vec<Request>) {
        let (reads, others): (Vec<_>, Vec<_>) = requests
            .into_iter()
            .partition(|request| request.op == Op::Read);
        // Writes come first: a client that waits for a read waits longest anyhow.
        self.changes(others);
        self.reads(reads);
    }

    fn reads(&self, mut requests: Vec<Request>) {
        let mut reads: Vec<_> = requests
            .iter_mut()
            .map(|request| ReadAt {
                offset: request.offset,
                buf: &mut request.buffer,
            })
            .collect();
        let all = self.disk.read_many_at(&mut reads);
        for mut request in requests {
            // The batch failed: each read is tried alone, to find the one that fails.
            let done = match &all {
                Ok(()) => Ok(()),
                Err(_) => self.disk.read_at(&mut request.buffer, request.offset),
            };
            answer(request, done.map_err(Error::from));
        }
    }

    fn changes(&self, requests: Vec<Request>) {
        let writes: Vec<_> = requests
            .iter()
            .filter(|request| request.op == Op::Write)
            .map(|request| WriteAt {
                offset: request.offset,
                data: &request.buffer,
            })
            .collect();
        let all = self.disk.write_many_at(&writes);
        let mut results = Vec::with_capacity(requests.len());
        for request in &requests {
            let (offset, bytes) = (request.offset, request.bytes);
            results.push(match request.op {
                Op::Write if all.is_ok() => Ok(()),
                Op::Write => self.disk.write_at(&request.buffer, offset),
                Op::Discard => self.disk.discard(offset, bytes),
                Op::WriteZeroes => self.disk.write_zeroes(offset, bytes),
                Op::Read | Op::Flush => Ok(()),
            });
        }
        let wants_sync = |request: &Request| request.fua || request.op == Op::Flush;
        let synced = if requests.iter().any(wants_sync) {
            self.disk.sync().map_err(Error::from)
        } else {
            Ok(())
        };
        for (request, result) in requests.into_iter().zip(results) {
            let result = result.map_err(Error::from);
            let result = if wants_sync(&request) {
                result.and_then(|()| synced.clone())
            } else {
                result
            };
            answer(request, result);
        }
    }
}

fn answer(request: Request, result: Result<()>) {
    let buffer = request.buffer;
    request.completion.done(result.map(|()| buffer));
}

impl BlockDevice for RawDevice {
    fn geometry(&self) -> Geometry {
        self.geometry.clone()
    }

    fn submit(&self, requests: &mut Vec<Request>) {
        let mut together = Vec::with_capacity(requests.len());
        let mut changed: Vec<Range<u64>> = Vec::new();
        for request in requests.drain(..) {
            if let Err(error) = self.check(&request) {
                request.completion.done(Err(error));
                continue;
            }
            if !matches!(request.op, Op::Read | Op::Flush) {
                let range = request.offset..request.offset + request.bytes;
                let meets = |other: &Range<u64>| range.start < other.end && other.start < range.end;
                // The later of two changes of one place wins, so these two must not run side by side.
                if changed.iter().any(meets) {
                    self.side_by_side(std::mem::take(&mut together));
                    changed.clear();
                }
                changed.push(range);
            }
            together.push(request);
        }
        self.side_by_side(together);
    }

    fn extents(&self, range: Range<u64>, visit: Visit<'_>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let stretch = self.disk.stretch_at(at)?;
            let end = stretch.end.min(range.end);
            if end <= at {
                return Err(Error::Invalid {
                    what: format!("the device ends at {at}"),
                });
            }
            let kind = if stretch.is_hole {
                ExtentKind::Hole
            } else {
                ExtentKind::Data
            };
            if !visit(at..end, kind) {
                return Ok(());
            }
            at = end;
        }
        Ok(())
    }
}
