//! Replacing a disk as a whole: after a crash the old one or the new one is there, never a part.

use std::sync::Arc;

use crate::set_aside::past_folder;
use crate::{Dir, Disk, Error, Result, remove_if_there};

/// Puts `bytes` in the place of the disk `name`, by way of `temporary`; durable when it returns.
///
/// # Errors
/// Failures of the device, after which the old bytes or the new ones are there.
pub fn replace_file(dir: &dyn Dir, temporary: &str, name: &str, bytes: &[u8]) -> Result<()> {
    rename_over::<Error>(dir, temporary, name, |disk| disk.write_at(bytes, 0))?;
    dir.sync()
}

/// Puts what `write` writes in the place of the disk `name`, by way of `temporary`. Gives the disk, which is durable;
/// its name is once `dir` is synced.
///
/// # Errors
/// Those of `write`; failures of the device, after which `name` is as it was.
pub fn rename_over<E: From<Error>>(
    dir: &dyn Dir,
    temporary: &str,
    name: &str,
    write: impl FnOnce(&Arc<dyn Disk>) -> Result<(), E>,
) -> Result<Arc<dyn Disk>, E> {
    let disk = create_anew(dir, temporary)?;
    write(&disk)?;
    disk.sync()?;
    rename_in_place(dir, temporary, name)?;
    Ok(disk)
}

/// Renames a disk, replacing what stood under `to`: a disk, or an empty folder; any other folder is set aside.
///
/// # Errors
/// Those of [`Dir::rename`], and of [`set_aside`](crate::set_aside).
pub fn rename_in_place(dir: &dyn Dir, from: &str, to: &str) -> Result<()> {
    past_folder(dir, to, || dir.rename(from, to))
}

/// An empty disk, in place of one that somebody who died may have left there.
///
/// # Errors
/// Those of [`remove_if_there`] and [`Dir::create`].
pub fn create_anew(dir: &dyn Dir, name: &str) -> Result<Arc<dyn Disk>> {
    remove_if_there(dir, name)?;
    dir.create(name)
}
