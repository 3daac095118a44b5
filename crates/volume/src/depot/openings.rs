//! How often a depot was opened, in its folder and on a data device that lies elsewhere (FORMAT.md, "Openings"). A copy
//! of the folder, or one from an earlier day, falls behind the device: what it says of the device is no longer true.
//!
//! An opening first writes the folder's file, with the opening that the device has and the next one, then the device,
//! and then the file with the new one alone. Wherever it ends, the device has one of the file's two. Beside its number
//! each opening has a random tag: two copies of a folder may give the same number, where one died before it reached the
//! device.

use onefold_io::frame::{self, FrameKind};
use onefold_io::varint::ByteReader;
use onefold_io::{Dir, Disk, ErrorKind, if_there};

use super::config::HEAD_BYTES;
use crate::{Error, Result};

/// The frame of the openings.
pub const OPENINGS: FrameKind = FrameKind {
    magic: *b"1FVOPENS",
    version: 2,
};
/// Openings without tags.
const UNTAGGED: FrameKind = FrameKind {
    version: 1,
    ..OPENINGS
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

/// One opening of a device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DeviceOpening {
    /// How many there were, with this one.
    pub number: u64,
    /// Random; zeros before the first opening, and of an opening that has none.
    pub tag: [u8; 8],
}

/// Openings that the data device may have had last.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Openings {
    /// The one that it had when the last opening began; once that opening has reached the device, that opening.
    pub before: DeviceOpening,
    /// The opening that was begun last.
    pub last: DeviceOpening,
}

impl Openings {
    /// The framed openings.
    pub fn encode(self) -> Vec<u8> {
        let mut out = Vec::new();
        for opening in [self.before, self.last] {
            out.extend_from_slice(&opening.number.to_le_bytes());
            out.extend_from_slice(&opening.tag);
        }
        frame::encode_frame(OPENINGS, &out)
    }

    /// The openings at the beginning of `bytes`, which were read from `path`.
    ///
    /// # Errors
    /// [`Error::Damaged`]; [`Error::Unsupported`] where another version of the program made them.
    pub fn decode(bytes: &[u8], path: &str) -> Result<Self> {
        let is_tagged = bytes.get(8..10) != Some(&UNTAGGED.version.to_le_bytes());
        let kind = if is_tagged { OPENINGS } else { UNTAGGED };
        let payload = frame::decode_frame(kind, bytes, path, 0)?.payload;
        let mut reader = ByteReader::new(payload, path, frame::HEADER_BYTES as u64);
        let mut opening = || -> Result<DeviceOpening> {
            Ok(DeviceOpening {
                number: u64::from_le_bytes(reader.array()?),
                tag: if is_tagged { reader.array()? } else { [0; 8] },
            })
        };
        let (before, last) = (opening()?, opening()?);
        reader.end()?;
        Ok(Self { before, last })
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
            // Damaged openings say nothing.
            return Ok(());
        };
        if [known.before, known.last].contains(&found.last) {
            return Ok(());
        }
        let times = found.last.number;
        Err(Error::Unsupported {
            what: format!(
                "{path} was opened {times} times, the last time with another copy of the folder; this one knows of {} \
                 openings, and would read and overwrite wrong data. Use the newest copy",
                known.last.number
            ),
        })
    }

    /// Gives the opening that begins its number and this random tag, on both sides. Without room in the folder all
    /// stays as it is.
    ///
    /// # Errors
    /// A device failed.
    pub fn count(self, folder: &dyn Dir, device: &dyn Disk, tag: [u8; 8]) -> Result<()> {
        let before = on_device(device)?.unwrap_or_default().last;
        let number = before.number.wrapping_add(1);
        let last = DeviceOpening { number, tag };
        if !self.has_written(folder, Openings { before, last })? {
            return Ok(());
        }
        let reached = Openings { before: last, last };
        device.write_at(&padded(reached), ON_DEVICE)?;
        device.sync()?;
        // From here on, a device with the opening before is one of an earlier day.
        self.has_written(folder, reached).map(drop)
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

    /// The folder's openings: zeros where the depot was not opened yet, `None` where they are damaged.
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

/// The device's openings: zeros where it was not opened yet, `None` where they are damaged.
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
    use onefold_keys::Entropy;

    use super::*;

    fn device() -> MemDisk {
        let device = MemDisk::new();
        device.set_len(HEAD_BYTES).expect("RAM");
        device
    }

    fn open(folder: &dyn Dir, device: &dyn Disk) -> Result<()> {
        DATA.compare(folder, device, "/dev/sdb")?;
        DATA.count(folder, device, Entropy::system().bytes())
    }

    /// As if the opening had died before it reached the device.
    fn begin(folder: &dyn Dir, device: &dyn Disk) {
        let unreached = self::device();
        let mut head = vec![0; HEAD_BYTES as usize];
        device.read_at(&mut head, 0).expect("RAM");
        unreached.write_at(&head, 0).expect("RAM");
        let before = on_device(device).expect("RAM").expect("whole").last;
        open(folder, &unreached).expect("its own");
        let last = on_device(&unreached).expect("RAM").expect("whole").last;
        DATA.write_in_folder(folder, Openings { before, last })
            .expect("RAM");
    }

    /// Another folder with the same file.
    fn copy(folder: &dyn Dir) -> Arc<dyn Dir> {
        let other: Arc<dyn Dir> = Arc::new(MemDir::new());
        if let Some(openings) = DATA
            .in_folder(folder)
            .expect("RAM")
            .filter(|it| it.last.number > 0)
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

    /// Two copies give the same number, and only one of them has written to the device since.
    #[test]
    fn a_copy_that_died_while_it_opened_is_behind_another_that_did_not() {
        let (folder, device) = (MemDir::new(), device());
        open(&folder, &device).expect("its own");
        let copied = copy(&folder);
        begin(&*copied, &device);
        open(&folder, &device).expect("its own, still");
        let known = DATA.in_folder(&*copied).expect("RAM").expect("whole");
        let found = on_device(&device).expect("RAM").expect("whole");
        assert_eq!(known.last.number, found.last.number);
        let refused = open(&*copied, &device).expect_err("it is behind");
        assert!(refused.to_string().contains("another copy"), "{refused}");
    }

    /// Openings of version 1 have no tags: numbers alone are compared once more.
    #[test]
    fn openings_without_tags_are_read_and_followed() {
        let (folder, device) = (MemDir::new(), device());
        let numbers = [3u64.to_le_bytes(), 3u64.to_le_bytes()].concat();
        let mut old = frame::encode_frame(UNTAGGED, &numbers);
        old.resize(BYTES as usize, 0);
        device.write_at(&old, ON_DEVICE).expect("RAM");
        let file = folder.create(DATA.file).expect("RAM");
        file.write_at(&old, 0).expect("RAM");
        let copied = copy(&folder);
        open(&folder, &device).expect("its own");
        let found = on_device(&device).expect("RAM").expect("whole");
        assert_eq!(found.last.number, 4);
        assert!(open(&*copied, &device).is_err(), "it is behind");
        open(&folder, &device).expect("its own, still");
    }

    #[test]
    fn an_opening_that_ended_anywhere_is_followed_by_another() {
        let (folder, device) = (MemDir::new(), device());
        open(&folder, &device).expect("its own");
        begin(&folder, &device);
        open(&folder, &device).expect("the device was not reached");
        for damaged in [true, false] {
            if damaged {
                device.write_at(&[7; 8], ON_DEVICE + 30).expect("RAM");
            }
            open(&folder, &device).expect("a damaged number says nothing");
        }
    }
}
