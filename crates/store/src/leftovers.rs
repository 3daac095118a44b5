//! Unfinished objects of processes that died: temporary files that nobody will ever rename.
//!
//! Listed before the living sessions are: a file that was there then, while no session lives now, belongs to nobody. So
//! whoever writes a container, a root, a key or the sketch does it in a session; the rest (configuration, condemned
//! list) is written under the sweep's lock, which whoever clears holds.

use std::sync::Arc;

use onefold_io::{Dir, if_there, remove_if_there};

use crate::Result;
use crate::container::CONTAINER_FOLDER;
use crate::objects::TEMPORARY_PREFIX;
use crate::roots::ROOT_FOLDER;
use crate::slots::SLOT_FOLDER;

/// An unfinished file: its folder and its name.
pub(crate) type Unfinished = (Arc<dyn Dir>, String);

/// Every unfinished object.
pub(crate) fn list(root: &Arc<dyn Dir>) -> Result<Vec<Unfinished>> {
    let mut found = Vec::new();
    list_folder(root, &mut found)?;
    for folder in [ROOT_FOLDER, SLOT_FOLDER] {
        if let Some(dir) = if_there(root.open_subdir(folder))? {
            list_folder(&dir, &mut found)?;
        }
    }
    let Some(dir) = if_there(root.open_subdir(CONTAINER_FOLDER))? else {
        return Ok(found);
    };
    for folder in dir.list()?.into_iter().filter(|entry| entry.is_dir) {
        list_folder(&dir.open_subdir(&folder.name)?, &mut found)?;
    }
    Ok(found)
}

fn list_folder(dir: &Arc<dyn Dir>, found: &mut Vec<Unfinished>) -> Result<()> {
    let entries = dir.list()?.into_iter();
    // A folder is none of ours, whatever its name.
    let unfinished =
        entries.filter(|entry| !entry.is_dir && entry.name.starts_with(TEMPORARY_PREFIX));
    found.extend(unfinished.map(|entry| (Arc::clone(dir), entry.name)));
    Ok(())
}

/// Removes them; what is gone already (it was finished meanwhile) is no error.
pub(crate) fn remove(unfinished: &[Unfinished]) -> Result<()> {
    for (dir, name) in unfinished {
        remove_if_there(&**dir, name)?;
    }
    Ok(())
}
