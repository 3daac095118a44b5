//! Sources that are walked as though they lay elsewhere: see [`Moved`](crate::walk::Moved).
//!
//! The folders on the way to such a source are those above its real place, so names do not tell where they lie: each of
//! them is looked at by its own path, and makes a piece of its own. From the source on the walk is as for any other.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::{FolderStep, FolderVisit, SeenName};
use crate::meta::Stat;
use crate::walk::key::WalkKey;
use crate::walk::names::FolderName;
use crate::{Kind, path};

impl FolderVisit<'_> {
    /// Makes a task for each name in this folder that leads to a source. The folder itself is not listed.
    pub(super) fn look_at_moved(&mut self) {
        for (name, piece) in self.select.children.keys().zip(1..) {
            let key = WalkKey {
                folder: self.key.folder.clone(),
                piece,
            };
            self.next
                .push((key, self.task(FolderStep::Moved(name.to_vec()))));
        }
    }

    /// Looks at one name that leads to a moved source. Errors: the folder that it lies in cannot be opened.
    pub(super) fn moved(&mut self, name: Vec<u8>) -> Result<(), Errno> {
        let child = Arc::clone(&self.select.children[&name]);
        let from = child.moved.as_deref().unwrap_or_default();
        let (folder, own_name) = path::split(from);
        // The root has no name in a folder.
        let own_name = if own_name.is_empty() { b"." } else { own_name };
        let dir = Arc::new(open_folder(folder)?);
        let stat = Stat::at(&dir, own_name, !child.whole).and_then(|stat| match stat.kind {
            // For a folder with another name this is right; entries of other kinds would be read under the wrong name.
            kind if kind != Kind::Dir && own_name != name => Err(Errno::NOTDIR),
            _ => Ok(stat),
        });
        self.own_name = Some(own_name.into());
        let seen = SeenName {
            stat,
            opened: None,
            is_kept: true,
        };
        self.found(&dir, FolderName::given(&name), seen);
        self.piece.dir = Some(dir);
        Ok(())
    }

    /// Opens the root itself, where a source is stored as the root. Errors: those of the system.
    pub(super) fn open_moved_root(&self) -> Result<Option<OwnedFd>, Errno> {
        self.select.moved.as_deref().map(open_folder).transpose()
    }
}

/// Opens a folder for listing.
fn open_folder(path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"/" } else { path };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}
