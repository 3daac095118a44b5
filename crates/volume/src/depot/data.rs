//! The data device of a depot: a file in its folder or a device given by path, with a copy of the configuration at its
//! beginning, so that the device of another depot is not taken for this one's.

use std::path::Path;
use std::sync::Arc;

use onefold_io::{Dir, DirectDisk, Disk, ErrorKind, FileDisk, LockGuard, LockKind};

use super::config::{Config, HEAD_BYTES};
use super::{missing_is_damage, openings};
use crate::{Error, Result};

/// The data file's name in the folder.
const FILE: &str = "data";
/// Bytes at either end of a device that are zeros where it is blank. Superblocks, partition tables and labels of RAID
/// begin or end within them.
const EDGE_BYTES: u64 = 1 << 20;

/// No configuration with changed key slots is longer.
pub(super) const HEAD_COPY_BYTES: usize = 28 << 10;
/// Where the head has the second copy of a configuration that was changed.
const SECOND_COPY: u64 = HEAD_BYTES / 2;

/// How a device is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// For reading and writing, and for this opener alone for as long as the disk is there.
    Alone,
    /// For reading, beside its owner.
    Beside,
}

/// Opens a device or file by its path: what a simulation replaces.
pub type OpenDevice = Arc<dyn Fn(&str, Access) -> onefold_io::Result<Arc<dyn Disk>> + Send + Sync>;

/// Devices of the system, read and written past the page cache where that can be.
pub fn system_devices() -> OpenDevice {
    Arc::new(|path, access| {
        let disk = match access {
            Access::Alone => FileDisk::open_alone(Path::new(path)),
            Access::Beside => FileDisk::open(Path::new(path)),
        }?;
        Ok(match DirectDisk::over(disk) {
            Ok(direct) => Arc::new(direct) as Arc<dyn Disk>,
            Err(cached) => Arc::new(cached),
        })
    })
}

/// The data device of a depot that is being created.
pub(super) struct NewData {
    pub disk: Arc<dyn Disk>,
    /// Bytes for chunks; the length of a device where no capacity was wanted.
    pub capacity_bytes: u64,
    _claim: Option<Box<dyn LockGuard>>,
}

/// Bytes at the beginning of a device as they were before a depot was created on it.
pub(super) struct BytesBefore {
    disk: Arc<dyn Disk>,
    bytes: Vec<u8>,
}

impl BytesBefore {
    /// The first `len` bytes of `disk`, as many as it has.
    ///
    /// # Errors
    /// The device failed.
    pub fn read(disk: &Arc<dyn Disk>, len: u64) -> Result<Self> {
        let mut bytes = vec![0; disk.len()?.min(len) as usize];
        disk.read_at(&mut bytes, 0)?;
        Ok(Self {
            disk: Arc::clone(disk),
            bytes,
        })
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Writes them again, as far as the device takes them: the creation failed already.
    pub fn put_back(&self) {
        let _ = self.disk.write_at(&self.bytes, 0);
        let _ = self.disk.sync();
    }
}

/// Opens a device by its path, or makes the file in the folder; `capacity` is what was asked for. Nothing is written to
/// a device.
pub(super) fn create(
    folder: &dyn Dir,
    open: &OpenDevice,
    path: &str,
    capacity: Option<u64>,
    overwrite: bool,
) -> Result<NewData> {
    if path.is_empty() {
        return create_file(folder, capacity.unwrap_or(0));
    }
    let disk = open(path, Access::Alone)?;
    let room = disk.len()?.saturating_sub(HEAD_BYTES);
    let capacity_bytes = capacity.unwrap_or(room);
    if capacity_bytes > room {
        return Err(Error::Invalid {
            what: format!("{path} has room for {room} bytes of chunks, not for {capacity_bytes}"),
        });
    }
    if !overwrite {
        confirm_blank(&*disk, path)?;
    }
    Ok(NewData {
        disk,
        capacity_bytes,
        _claim: None,
    })
}

fn create_file(folder: &dyn Dir, capacity_bytes: u64) -> Result<NewData> {
    let disk = match folder.create(FILE) {
        // An interrupted creation left the file: there is no configuration beside it.
        Err(error) if error.kind == ErrorKind::Exists => folder.open_write(FILE),
        other => other,
    }?;
    let claim = claim_file(folder)?;
    disk.set_len(0)?;
    let bytes = HEAD_BYTES.saturating_add(capacity_bytes);
    disk.set_len(bytes).map_err(|error| match error.kind {
        ErrorKind::NoSpace => Error::Invalid {
            what: format!(
                "the folder's file system can have no file of {} MiB: a smaller capacity or volume is needed",
                bytes >> 20
            ),
        },
        _ => error.into(),
    })?;
    Ok(NewData {
        disk,
        capacity_bytes,
        _claim: Some(claim),
    })
}

/// Keeps others from taking the file in the folder for a device of theirs. The file is there.
fn claim_file(folder: &dyn Dir) -> Result<Box<dyn LockGuard>> {
    let held = folder.lock(FILE, LockKind::Exclusive)?;
    held.ok_or_else(|| Error::Held {
        place: "the depot's file data".into(),
    })
}

/// # Errors
/// [`Error::Exists`] where either end holds something; the device failed.
pub(super) fn confirm_blank(disk: &dyn Disk, path: &str) -> Result<()> {
    if is_blank(disk)? {
        Ok(())
    } else {
        Err(Error::Exists {
        place: path.into(),
        what: "its first and last MiB are not all zeros, so it may hold something (`--overwrite` takes it all the same)"
            .into(),
    })
    }
}

fn is_blank(disk: &dyn Disk) -> Result<bool> {
    let len = disk.len()?;
    for offset in [0, len.saturating_sub(EDGE_BYTES)] {
        let mut edge = vec![0; EDGE_BYTES.min(len) as usize];
        disk.read_at(&mut edge, offset)?;
        if edge.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Gives a device back, of which a depot had `bytes` behind the head: they are discarded where that can be, and either
/// end is blank again.
pub(super) fn give_back(disk: &dyn Disk, bytes: u64) -> Result<()> {
    // A device that cannot discard keeps bytes that nobody can find any more.
    let _ = disk.discard(HEAD_BYTES, bytes);
    blank(disk, HEAD_BYTES.saturating_add(bytes))
}

/// Makes the first and the last MiB of a device zeros, as far as they lie before `end`.
pub(super) fn blank(disk: &dyn Disk, end: u64) -> Result<()> {
    let len = disk.len()?;
    // The head goes last: a deletion that was cut off can be repeated.
    for begin in [len.saturating_sub(EDGE_BYTES), 0] {
        let until = end.min(begin + EDGE_BYTES);
        if begin < until {
            disk.write_at(&vec![0; (until - begin) as usize], begin)?;
            disk.sync()?;
        }
    }
    Ok(())
}

/// Writes the copy at the device's beginning; durable when it returns.
pub(super) fn write_head(disk: &dyn Disk, config: &Config) -> Result<()> {
    let mut head = vec![0; HEAD_BYTES as usize];
    let encoded = config.encode();
    head[..encoded.len()].copy_from_slice(&encoded);
    disk.write_at(&head, 0)?;
    Ok(disk.sync()?)
}

/// Writes a changed configuration over the copy at the device's beginning, and a second copy behind it first: whenever
/// the power fails, one of the two is whole. Both are durable when it returns.
pub(super) fn rewrite_head(disk: &dyn Disk, config: &Config) -> Result<()> {
    let mut copy = config.encode();
    copy.resize(HEAD_COPY_BYTES, 0);
    for offset in [SECOND_COPY, 0] {
        disk.write_at(&copy, offset)?;
        disk.sync()?;
    }
    Ok(())
}

/// The configuration at the device's beginning.
fn read_head(disk: &dyn Disk, path: &str) -> Result<Config> {
    let mut head = vec![0; HEAD_BYTES as usize];
    disk.read_at(&mut head, 0)?;
    match Config::decode(&head, path) {
        Err(error @ Error::Damaged { .. }) => {
            let second = Config::decode(&head[SECOND_COPY as usize..], path);
            second.map_err(|_| error)
        }
        first => first,
    }
}

/// The data device of an open depot.
pub(super) struct OwnData {
    pub disk: Arc<dyn Disk>,
    /// Held on the file in the folder for as long as the depot is open; a device given by path is held by its disk.
    pub claim: Option<Box<dyn LockGuard>>,
}

/// Opens the data device of a depot, for its owner alone.
///
/// # Errors
/// [`Error::Held`] where another has it; [`Error::Unsupported`] where it was written with another copy of the folder
/// since; those of [`look`].
pub(super) fn open(folder: &dyn Dir, open: &OpenDevice, config: &Config) -> Result<OwnData> {
    let (disk, claim) = match config.data_path.as_str() {
        "" => {
            let disk = folder.open_write(FILE).map_err(Error::from);
            (disk.map_err(missing_is_damage)?, Some(claim_file(folder)?))
        }
        path => (open(path, Access::Alone)?, None),
    };
    check_owner(&*disk, config)?;
    if claim.is_none() {
        openings::DATA.compare(folder, &*disk, &config.data_path)?;
    }
    Ok(OwnData { disk, claim })
}

/// Opens the data device of a depot for reading, whoever has the depot open.
///
/// # Errors
/// [`Error::Unsupported`] where it belongs to another depot or is shorter than it was; [`Error::Damaged`] where its
/// beginning is no head copy.
pub(super) fn look(folder: &dyn Dir, open: &OpenDevice, config: &Config) -> Result<Arc<dyn Disk>> {
    let disk = match config.data_path.as_str() {
        "" => folder.open(FILE)?,
        path => open(path, Access::Beside)?,
    };
    check_owner(&*disk, config)?;
    Ok(disk)
}

fn check_owner(disk: &dyn Disk, config: &Config) -> Result<()> {
    let path = match config.data_path.as_str() {
        "" => FILE,
        path => path,
    };
    let expected = HEAD_BYTES + config.capacity_bytes;
    let found = disk.len()?;
    if found < expected {
        return Err(Error::Unsupported {
            what: format!("{path} has {found} bytes, and the depot was created with {expected}"),
        });
    }
    let owner = read_head(disk, path)?;
    if owner.depot == config.depot {
        Ok(())
    } else {
        Err(Error::Unsupported {
            what: format!(
                "{path} belongs to depot {}, not to {}",
                crate::dump::hex(&owner.depot),
                crate::dump::hex(&config.depot)
            ),
        })
    }
}

/// Makes the data file of an open depot long enough for so many bytes of chunks; a device must be.
///
/// # Errors
/// [`Error::Invalid`]: the device is shorter. A device failed.
pub(super) fn grow(
    folder: &dyn Dir,
    devices: &OpenDevice,
    config: &Config,
    capacity: u64,
) -> Result<()> {
    let wanted = HEAD_BYTES + capacity;
    match look(folder, devices, config)?.len()? {
        found if found >= wanted => Ok(()),
        _ if config.data_path.is_empty() => {
            let disk = folder.open_write(FILE)?;
            disk.set_len(wanted)?;
            Ok(disk.sync()?)
        }
        found => Err(Error::Invalid {
            what: format!(
                "{} has room for {} bytes of chunks, not for {capacity}: make it larger first",
                config.data_path,
                found.saturating_sub(HEAD_BYTES)
            ),
        }),
    }
}
