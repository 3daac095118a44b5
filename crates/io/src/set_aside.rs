//! What stands under a name that is for a disk, and is none: a folder that somebody made there, or moved there.
//!
//! Always holds: what is in a folder may be somebody's, so it is renamed and never removed. An empty one holds nothing.

use crate::{Dir, ErrorKind, Result, if_there};

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

/// How often a folder is cleared away that is there again: others may be clearing it away, too.
const TRIES: usize = 8;

/// What `act` does to the disk `name`, by which it is replaced or goes: once more where it fails because of a folder
/// there. An empty folder goes, another is set aside.
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
    // Where there is a disk by now, another who cleared the folder away put it there.
    if if_there(dir.remove_subdir(name)).is_ok() || dir.open(name).is_ok() {
        return Ok(());
    }
    match set_aside(dir, name) {
        // So it is gone, or its new name taken.
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotAFile) => Ok(()),
        // That disk, put there since: it was to be replaced, or to go.
        Ok(aside) if dir.open(&aside).is_ok() => if_there(dir.remove(&aside)).map(drop),
        Ok(aside) => {
            tracing::warn!("a folder stood in the place of the file {name}, and is now {aside}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}
