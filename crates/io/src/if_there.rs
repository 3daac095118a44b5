//! What may be missing: for who can do without, that something is not there is an answer and no error.

use crate::set_aside::past_folder;
use crate::{Dir, ErrorKind, Result};

/// What was found; `None` where an error of kind [`ErrorKind::NotFound`] says that it is not there.
///
/// # Errors
/// `found`'s, if of any other kind.
pub fn if_there<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a disk; one that is not there is no error. A folder in its place goes where it is empty, and is set aside
/// otherwise. Durable after `sync` of the folder.
///
/// # Errors
/// Those of [`Dir::remove`] but [`ErrorKind::NotFound`].
pub fn remove_if_there(dir: &dyn Dir, name: &str) -> Result<()> {
    if_there(past_folder(dir, name, || dir.remove(name))).map(drop)
}
