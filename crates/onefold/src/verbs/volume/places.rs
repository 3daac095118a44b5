//! Private folders of the daemons of attached devices, which are gone after a reboot, as the devices are.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Returns the folder of all places: `/run/onefold` for root, for others a folder within their own runtime folder.
fn all() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match own {
        Some(own) if !rustix::process::geteuid().is_root() => own.join("onefold"),
        _ => PathBuf::from("/run/onefold"),
    }
}

/// Returns the places that there are.
pub fn there() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(all()).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

/// Returns the place of a file or folder, by its path without links.
///
/// # Errors
/// The file or folder is not there.
pub fn of(kind: &str, path: &Path) -> Result<PathBuf> {
    let path = path
        .canonicalize()
        .map_err(|error| Error::io(format!("open {}", path.display()), error))?;
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    Ok(all().join(format!("{kind}-{:016x}", hasher.finish())))
}
