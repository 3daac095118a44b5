//! Folders that stand under the name of a disk, because somebody made them there or moved them there.
//!
//! Invariant: the content of a folder may be somebody's, so the folder is renamed and never removed, unless empty.

use crate::{Dir, ErrorKind, Result, if_there};

/// Suffix of names of disks and folders that were set aside; a number follows where the name was taken.
pub const ASIDE_SUFFIX: &str = ".unreadable";

/// Whether `name` is that of a disk or folder that was set aside.
pub fn is_aside(name: &str) -> bool {
    name.contains(ASIDE_SUFFIX)
}

/// Renames a disk or a folder so that it no longer counts as what its name said, and returns its new name. Replaces
/// nothing. Durable after `sync` of `dir`.
///
/// # Errors
/// Errors of [`Dir::rename`], and of [`Dir::len_of`] for the new name.
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

/// Removes a disk; a missing one is no error. A folder of this name is removed where it is empty, and set aside
/// otherwise. Durable after `sync` of the folder.
///
/// # Errors
/// Errors of [`Dir::remove`] except [`ErrorKind::NotFound`].
pub fn remove_if_there(dir: &dyn Dir, name: &str) -> Result<()> {
    if_there(past_folder(dir, name, || dir.remove(name))).map(drop)
}

/// How often a folder is cleared away that is there again: other processes may be clearing it away, too.
const TRIES: usize = 8;

/// Calls `act`, which replaces or removes the disk `name`, and again where it fails because of a folder of this name.
/// An empty folder is removed, another is set aside.
pub(crate) fn past_folder(dir: &dyn Dir, name: &str, act: impl Fn() -> Result<()>) -> Result<()> {
    let mut done = act();
    for _ in 0..TRIES {
        if !matches!(&done, Err(error) if error.kind == ErrorKind::NotAFile) {
            break;
        }
        clear_folder(dir, name)?;
        done = act();
    }
    done
}

fn clear_folder(dir: &dyn Dir, name: &str) -> Result<()> {
    // Where there is a disk now, another process cleared the folder away and put it there.
    if if_there(dir.remove_subdir(name)).is_ok() || dir.open(name).is_ok() {
        return Ok(());
    }
    match set_aside(dir, name) {
        // The folder is gone by now, or its new name is taken.
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotAFile) => Ok(()),
        // The disk was put there meanwhile; it was to be replaced or removed anyway.
        Ok(aside) if dir.open(&aside).is_ok() => if_there(dir.remove(&aside)).map(drop),
        Ok(aside) => {
            tracing::warn!("a folder stood in the place of the file {name}, and is now {aside}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}
