//! The target itself, where it stands for a folder of the snapshot, as with `SNAPSHOT:PATH`.
//!
//! A target that the restore makes is closed to other users until everything is in it, and then gets that folder's
//! metadata: the folder's mode alone may have kept its content from others. A target that was there keeps its own
//! metadata, since it is the user's, unless an interrupted restore has made it.

use rustix::fs::Mode;
use rustix::io::Errno;

use super::apply::Meta;
use super::target::TargetFolder;
use super::unfinished::{self, is_unfinished};
use crate::meta::Stat;

/// The thing in the snapshot that the target stands for.
#[derive(Default)]
pub enum StandsFor {
    /// No folder: all of the snapshot is restored, or a single file.
    #[default]
    None,
    /// A folder whose entry is lost.
    Lost,
    /// A folder with this metadata.
    Folder(Box<Meta>),
}

impl StandsFor {
    /// Mode with which a missing target is made.
    pub fn mode(&self) -> Mode {
        match self {
            Self::None => Mode::RWXU | Mode::RWXG | Mode::RWXO,
            Self::Lost => Mode::RWXU,
            Self::Folder(_) => unfinished::FOLDER,
        }
    }

    /// Returns the metadata that the target gets at the end, if any; `is_new`: this restore has made it, or would.
    pub fn due(self, target: Option<&TargetFolder>, is_new: bool) -> Result<Option<Meta>, Errno> {
        let Self::Folder(meta) = self else {
            return Ok(None);
        };
        let is_ours = is_new
            || match target {
                Some(target) => is_unfinished(&Stat::of(target.root())?, meta.mode, None),
                None => false,
            };
        Ok(is_ours.then_some(*meta))
    }
}
