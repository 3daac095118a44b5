//! Disks that may be missing: a helper for callers to whom a missing disk is an answer and no error.

use crate::{ErrorKind, Result};

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
