//! Disks that may be missing: helpers for callers to whom a missing disk is an answer and no error.

use crate::set_aside::past_folder;
use crate::{Dir, ErrorKind, Result};

/// The value of `found`; `None` where the error has the kind [`ErrorKind::NotFound`].
///
/// # Errors
/// Errors in `found` of any other kind.
pub fn if_there<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a disk; a missing one is no error. A folder of this name is removed where it is empty, and set aside
/// otherwise. Durable after `sync` of the folder.
///
/// # Errors
/// Errors of [`Dir::remove`] except [`ErrorKind::NotFound`].
pub fn remove_if_there(dir: &dyn Dir, name: &str) -> Result<()> {
    if_there(past_folder(dir, name, || dir.remove(name))).map(drop)
}
