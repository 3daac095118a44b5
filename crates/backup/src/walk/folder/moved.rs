//! Sources that are walked as though they lay elsewhere: see [`Moved`](crate::walk::Moved).
//!
//! The folders on the way to such a source are those above the place where it is, so names say nothing of where
//! anything lies: each of them is looked at by its own path, and makes a piece of its own. From the source on all is as
//! in any other.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::{Look, Seen, Step};
use crate::meta::Stat;
use crate::walk::key::Key;
use crate::walk::names::Listed;
use crate::{Kind, path};

impl Look<'_> {
    /// Looks at what lies in the folder one by one.
    pub(super) fn look_at_moved(&mut self) {
        for (name, piece) in self.select.children.keys().zip(1..) {
            let key = Key {
                folder: self.key.folder.clone(),
                piece,
            };
            self.next.push((key, self.task(Step::Moved(name.to_vec()))));
        }
    }

    /// Looks at one of them. Errors: the folder that it is in cannot be opened.
    pub(super) fn moved(&mut self, name: Vec<u8>) -> Result<(), Errno> {
        let child = Arc::clone(&self.select.children[&name]);
        let from = child.moved.as_deref().unwrap_or_default();
        let (folder, own_name) = path::split(from);
        // Of the root nothing is left.
        let own_name = if own_name.is_empty() { b"." } else { own_name };
        let dir = Arc::new(open_folder(folder)?);
        let stat = Stat::at(&dir, own_name, !child.whole).and_then(|stat| match stat.kind {
            // What is in it would be looked for under the other name.
            kind if kind != Kind::Dir && own_name != name => Err(Errno::NOTDIR),
            _ => Ok(stat),
        });
        self.own_name = Some(own_name.into());
        let seen = Seen {
            stat,
            opened: None,
            is_kept: true,
        };
        self.found(&dir, Listed::given(&name), seen);
        self.piece.dir = Some(dir);
        Ok(())
    }

    /// The root itself, where that is what a source is to be. Errors: those of the system.
    pub(super) fn open_moved_root(&self) -> Result<Option<OwnedFd>, Errno> {
        self.select.moved.as_deref().map(open_folder).transpose()
    }
}

/// The folder, open for listing.
fn open_folder(path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"/" } else { path };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}
