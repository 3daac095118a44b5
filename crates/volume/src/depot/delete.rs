//! Deleting a depot: all its files go, those that say what it is last, so that a deletion that was cut off can be
//! repeated.

use onefold_io::{Dir, DirEntry, ErrorKind, LockGuard, remove_if_there};

use super::config::{Config, EngineKind};
use super::{
    CONFIG, CONFIG_COPY, Depot, LOCK, OpenDevice, data, lock, log, metadata_device, read_config,
};
use crate::{Error, Result};

/// Folders of a depot.
const FOLDERS: [&str; 2] = ["index", "map"];
/// Its files, besides those that are numbered.
const FILES: [&str; 16] = [
    "ballast",
    "damaged",
    "damaged.new",
    "data",
    "meta",
    "meta.new",
    "manifest",
    "manifest.new",
    "config.new",
    "unsaved",
    super::openings::DATA.file,
    super::openings::METADATA.file,
    "hints",
    "hints.new",
    "log",
    "log.old",
];
const NUMBERED: [&str; 2] = ["zones-", "relocations-"];

impl Depot {
    /// Deletes the depot in `folder`, which nobody may have open. Devices are given back: their heads are
    /// overwritten, and all of a data device is discarded where it can be. Files of others in the folder stay, and are
    /// returned.
    ///
    /// # Errors
    /// [`Error::NoDepot`]; [`Error::Held`], also where another depot has the data device; a device failed.
    pub fn delete(folder: &dyn Dir, devices: &OpenDevice) -> Result<Vec<String>> {
        let config = match read_config(folder) {
            // A depot can be deleted without its configuration.
            Err(Error::Damaged { .. } | Error::Unsupported { .. }) => None,
            other => Some(other?),
        };
        let guard = lock(folder)?;
        if let Some(config) = config.as_ref().filter(|it| !it.metadata_path.is_empty()) {
            metadata_device::give_back(devices, config)?;
        }
        let _claim = match &config {
            Some(config) => take_data(folder, devices, config)?,
            None => None,
        };
        clear(folder)?;
        folder.sync()?;
        for name in [CONFIG_COPY, CONFIG] {
            remove_if_there(folder, name)?;
        }
        folder.sync()?;
        drop(guard);
        remove_if_there(folder, LOCK)?;
        let left = folder.list()?.into_iter().map(|entry| entry.name);
        Ok(left.collect())
    }

    /// Fails where files of others are in the folder: a depot's would lie among them.
    ///
    /// # Errors
    /// [`Error::Exists`]; the folder cannot be listed.
    pub fn confirm_no_others(folder: &dyn Dir) -> Result<()> {
        let entries = folder.list()?;
        let Some(other) = entries.iter().find(|entry| !may_be_there(entry)) else {
            return Ok(());
        };
        Err(Error::Exists {
            place: "the folder".into(),
            what: format!(
                "it holds {} and is no depot: name a folder that is new or empty",
                other.name
            ),
        })
    }

    /// Removes what a creation that failed has left in `folder`. Where a depot is, or files of others are, all stays.
    ///
    /// # Errors
    /// [`Error::Held`]; [`Error::Exists`]; a device failed.
    pub fn clear_failed(folder: &dyn Dir) -> Result<()> {
        Self::confirm_no_others(folder)?;
        let guard = lock(folder)?;
        match read_config(folder) {
            Err(Error::NoDepot { .. }) => clear(folder)?,
            _ => return Ok(()),
        }
        drop(guard);
        Ok(remove_if_there(folder, LOCK)?)
    }
}

/// Removes all but the configuration and the lock.
fn clear(folder: &dyn Dir) -> Result<()> {
    for entry in folder.list()? {
        if FOLDERS.contains(&entry.name.as_str()) && entry.is_dir {
            empty(&*folder.subdir(&entry.name)?)?;
            folder.remove_subdir(&entry.name)?;
        } else if is_ours(&entry) {
            remove_if_there(folder, &entry.name)?;
        }
    }
    Ok(())
}

/// Whether a new depot may find it: a file system's own, a socket that a killed process left, or a depot's.
fn may_be_there(entry: &DirEntry) -> bool {
    let name = entry.name.as_str();
    is_ours(entry)
        || [LOCK, CONFIG, CONFIG_COPY, "control", "lost+found"].contains(&name)
        || (entry.is_dir && FOLDERS.contains(&name))
}

/// Gives the data device back; of a file in the folder, returns what keeps others from it while it is removed.
fn take_data(
    folder: &dyn Dir,
    devices: &OpenDevice,
    config: &Config,
) -> Result<Option<Box<dyn LockGuard>>> {
    match data::open(folder, devices, config) {
        Ok(data) if config.data_path.is_empty() => Ok(data.claim),
        Ok(data) => {
            let bytes = match config.engine {
                EngineKind::Log => log::bytes_used(folder, config, &data.disk)?,
                EngineKind::Dmdedup(_) => config.capacity_bytes,
            };
            data::give_back(&*data.disk, bytes)?;
            Ok(None)
        }
        // The device is another depot's by now, was overwritten, or is gone.
        Err(Error::Unsupported { .. } | Error::Damaged { .. }) => Ok(None),
        Err(Error::Io(error)) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_ours(entry: &DirEntry) -> bool {
    let name = entry.name.as_str();
    FILES.contains(&name) || NUMBERED.iter().any(|begin| name.starts_with(begin))
}

fn empty(folder: &dyn Dir) -> Result<()> {
    for entry in folder.list()? {
        if !entry.is_dir {
            remove_if_there(folder, &entry.name)?;
        }
    }
    Ok(())
}
