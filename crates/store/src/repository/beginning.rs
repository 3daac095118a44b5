//! The place where a repository is to be made: empty, or with what is left of one whose making was interrupted.

use onefold_io::{Dir, DirEntry, LockGuard, LockKind};

use crate::container::CONTAINER_FOLDER;
use crate::objects::TEMPORARY_PREFIX;
use crate::repository::INDEX_FOLDER;
use crate::roots::ROOT_FOLDER;
use crate::slots::SLOT_FOLDER;
use crate::{Error, Result};

const LOCKS_FOLDER: &str = "locks";
/// Empty folders of a new repository.
pub const FOLDERS: [&str; 5] = [
    CONTAINER_FOLDER,
    ROOT_FOLDER,
    "sessions",
    LOCKS_FOLDER,
    INDEX_FOLDER,
];
/// Of whoever makes a repository.
const INIT_LOCK: &str = "init";

/// Makes sure that nothing is lost by making a repository in `root`, and that nobody else makes one meanwhile. Key slots that are left there open nothing:
/// without a configuration there was no repository yet.
///
/// # Errors
/// [`Error::NotEmpty`]; [`Error::Locked`] while another makes one.
pub fn begin(root: &dyn Dir) -> Result<Box<dyn LockGuard>> {
    // Before anything is made there.
    refuse_others(root)?;
    let held = || Error::Locked {
        what: "another makes a repository here".into(),
    };
    let locks = root.subdir(LOCKS_FOLDER)?;
    let lock = locks.lock(INIT_LOCK, LockKind::Exclusive)?;
    let lock = lock.ok_or_else(held)?;
    refuse_others(root)?;
    for entry in root.list()? {
        if entry.name == SLOT_FOLDER {
            let slots = root.open_subdir(SLOT_FOLDER)?;
            for slot in slots.list()? {
                slots.remove(&slot.name)?;
            }
        } else if !entry.is_dir {
            root.remove(&entry.name)?;
        }
    }
    Ok(lock)
}

/// All that is there is of a repository that was never complete.
fn refuse_others(root: &dyn Dir) -> Result<()> {
    for entry in root.list()? {
        if !is_left_over(root, &entry)? {
            return Err(Error::NotEmpty {
                what: format!("the folder holds \"{}\"", entry.name),
            });
        }
    }
    Ok(())
}

fn is_left_over(root: &dyn Dir, entry: &DirEntry) -> Result<bool> {
    let name = &entry.name[..];
    if !entry.is_dir {
        return Ok(name.starts_with(TEMPORARY_PREFIX));
    }
    let inside = || Ok::<_, Error>(root.open_subdir(name)?.list()?);
    Ok(match name {
        LOCKS_FOLDER => inside()?.iter().all(|entry| entry.name == INIT_LOCK),
        SLOT_FOLDER => {
            let is_slot = |name: &str| {
                let is_hex = name.bytes().all(|b| b.is_ascii_hexdigit());
                name.len() == 16 && is_hex || name.starts_with(TEMPORARY_PREFIX)
            };
            inside()?
                .iter()
                .all(|entry| !entry.is_dir && is_slot(&entry.name))
        }
        _ => FOLDERS.contains(&name) && inside()?.is_empty(),
    })
}
