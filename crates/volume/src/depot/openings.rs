//! How often a depot was opened, in its folder and on a data device that lies elsewhere (FORMAT.md, "Openings"). A copy
//! of the folder, or one from an earlier day, falls behind the device: what it says of the device is no longer true.
//!
//! An opening first writes the folder's file, with the number that the device has and the next one, then the device,
//! and then the file with the new number alone. Wherever it ends, the device has one of the file's two.

use onefold_io::frame::{self, FrameKind};
use onefold_io::varint::ByteReader;
use onefold_io::{Dir, Disk, ErrorKind, if_there};

use super::config::HEAD_BYTES;
use crate::{Error, Result};

/// The frame of the numbers.
pub const OPENINGS: FrameKind = FrameKind {
    magic: *b"1FVOPENS",
    version: 1,
};
/// Openings of the data device.
pub(super) const DATA: Counter = Counter { file: "openings" };
/// Openings of the metadata device.
pub(super) const METADATA: Counter = Counter {
    file: "openings.metadata",
};
/// Where the device has them: in its head, behind the configuration.
const ON_DEVICE: u64 = HEAD_BYTES - BYTES;
/// Bytes for the frame, zeros behind it.
const BYTES: u64 = 4096;

/// Numbers of openings that the data device may have.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Openings {
    /// The one that it had when the last opening began; once that opening has reached the device, the one that it has.
    pub before: u64,
    /// The one that this opening gave it.
    pub last: u64,
}

impl Openings {
    /// The framed numbers.
    pub fn encode(self) -> Vec<u8> {
        let numbers = [self.before.to_le_bytes(), self.last.to_le_bytes()];
        frame::encode_frame(OPENINGS, &numbers.concat())
    }

    /// The numbers at the beginning of `bytes`, which were read from `path`.
    ///
    /// # Errors
    /// [`Error::Damaged`]; [`Error::Unsupported`] where another version of the program made them.
    pub fn decode(bytes: &[u8], path: &str) -> Result<Self> {
        let payload = frame::decode_frame(OPENINGS, bytes, path, 0)?.payload;
        let mut reader = ByteReader::new(payload, path, frame::HEADER_BYTES as u64);
        let openings = Self {
            before: u64::from_le_bytes(reader.array()?),
            last: u64::from_le_bytes(reader.array()?),
        };
        reader.end()?;
        Ok(openings)
    }
}

/// How often a device was opened, by the folder's file for it.
#[derive(Clone, Copy)]
pub(super) struct Counter {
    /// The file in the folder.
    pub file: &'static str,
}

impl Counter {
    /// Fails where the device was opened with another copy of the folder since.
    ///
    /// # Errors
    /// [`Error::Unsupported`] in that case; a device failed.
    pub fn compare(self, folder: &dyn Dir, device: &dyn Disk, path: &str) -> Result<()> {
        let (Some(known), Some(found)) = (self.in_folder(folder)?, on_device(device)?) else {
            // A damaged number says nothing.
            return Ok(());
        };
        if [known.before, known.last].contains(&found.last) {
            return Ok(());
        }
        Err(Error::Unsupported {
            what: format!(
                "{path} was opened {} times, and this folder knows of {}: the device was written with another copy of the \
                 folder since, and this one would read and overwrite wrong data. Use the newest copy",
                found.last, known.last
            ),
        })
    }

    /// Gives the opening that begins its number, on both sides. Without room in the folder all stays as it is.
    ///
    /// # Errors
    /// A device failed.
    pub fn count(self, folder: &dyn Dir, device: &dyn Disk) -> Result<()> {
        let before = on_device(device)?.unwrap_or_default().last;
        let last = before.wrapping_add(1);
        if !self.has_written(folder, Openings { before, last })? {
            return Ok(());
        }
        let numbers = Openings { before: last, last };
        device.write_at(&padded(numbers), ON_DEVICE)?;
        device.sync()?;
        // From here on, a device with the number before is one of an earlier day.
        self.has_written(folder, numbers).map(drop)
    }

    /// Writes the folder's file; returns `false` where there is no room.
    fn has_written(self, folder: &dyn Dir, openings: Openings) -> Result<bool> {
        match self.write_in_folder(folder, openings) {
            Err(error) if error.kind == ErrorKind::NoSpace => Ok(false),
            written => Ok(written.map(|()| true)?),
        }
    }

    /// In place: a host that is full has no room for a second file.
    fn write_in_folder(self, folder: &dyn Dir, openings: Openings) -> onefold_io::Result<()> {
        let (disk, is_new) = match folder.open_write(self.file) {
            Err(error) if error.kind == ErrorKind::NotFound => (folder.create(self.file)?, true),
            disk => (disk?, false),
        };
        disk.write_at(&padded(openings), 0)?;
        disk.sync()?;
        if is_new { folder.sync() } else { Ok(()) }
    }

    /// The folder's numbers: zeros where the depot was not opened yet, `None` where they are damaged.
    fn in_folder(self, folder: &dyn Dir) -> Result<Option<Openings>> {
        match if_there(folder.open(self.file))? {
            Some(disk) => read(&*disk, 0, self.file),
            None => Ok(Some(Openings::default())),
        }
    }
}

fn padded(openings: Openings) -> Vec<u8> {
    let mut page = openings.encode();
    page.resize(BYTES as usize, 0);
    page
}

/// The device's numbers: zeros where it was not opened yet, `None` where they are damaged.
fn on_device(device: &dyn Disk) -> Result<Option<Openings>> {
    read(device, ON_DEVICE, "the device")
}

fn read(disk: &dyn Disk, offset: u64, path: &str) -> Result<Option<Openings>> {
    let mut page = vec![0; BYTES as usize];
    if disk.len()? < offset + BYTES {
        return Ok(None);
    }
    disk.read_at(&mut page, offset)?;
    if page.iter().all(|byte| *byte == 0) {
        return Ok(Some(Openings::default()));
    }
    match Openings::decode(&page, path) {
        Err(Error::Damaged { .. }) => Ok(None),
        decoded => decoded.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use onefold_io::{MemDir, MemDisk};

    use super::*;

    fn device() -> MemDisk {
        let device = MemDisk::new();
        device.set_len(HEAD_BYTES).expect("RAM");
        device
    }

    fn open(folder: &dyn Dir, device: &dyn Disk) -> Result<()> {
        DATA.compare(folder, device, "/dev/sdb")?;
        DATA.count(folder, device)
    }

    /// Another folder with the same file.
    fn copy(folder: &dyn Dir) -> Arc<dyn Dir> {
        let other: Arc<dyn Dir> = Arc::new(MemDir::new());
        if let Some(openings) = DATA
            .in_folder(folder)
            .expect("RAM")
            .filter(|it| it.last > 0)
        {
            DATA.write_in_folder(&*other, openings).expect("RAM");
        }
        other
    }

    #[test]
    fn a_copy_of_the_folder_falls_behind() {
        for openings_before in [0, 1, 5] {
            let (folder, device) = (MemDir::new(), device());
            for _ in 0..openings_before {
                open(&folder, &device).expect("its own");
            }
            let copied = copy(&folder);
            open(&folder, &device).expect("its own");
            let refused = open(&*copied, &device).expect_err("it is behind");
            assert!(refused.to_string().contains("another copy"), "{refused}");
            open(&folder, &device).expect("its own, still");
        }
    }

    #[test]
    fn an_opening_that_ended_anywhere_is_followed_by_another() {
        let (folder, device) = (MemDir::new(), device());
        open(&folder, &device).expect("its own");
        DATA.write_in_folder(&folder, Openings { before: 1, last: 2 })
            .expect("RAM");
        open(&folder, &device).expect("the device was not reached");
        for damaged in [true, false] {
            if damaged {
                device.write_at(&[7; 8], ON_DEVICE + 30).expect("RAM");
            }
            open(&folder, &device).expect("a damaged number says nothing");
        }
    }
}
