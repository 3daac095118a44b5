//! Which folders get the snapshot's mode, owner, attributes and times when everything in them is there.
//!
//! Those that this restore makes, always. Of those that were there before:
//!
//! - One that only leads to what was asked for keeps its own, however things are overwritten: nobody asked for it.
//! - One that was asked for is treated as a file would be. With `never` it keeps its own. With `if-newer` it does so
//!   where it is not older than the snapshot's, by the time that it had before anything was put into it. With `always`
//!   and `if-changed` it gets the snapshot's: that its time is the same does not say that its mode is.
//!
//! What a restore that was interrupted has made, and not described, counts as made by this one.

use super::Overwrite;
use super::unfinished::is_unfinished;
use super::window::Folder;
use crate::Time;
use crate::meta::Stat;

/// What becomes of a folder's metadata.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Fate {
    /// Nobody has come to it yet.
    #[default]
    Unknown,
    /// It gets the snapshot's in the end.
    Described,
    /// It was there, and keeps its own.
    Kept,
}

impl Fate {
    /// That of a folder which is `there`; `has_same_time`: with this time, as far as its file system can tell.
    pub fn of(
        folder: &Folder,
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
        match !is_unfinished(there, meta.mode, None) && (!folder.is_asked_for || keeps()) {
            true => Self::Kept,
            false => Self::Described,
        }
    }
}
