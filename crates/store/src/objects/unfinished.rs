//! Unfinished objects of processes that died: temporary files that nobody will ever rename.
//!
//! Listed before the living sessions are: a file that was there then, while no session lives now, belongs to nobody. So
//! whoever writes a container, a root, a key or the sketch does it in a session; the rest (configuration, condemned
//! list) is written under the sweep's lock, which whoever clears holds.

use onefold_io::{Dir, DirEntry, if_there};

use super::TEMPORARY_PREFIX;
use crate::Result;
use crate::container::CONTAINER_FOLDER;
use crate::repository::slots::SLOT_FOLDER;
use crate::roots::ROOT_FOLDER;
use crate::sweep::condemned::CONDEMNED_FOLDER;

/// The name of every unfinished object below `root`.
pub(super) fn list(root: &dyn Dir) -> Result<Vec<String>> {
    let mut found = Vec::new();
    list_folder(root, "", &mut found)?;
    // Repositories of version 1 have a file of that name.
    let is_lists = |entry: &DirEntry| entry.is_dir && entry.name == CONDEMNED_FOLDER;
    let lists = root
        .list()?
        .iter()
        .any(is_lists)
        .then_some(CONDEMNED_FOLDER);
    for folder in [ROOT_FOLDER, SLOT_FOLDER].into_iter().chain(lists) {
        if let Some(dir) = if_there(root.open_subdir(folder))? {
            list_folder(&*dir, &format!("{folder}/"), &mut found)?;
        }
    }
    let Some(dir) = if_there(root.open_subdir(CONTAINER_FOLDER))? else {
        return Ok(found);
    };
    for entry in dir.list()?.into_iter().filter(|entry| entry.is_dir) {
        let path = format!("{CONTAINER_FOLDER}/{}/", entry.name);
        list_folder(&*dir.open_subdir(&entry.name)?, &path, &mut found)?;
    }
    Ok(found)
}

fn list_folder(dir: &dyn Dir, path: &str, found: &mut Vec<String>) -> Result<()> {
    let entries = dir.list()?.into_iter();
    // A folder is none of ours, whatever its name.
    let unfinished =
        entries.filter(|entry| !entry.is_dir && entry.name.starts_with(TEMPORARY_PREFIX));
    found.extend(unfinished.map(|entry| format!("{path}{}", entry.name)));
    Ok(())
}
