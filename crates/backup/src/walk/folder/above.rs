//! Looks above a folder: a source in a folder that is left out is left out, too, whatever path or link leads there.

use std::os::fd::{AsFd, OwnedFd};

use super::FolderVisit;
use crate::exclude::Excludes;
use crate::meta::Stat;

impl FolderVisit<'_> {
    /// Whether the open folder, or one above it, is left out under any name. This is asked once for all sources in the
    /// folder.
    pub(super) fn is_below_left_out(&mut self, dir: &OwnedFd) -> bool {
        if let Some(known) = self.is_below_left_out {
            return known;
        }
        let is_below = is_below_left_out(dir, &self.options.excludes);
        self.is_below_left_out = Some(is_below);
        is_below
    }
}

/// Whether the open folder, or one above it, is left out under any name.
pub(crate) fn is_below_left_out(dir: impl AsFd, excludes: &Excludes) -> bool {
    !excludes.folders.is_empty() && above(dir).any(|folder| excludes.is_left_out(&folder))
}

/// Gives the folder and those above it, up to the root or to the first that cannot be looked at.
fn above(dir: impl AsFd) -> impl Iterator<Item = Stat> {
    let mut name = b".".to_vec();
    let mut last = None;
    std::iter::from_fn(move || {
        let stat = Stat::at(&dir, &name, false).ok()?;
        name.extend_from_slice(b"/..");
        // The root is its own parent.
        let id = (stat.device, stat.inode);
        (last.replace(id) != Some(id)).then_some(stat)
    })
}
