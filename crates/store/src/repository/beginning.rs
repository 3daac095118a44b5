//! The place where a repository is to be made: empty, or with what is left of one whose making was interrupted.

use onefold_io::{Dir, DirEntry, LockGuard, hex_number};

use crate::container::CONTAINER_FOLDER;
use crate::lock::{LOCKS_FOLDER, Lock};
use crate::objects::TEMPORARY_PREFIX;
use crate::pin::PIN_FOLDER;
use crate::repository::INDEX_FOLDER;
use crate::roots::ROOT_FOLDER;
use crate::slots::SLOT_FOLDER;
use crate::{Error, Result};

/// Empty folders of a new repository.
pub const FOLDERS: [&str; 5] = [
    CONTAINER_FOLDER,
    ROOT_FOLDER,
    PIN_FOLDER,
    LOCKS_FOLDER,
    INDEX_FOLDER,
];
/// What each new file system of the ext family has.
const OF_THE_DISK: &str = "lost+found";

/// Makes sure that nothing is lost by making a repository in `root`, and that nobody else makes one meanwhile. Key
/// slots that are left there open nothing: without a configuration there was no repository yet.
///
/// # Errors
/// [`Error::NotEmpty`]; [`Error::Locked`] while another makes one.
pub fn begin(root: &dyn Dir) -> Result<Box<dyn LockGuard>> {
    // Before anything is made there.
    left_over(root)?;
    let lock = Lock::Init.take(root)?;
    // Only what was judged goes: somebody may put a file there meanwhile.
    for entry in left_over(root)? {
        if entry.name == SLOT_FOLDER {
            remove_slots(&*root.open_subdir(SLOT_FOLDER)?)?;
        } else if !entry.is_dir {
            root.remove(&entry.name)?;
        }
    }
    Ok(lock)
}

/// Durably: with a slot that came back, a repository without encryption would be one whose configuration was changed.
fn remove_slots(slots: &dyn Dir) -> Result<()> {
    for slot in slots.list()?.iter().filter(|entry| is_slot(entry)) {
        slots.remove(&slot.name)?;
    }
    Ok(slots.sync()?)
}

/// What is there, all of it of a repository that was never complete.
fn left_over(root: &dyn Dir) -> Result<Vec<DirEntry>> {
    let mut there = root.list()?;
    there.retain(|entry| !(entry.is_dir && entry.name == OF_THE_DISK));
    for entry in &there {
        if !is_left_over(root, entry)? {
            return Err(Error::NotEmpty {
                what: format!("the folder holds \"{}\"", entry.name),
            });
        }
    }
    Ok(there)
}

fn is_left_over(root: &dyn Dir, entry: &DirEntry) -> Result<bool> {
    let name = &entry.name[..];
    if !entry.is_dir {
        return Ok(name.starts_with(TEMPORARY_PREFIX));
    }
    let inside = || Ok::<_, Error>(root.open_subdir(name)?.list()?);
    Ok(match name {
        LOCKS_FOLDER => inside()?
            .iter()
            .all(|entry| entry.name == Lock::Init.name()),
        SLOT_FOLDER => inside()?.iter().all(is_slot),
        _ => FOLDERS.contains(&name) && inside()?.is_empty(),
    })
}

/// Of what lies in the folder of slots: a slot, or one that was not finished.
fn is_slot(entry: &DirEntry) -> bool {
    let name = &entry.name;
    !entry.is_dir && (hex_number(name, 16).is_some() || name.starts_with(TEMPORARY_PREFIX))
}
