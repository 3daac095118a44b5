//! The data device of a depot: a file in its folder or a device given by path, with a copy of the configuration at its
//! beginning, so that the device of another depot is not taken for this one's.

use std::path::Path;
use std::sync::Arc;

use onefold_io::{Dir, DirectDisk, Disk, ErrorKind, FileDisk};

use super::config::{Config, HEAD_BYTES};
use crate::{Error, Result};

/// The data file's name in the folder.
const FILE: &str = "data";

/// Opens a device or file by its path: what a simulation replaces.
pub type OpenDevice = Arc<dyn Fn(&str) -> onefold_io::Result<Arc<dyn Disk>> + Send + Sync>;

/// Devices of the system, read and written past the page cache where that can be.
pub fn system_devices() -> OpenDevice {
    Arc::new(|path| {
        let disk = FileDisk::open_write(Path::new(path))?;
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
}

/// Looks at a device by its path, or makes the file in the folder; `capacity` is what was asked for.
pub(super) fn create(
    folder: &dyn Dir,
    open: &OpenDevice,
    path: &str,
    capacity: Option<u64>,
    overwrite: bool,
) -> Result<NewData> {
    if path.is_empty() {
        let disk = match folder.create(FILE) {
            // What a creation that was interrupted left: there is no configuration beside it.
            Err(error) if error.kind == ErrorKind::Exists => folder.open_write(FILE),
            other => other,
        }?;
        let capacity_bytes = capacity.unwrap_or(0);
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
        return Ok(NewData {
            disk,
            capacity_bytes,
        });
    }
    let disk = open(path)?;
    let room = disk.len()?.saturating_sub(HEAD_BYTES);
    let capacity_bytes = capacity.unwrap_or(room);
    if capacity_bytes > room {
        return Err(Error::Invalid {
            what: format!("{path} has room for {room} bytes of chunks, not for {capacity_bytes}"),
        });
    }
    if !overwrite && !is_blank(&*disk)? {
        return Err(Error::Exists {
            place: path.into(),
            what: "it does not begin with zeros, so it may hold something (`--overwrite` takes it all the same)".into(),
        });
    }
    Ok(NewData {
        disk,
        capacity_bytes,
    })
}

fn is_blank(disk: &dyn Disk) -> Result<bool> {
    let mut head = vec![0; HEAD_BYTES.min(disk.len()?) as usize];
    disk.read_at(&mut head, 0)?;
    Ok(head.iter().all(|byte| *byte == 0))
}

/// Writes the copy at the device's beginning; durable when it returns.
pub(super) fn write_head(disk: &dyn Disk, config: &Config) -> Result<()> {
    let mut head = vec![0; HEAD_BYTES as usize];
    let encoded = config.encode();
    head[..encoded.len()].copy_from_slice(&encoded);
    disk.write_at(&head, 0)?;
    Ok(disk.sync()?)
}

/// Opens the data device of a depot.
///
/// # Errors
/// [`Error::Unsupported`] where it belongs to another depot or is shorter than it was; [`Error::Damaged`] where its
/// beginning is no head copy.
pub(super) fn open(folder: &dyn Dir, open: &OpenDevice, config: &Config) -> Result<Arc<dyn Disk>> {
    let path = match config.data_path.as_str() {
        "" => FILE,
        path => path,
    };
    let disk = match config.data_path.is_empty() {
        true => folder.open_write(FILE)?,
        false => open(path)?,
    };
    let expected = HEAD_BYTES + config.capacity_bytes;
    let found = disk.len()?;
    if found < expected {
        return Err(Error::Unsupported {
            what: format!("{path} has {found} bytes, and the depot was created with {expected}"),
        });
    }
    let mut head = vec![0; HEAD_BYTES as usize];
    disk.read_at(&mut head, 0)?;
    let owner = Config::decode(&head, path)?;
    if owner.depot != config.depot {
        return Err(Error::Unsupported {
            what: format!(
                "{path} belongs to depot {}, not to {}",
                crate::dump::hex(&owner.depot),
                crate::dump::hex(&config.depot)
            ),
        });
    }
    Ok(disk)
}

/// Makes a data file long enough for so many bytes of chunks; a device must be.
///
/// # Errors
/// [`Error::Invalid`]: the device is shorter. A device failed.
pub(super) fn grow(
    folder: &dyn Dir,
    devices: &OpenDevice,
    config: &Config,
    capacity: u64,
) -> Result<()> {
    let disk = open(folder, devices, config)?;
    let wanted = HEAD_BYTES + capacity;
    match disk.len()? {
        found if found >= wanted => Ok(()),
        _ if config.data_path.is_empty() => {
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
