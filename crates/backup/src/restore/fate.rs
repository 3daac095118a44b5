//! Decides which folders get the snapshot's mode, owner, attributes and times when everything in them is there.
//!
//! Folders that this restore makes always get them. Folders that were there before:
//!
//! - A folder that only leads to a wanted one keeps its own, whatever the overwrite option says.
//! - A wanted folder is treated as a file would be. With `never` it keeps its own. With `if-newer` it keeps its own
//!   where it is not older than the snapshot's, by the time that it had before anything was put into it. With `always`
//!   and `if-changed` it gets the snapshot's: the same time does not mean the same mode.
//!
//! A folder that an interrupted restore has made, and not completed, counts as made by this one.

use super::Overwrite;
use super::unfinished::is_unfinished;
use super::window::{FolderFate, WindowFolder};
use crate::Time;
use crate::meta::Stat;

impl FolderFate {
    /// Decides about a folder that is `there`; `has_same_time` tells whether it has a time, as far as its file system
    /// can tell.
    pub fn of(
        folder: &WindowFolder,
        there: &Stat,
        overwrite: Overwrite,
        has_same_time: impl FnOnce(Time) -> bool,
    ) -> Self {
        let Some(meta) = &folder.meta else {
            return Self::Kept;
        };
        let keeps = || match overwrite {
            Overwrite::Always | Overwrite::IfChanged => false,
            Overwrite::Never => true,
            Overwrite::IfNewer => there.mtime >= meta.mtime || has_same_time(meta.mtime),
        };
        if !is_unfinished(there, meta.mode, None) && (!folder.is_asked_for || keeps()) {
            Self::Kept
        } else {
            Self::Described
        }
    }
}
