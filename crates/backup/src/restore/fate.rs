//! Which folders get the snapshot's mode, owner, attributes and times when everything in them is there.
//!
//! Those that this restore makes, always. Of those that were there before:
//!
//! - One that only leads to what was asked for keeps its own, however things are overwritten: nobody asked for it.
//! - One that was asked for is treated as a file would be. With `never` it keeps its own. With `if-newer` it does so
//!   where it is not older than the snapshot's, by the time that it had before anything was put into it. With `always`
//!   and `if-changed` it gets the snapshot's: that its time is the same does not say that its mode is.
//!
//! A restore that was killed leaves folders of which nobody knows any more who made them, and which would keep for ever
//! what they happen to look like. So folders are made with a mode that no others have, and known by that.

use rustix::fs::Mode;

use super::Overwrite;
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

/// What a folder is made with that will be described: others are shut out, and it is seen to be unfinished.
pub const UNFINISHED: Mode = Mode::RWXU.union(Mode::SVTX);

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
        match !is_unfinished(there) && (!folder.is_asked_for || keeps()) {
            true => Self::Kept,
            false => Self::Described,
        }
    }
}

/// Whether a restore by this user has made the folder, and came to no end. (It may have its group's bit from the folder
/// it lies in.)
fn is_unfinished(there: &Stat) -> bool {
    let mode = Mode::from_raw_mode(there.mode.into()) - Mode::SGID;
    mode == UNFINISHED && there.uid == rustix::process::geteuid().as_raw()
}
