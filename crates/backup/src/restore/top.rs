//! The target itself, where it stands for a folder of the snapshot, as with `SNAPSHOT:PATH`.
//!
//! If a restore makes it, nobody else is let in until all is in it, and then it looks like that folder: what lies in it
//! may have been kept from others by that folder's mode alone. A target that was there keeps its own metadata, for it
//! is the user's, unless a restore that was interrupted has made it.

use rustix::fs::Mode;
use rustix::io::Errno;

use super::apply::Meta;
use super::target::Target;
use super::unfinished::{self, is_unfinished};
use crate::meta::Stat;

/// What the target stands for.
#[derive(Default)]
pub enum StandsFor {
    /// No folder, as where all of a snapshot is restored, or a single file.
    #[default]
    None,
    /// A folder of which the snapshot's entry is lost.
    Lost,
    /// A folder that looks so.
    Folder(Box<Meta>),
}

impl StandsFor {
    /// What a missing target is made with.
    pub fn mode(&self) -> Mode {
        match self {
            Self::None => Mode::RWXU | Mode::RWXG | Mode::RWXO,
            Self::Lost => Mode::RWXU,
            Self::Folder(_) => unfinished::FOLDER,
        }
    }

    /// What the target gets in the end, if it gets anything; `is_new`: this restore has made it, or would.
    pub fn due(self, target: Option<&Target>, is_new: bool) -> Result<Option<Meta>, Errno> {
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
