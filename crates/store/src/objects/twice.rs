//! Reading again what was read as damaged.

use super::ObjectStore;
use crate::Result;

/// What was `read` of the object `name`, unless that is damaged: then what `again` reads of it, for which the device is
/// asked once more. A bit may have flipped on the way from there, in a cable or in RAM, and nothing is told as damaged,
/// given up or deleted for that.
pub(crate) fn unless_damaged<T>(
    objects: &dyn ObjectStore,
    name: &str,
    read: Result<T>,
    again: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let error = match read {
        Err(error) if error.is_damage() && !error.is_not_found() => error,
        other => return other,
    };
    objects.forget_cached(name);
    let read = again();
    if read.is_ok() {
        tracing::warn!(
            "{error}; read again, it was as it should be: a cable, a controller or this machine's RAM may be bad"
        );
    }
    read
}

/// The same of what `read` gives.
pub(crate) fn read_twice_at_most<T>(
    objects: &dyn ObjectStore,
    name: &str,
    read: impl Fn() -> Result<T>,
) -> Result<T> {
    unless_damaged(objects, name, read(), read)
}
