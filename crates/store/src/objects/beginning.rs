//! The folder in which a repository is to be made: empty, or with what is left of one whose making was interrupted.

use onefold_io::{Dir, DirEntry, hex_number};

use super::TEMPORARY_PREFIX;
use crate::container::CONTAINER_FOLDER;
use crate::registry::Lock;
use crate::registry::flock::{LOCKS_FOLDER, PIN_FOLDER};
use crate::repository::INDEX_FOLDER;
use crate::repository::slots::SLOT_FOLDER;
use crate::roots::ROOT_FOLDER;
use crate::{Error, Result};

/// Folders of a new repository that may be there, if they are empty.
const FOLDERS: [&str; 5] = [
    CONTAINER_FOLDER,
    ROOT_FOLDER,
    PIN_FOLDER,
    LOCKS_FOLDER,
    INDEX_FOLDER,
];
/// Folder that each new file system of the ext family has.
const OF_THE_DISK: &str = "lost+found";

/// The objects that are there, all of them of a repository that was never complete.
///
/// # Errors
/// [`Error::NotEmpty`].
pub(super) fn left_over(root: &dyn Dir) -> Result<Vec<String>> {
    let mut there = root.list()?;
    there.retain(|entry| !(entry.is_dir && entry.name == OF_THE_DISK));
    let mut objects = Vec::new();
    for entry in &there {
        if !is_left_over(root, entry)? {
            return Err(Error::NotEmpty {
                what: format!("the folder holds \"{}\"", entry.name),
            });
        }
        if entry.name == SLOT_FOLDER {
            let slots = root.open_subdir(SLOT_FOLDER)?.list()?.into_iter();
            let slots = slots.filter(is_slot);
            objects.extend(slots.map(|slot| format!("{SLOT_FOLDER}/{}", slot.name)));
        } else if !entry.is_dir {
            objects.push(entry.name.clone());
        }
    }
    Ok(objects)
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

/// Whether the thing in the folder of slots is a slot, or a slot that was not finished.
fn is_slot(entry: &DirEntry) -> bool {
    let name = &entry.name;
    !entry.is_dir && (hex_number(name, 16).is_some() || name.starts_with(TEMPORARY_PREFIX))
}
