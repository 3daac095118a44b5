//! Protects the repository of a restore: no target may lie in it, and a target that holds it must not lose it.

use std::ffi::OsStr;
use std::fs::{DirEntry, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::paths;
use crate::site::Site;

/// Refuses a target that is the repository or lies in it, through any path or link. Errors: [`Error::Usage`]. A place
/// that is no repository protects nothing.
pub fn refuse_inside(target: &Path, place: &Site) -> Result<()> {
    let Some(folder) = place.folder() else {
        return Ok(());
    };
    let (Ok(true), Ok(own)) = (place.has_repository(), std::fs::metadata(folder)) else {
        return Ok(());
    };
    let is_own = |folder: &Path| std::fs::metadata(folder).is_ok_and(|it| id(&it) == id(&own));
    // Where a part of the target's path is missing, a `..` behind it removes the name before it.
    let clean = paths::absolute(target.as_os_str())?;
    let ways = [target, Path::new(OsStr::from_bytes(&clean))];
    let is_inside = ways.into_iter().any(|way| {
        let there = way.ancestors().find_map(|it| it.canonicalize().ok());
        there.is_some_and(|there| there.ancestors().any(is_own))
    });
    if !is_inside {
        Ok(())
    } else {
        Err(Error::Usage(format!(
            "the target is inside of the repository {}",
            place.display()
        )))
    }
}

/// Returns the repository's folder, the folders in it, and those in these, as (device, inode): each may lie elsewhere,
/// behind a symbolic link.
pub fn folders(place: &Site) -> Result<Vec<(u64, u64)>> {
    let Some(place) = place.folder() else {
        return Ok(Vec::new());
    };
    let failed = |e| Error::io(format!("look into {}", place.display()), e);
    let folder = |it: Metadata| it.is_dir().then(|| id(&it));
    let mut ids: Vec<_> = folder(std::fs::metadata(place).map_err(failed)?)
        .into_iter()
        .collect();
    let mut folders = folders_in(place).map_err(failed)?;
    // A folder that is gone, leads nowhere or cannot be looked at needs no protection.
    let below = folders
        .iter()
        .flat_map(|folder| folders_in(folder).unwrap_or_default());
    let below: Vec<_> = below.collect();
    folders.extend(below);
    let about = folders.iter().filter_map(|it| std::fs::metadata(it).ok());
    ids.extend(about.filter_map(folder));
    Ok(ids)
}

fn id(about: &Metadata) -> (u64, u64) {
    (about.dev(), about.ino())
}

/// Returns the paths of everything in `folder` that is no regular file.
fn folders_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.flatten();
    let is_file = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_file());
    Ok(entries
        .filter(|entry| !is_file(entry))
        .map(|entry| entry.path())
        .collect())
}
