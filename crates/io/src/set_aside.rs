//! What stands under a name that is for a disk, and is none: a folder that somebody made there, or moved there.
//!
//! Always holds: what is in a folder may be somebody's, so it is renamed and never removed. An empty one holds nothing.

use crate::{Dir, Error, ErrorKind, Result, if_there};

/// What the names of disks and folders end in that were set aside; a number follows where that name was taken.
pub const ASIDE_SUFFIX: &str = ".unreadable";

/// Whether `name` is that of something that was set aside.
pub fn is_aside(name: &str) -> bool {
    name.contains(ASIDE_SUFFIX)
}

/// Renames a disk or a folder so that nobody takes it for what its name said, and gives its new name. Replaces nothing.
/// Durable after `sync` of `dir`.
///
/// # Errors
/// Those of [`Dir::rename`], and of [`Dir::len_of`] for the new name.
pub fn set_aside(dir: &dyn Dir, name: &str) -> Result<String> {
    let mut aside = format!("{name}{ASIDE_SUFFIX}");
    for number in 2.. {
        match dir.len_of(&aside) {
            Err(error) if error.kind == ErrorKind::NotFound => break,
            Err(error) if error.kind != ErrorKind::NotAFile => return Err(error),
            _ => aside = format!("{name}{ASIDE_SUFFIX}-{number}"),
        }
    }
    dir.rename(name, &aside)?;
    Ok(aside)
}

/// Frees `name` where `done`, which is about a disk of that name, failed because of a folder there; then whether it is
/// to be done again. An empty folder goes, another is set aside.
pub(crate) fn clears_folder(dir: &dyn Dir, name: &str, done: &Result<(), Error>) -> Result<bool> {
    if !matches!(done, Err(error) if error.kind == ErrorKind::NotAFile) {
        return Ok(false);
    }
    if if_there(dir.remove_subdir(name)).is_err() {
        let aside = set_aside(dir, name)?;
        tracing::warn!("a folder stood in the place of the file {name}, and is now {aside}");
    }
    Ok(true)
}
