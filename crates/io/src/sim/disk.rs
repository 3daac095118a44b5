//! Disks of a simulated device.

use std::{io, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use super::{
    SharedDevice,
    core::{FileOp, Ino},
    faults::count,
};
use crate::{Disk, Error, ErrorKind, Result, mem::check_end, read_fully::read_fully};

/// A disk of a [`SimDir`](super::SimDir).
pub struct SimDisk {
    device: Arc<Mutex<SharedDevice>>,
    ino: Ino,
    path: String,
    writable: bool,
}

impl SimDisk {
    /// Opens a handle. `device` is the locked content of `shared`.
    pub(super) fn open(
        shared: &Arc<Mutex<SharedDevice>>,
        device: &mut SharedDevice,
        ino: Ino,
        path: String,
        writable: bool,
    ) -> Arc<dyn Disk> {
        *device.open.entry(ino).or_default() += 1;
        Arc::new(Self {
            device: Arc::clone(shared),
            ino,
            path,
            writable,
        })
    }

    fn alive(&self, op: &'static str) -> Result<MutexGuard<'_, SharedDevice>> {
        let device = self.device.lock();
        device.alive(op, &self.path)?;
        Ok(device)
    }

    fn alive_writable(&self, op: &'static str) -> Result<MutexGuard<'_, SharedDevice>> {
        if !self.writable {
            return Err(Error::new(
                op,
                &self.path,
                ErrorKind::Denied,
                "opened for reading only",
            ));
        }
        self.alive(op)
    }

    /// Reads as the system would: possibly fewer bytes than requested, and 0 at the end.
    fn raw_read(
        &self,
        device: &mut SharedDevice,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<usize> {
        let Some(file) = device.core.file(self.ino) else {
            return Ok(0);
        };
        let there = file.live.len().saturating_sub(offset).min(buf.len() as u64) as usize;
        let mut count = there;
        if device.faults.short_reads && there > 0 {
            if device.rng.one_in(4) {
                return Err(Errno::INTR.into());
            }
            count = 1 + device.rng.below(there as u64) as usize;
        }
        file.live.read(&mut buf[..count], offset);
        Ok(count)
    }

    /// Writes a part of a failed write, from its start.
    fn write_in_part(&self, device: &mut SharedDevice, data: &[u8], offset: u64) {
        let part = device.rng.below(data.len() as u64 + 1) as usize;
        if part > 0 {
            device.core.change_file(
                self.ino,
                FileOp::Write {
                    offset,
                    data: data[..part].into(),
                },
            );
        }
    }

    fn grows_by(&self, device: &SharedDevice, end: u64) -> u64 {
        end.saturating_sub(device.core.file(self.ino).map_or(0, |file| file.live.len()))
    }
}

impl Disk for SimDisk {
    fn len(&self) -> Result<u64> {
        Ok(self
            .alive("stat")?
            .core
            .file(self.ino)
            .map_or(0, |file| file.live.len()))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut device = self.alive("read")?;
        let number = count(&mut device.counts.reads);
        let end = offset.saturating_add(buf.len() as u64);
        if device.faults.read_error.hits(number) || device.is_bad(self.ino, offset..end) {
            return Err(Error::from_io("read", &self.path, Errno::IO).at(offset));
        }
        let read = read_fully(buf, offset, |part, at| self.raw_read(&mut device, part, at));
        match read {
            Ok(true) => {}
            Ok(false) => {
                let len = device.core.file(self.ino).map_or(0, |file| file.live.len());
                return Err(Error::short(&self.path, offset, buf.len(), len));
            }
            Err(e) => return Err(Error::from_io("read", &self.path, e).at(offset)),
        }
        if device.faults.flip_read.hits(number) && !buf.is_empty() {
            let at = device.rng.below(buf.len() as u64) as usize;
            buf[at] ^= 1 << device.rng.below(8);
        }
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut device = self.alive_writable("write")?;
        check_end("write", &self.path, offset, data.len() as u64)?;
        let number = count(&mut device.counts.writes);
        if device.faults.write_error.hits(number) {
            self.write_in_part(&mut device, data, offset);
            return Err(Error::from_io("write", &self.path, Errno::IO).at(offset));
        }
        let more = self.grows_by(&device, offset + data.len() as u64);
        if let Err(e) = device.space("write", &self.path, more) {
            if device.faults.capacity_bytes.is_none() {
                self.write_in_part(&mut device, data, offset);
            }
            return Err(e.at(offset));
        }
        let op = FileOp::Write {
            offset,
            data: data.into(),
        };
        device
            .change("write", &self.path, |core| core.change_file(self.ino, op))
            .map_err(|e| e.at(offset))
    }

    fn sync(&self) -> Result<()> {
        let mut device = self.alive("sync")?;
        let number = count(&mut device.counts.syncs);
        device.point("sync", &self.path)?;
        if device.faults.sync_error.hits(number) {
            device.core.forget_file(self.ino);
            return Err(Error::from_io("sync", &self.path, Errno::IO));
        }
        device.core.sync_file(self.ino);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut device = self.alive_writable("set length of")?;
        check_end("set length of", &self.path, len, 0)?;
        let more = self.grows_by(&device, len);
        device.space("set length of", &self.path, more)?;
        device.change("set length of", &self.path, |core| {
            core.change_file(self.ino, FileOp::SetLen(len))
        })
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let mut device = self.alive_writable("discard")?;
        device.change("discard", &self.path, |core| {
            core.change_file(self.ino, FileOp::Discard { offset, len })
        })
    }
}

impl Drop for SimDisk {
    fn drop(&mut self) {
        let mut device = self.device.lock();
        if let Some(handles) = device.open.get_mut(&self.ino) {
            *handles -= 1;
            if *handles == 0 {
                device.open.remove(&self.ino);
            }
        }
    }
}
