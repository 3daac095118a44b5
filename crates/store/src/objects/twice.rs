//! Reading again what was read as damaged.

use super::ObjectStore;
use crate::Result;

/// Returns the result of `read` for the object `name`, unless it is damage: then the result of `again`, for which the
/// device is read once more. A bit may have flipped on the way from the device, in a cable or in RAM: that must not
/// make an object count as damaged, or be given up or deleted.
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

/// Reads a second time where the result of `read` is damage.
pub(crate) fn read_twice_at_most<T>(
    objects: &dyn ObjectStore,
    name: &str,
    read: impl Fn() -> Result<T>,
) -> Result<T> {
    unless_damaged(objects, name, read(), read)
}
