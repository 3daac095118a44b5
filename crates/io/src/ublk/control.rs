//! Commands at `/dev/ublk-control`. Each is carried out by the kernel before its function returns.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, cqueue, opcode, squeue, types::Fd};

use super::wire::{
    Command, F_UPDATE_SIZE, F_USER_COPY, INFO_BYTES, SECTOR_BYTES, UblkInfo, control_command,
    parameters,
};
use crate::Interruptions;

/// The file by which devices are made.
pub const CONTROL: &str = "/dev/ublk-control";

/// The driver's control file, with a ring for its commands.
pub struct Control {
    file: File,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

/// A device that is to be made.
pub struct NewDevice {
    /// Size in bytes; a multiple of 512.
    pub bytes: u64,
    /// The unit in which the device works best, in bytes.
    pub block_bytes: u32,
    /// Longest request with data, in bytes.
    pub io_bytes_max: u32,
    /// Whether writes are taken.
    pub is_writable: bool,
    /// Number of queues wanted: one a core at most.
    pub queues: u16,
    /// Requests that a queue holds at once.
    pub depth: u16,
    /// A mark to know the device again by.
    pub mark: u64,
}

impl Control {
    /// Opens the control file.
    ///
    /// # Errors
    /// The driver is not there, or this process may not use it, or io_uring.
    pub fn open() -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(CONTROL)?;
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder().build(4)?;
        Ok(Self { file, ring })
    }

    /// Makes a device, which has no block device yet: `/dev/ublkcN` alone.
    ///
    /// # Errors
    /// The driver refuses, or is older than Linux 6.5.
    pub fn add(&mut self, new: &NewDevice) -> io::Result<UblkInfo> {
        let wanted = UblkInfo {
            id: u32::MAX,
            queues: new.queues,
            depth: new.depth,
            io_bytes_max: new.io_bytes_max,
            is_live: false,
            mark: new.mark,
            flags: F_USER_COPY | F_UPDATE_SIZE,
        };
        let mut info = wanted.encode();
        self.command(Command::Add, u32::MAX, 0, &mut info)?;
        let added = UblkInfo::decode(&info);
        let set = match added.flags & F_USER_COPY {
            0 => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's ublk is older than Linux 6.5",
            )),
            _ => self.set_parameters(added.id, new),
        };
        match set {
            Ok(()) => Ok(added),
            Err(error) => {
                let _ = self.delete(added.id);
                Err(error)
            }
        }
    }

    fn set_parameters(&mut self, id: u32, new: &NewDevice) -> io::Result<()> {
        let mut all = parameters(
            new.bytes,
            new.block_bytes,
            new.io_bytes_max,
            new.is_writable,
        );
        self.command(Command::SetParameters, id, 0, &mut all)
    }

    /// Makes the block device `/dev/ublkbN`. Waits until each queue of the device has a thread that takes requests.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn start(&mut self, id: u32) -> io::Result<()> {
        let process = u64::from(std::process::id());
        self.command(Command::Start, id, process, &mut [])
    }

    /// Removes the block device, once its requests are answered, and ends its queues.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn stop(&mut self, id: u32) -> io::Result<()> {
        self.command(Command::Stop, id, 0, &mut [])
    }

    /// Frees the device's number, as soon as nobody has its block device open any more.
    ///
    /// # Errors
    /// There is no such device.
    pub fn delete(&mut self, id: u32) -> io::Result<()> {
        let later = self.command(Command::DeleteLater, id, 0, &mut []);
        // The command came with Linux 6.9; the older one waits.
        later.or_else(|_| self.command(Command::Delete, id, 0, &mut []))
    }

    /// The device with this number.
    ///
    /// # Errors
    /// There is none.
    pub fn info(&mut self, id: u32) -> io::Result<UblkInfo> {
        let mut info = [0; INFO_BYTES];
        self.command(Command::GetInfo, id, 0, &mut info)?;
        Ok(UblkInfo::decode(&info))
    }

    /// Changes the size of a device that is there.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] before Linux 6.16.
    pub fn resize(&mut self, id: u32, bytes: u64) -> io::Result<()> {
        let mut features = [0; 8];
        self.command(Command::GetFeatures, u32::MAX, 0, &mut features)?;
        if u64::from_ne_bytes(features) & F_UPDATE_SIZE == 0 {
            let what = "this kernel's ublk cannot change a size (Linux 6.16 can)";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        self.command(Command::UpdateSize, id, bytes / SECTOR_BYTES, &mut [])
    }

    fn command(&mut self, what: Command, id: u32, data: u64, memory: &mut [u8]) -> io::Result<()> {
        let (start, bytes) = match memory.len() {
            0 => (0, 0),
            len => (memory.as_mut_ptr().expose_provenance() as u64, len as u16),
        };
        let command = control_command(id, start, bytes, data);
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), what.number())
            .cmd(command)
            .build();
        // SAFETY: `memory` is borrowed exclusively, and the file open, until `wait` has seen the command's completion:
        // it does not return before.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        match self.wait() {
            result if result < 0 => Err(io::Error::from_raw_os_error(-result)),
            _ => Ok(()),
        }
    }

    /// The result of the one command that is under way.
    fn wait(&mut self) -> i32 {
        let mut interruptions = Interruptions::default();
        loop {
            let entered = self.ring.submit_and_wait(1);
            if let Some(done) = self.ring.completion().next() {
                return done.result();
            }
            if let Err(error) = entered
                && (error.kind() != io::ErrorKind::Interrupted || !interruptions.allow())
            {
                // The kernel may have the memory: there is no way but to look again.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }
}
