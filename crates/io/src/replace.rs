//! Replacing a disk as a whole: after a crash the old or the new content is there, never a part.

use std::sync::Arc;

use crate::set_aside::past_folder;
use crate::{Dir, Disk, Error, Result, remove_if_there};

/// Replaces the disk `name` by one with the content `bytes`, through the name `temporary`; durable on return.
///
/// # Errors
/// Failures of the device: the old or the new bytes are there then.
pub fn replace_file(dir: &dyn Dir, temporary: &str, name: &str, bytes: &[u8]) -> Result<()> {
    rename_over::<Error>(dir, temporary, name, |disk| disk.write_at(bytes, 0))?;
    dir.sync()
}

/// Replaces the disk `name` by one with the content that `write` writes, through the name `temporary`. Returns the
/// disk, which is durable; its name is durable once `dir` is synced.
///
/// # Errors
/// Errors of `write`; failures of the device, after which `name` is unchanged.
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

/// Renames a disk, replacing the disk `to` or an empty folder of this name; any other folder is set aside.
///
/// # Errors
/// Errors of [`Dir::rename`], and of [`set_aside`](crate::set_aside).
pub fn rename_in_place(dir: &dyn Dir, from: &str, to: &str) -> Result<()> {
    past_folder(dir, to, || dir.rename(from, to))
}

/// Creates an empty disk; a disk of this name, left by a process that died, is removed.
///
/// # Errors
/// Errors of [`remove_if_there`] and [`Dir::create`].
pub fn create_anew(dir: &dyn Dir, name: &str) -> Result<Arc<dyn Disk>> {
    remove_if_there(dir, name)?;
    dir.create(name)
}
