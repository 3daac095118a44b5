//! Unfinished containers of processes that died: temporary files that nobody will ever rename.
//!
//! Listed before the living sessions are: a file that was there then, while no session lives now, belongs to nobody.

use onefold_io::{Dir, ErrorKind};

use crate::Result;
use crate::objects::TEMPORARY_PREFIX;

const CONTAINER_FOLDER: &str = "containers";

/// Folder and name of every unfinished container.
pub(crate) fn list(root: &dyn Dir) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let dir = match root.open_subdir(CONTAINER_FOLDER) {
        Ok(dir) => dir,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error.into()),
    };
    for folder in dir.list()?.into_iter().filter(|entry| entry.is_dir) {
        for entry in dir.open_subdir(&folder.name)?.list()? {
            if entry.name.starts_with(TEMPORARY_PREFIX) {
                found.push((folder.name.clone(), entry.name));
            }
        }
    }
    Ok(found)
}

/// Removes them; what is gone already (it was finished meanwhile) is no error.
pub(crate) fn remove(root: &dyn Dir, unfinished: &[(String, String)]) -> Result<()> {
    for (folder, name) in unfinished {
        let dir = root.open_subdir(CONTAINER_FOLDER)?.open_subdir(folder)?;
        match dir.remove(name) {
            Err(error) if error.kind != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}
