//! Links, pipes, sockets and devices: they have no content, and are made and described in one go.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

use super::super::apply::Meta;
use super::super::window::Special;
use super::{Run, make::Wanted};
use crate::Kind;
use crate::path::join;

impl Run<'_> {
    /// Makes it, or links it to the first of its names.
    pub(super) fn special(&self, special: &Special) {
        let Special {
            folder,
            entry,
            first,
        } = special;
        let meta = Meta::of(entry);
        if first
            .as_ref()
            .is_some_and(|first| matches!(self.try_link(*folder, first, entry), Ok(true)))
        {
            return;
        }
        let dir = self.folder_for(*folder, entry.kind, entry.size);
        let made = dir.and_then(|dir| {
            let Some(dir) = dir else { return Ok(None) };
            let make = || make_special(&dir, entry);
            let made = self.make((*folder, &dir), Wanted::of(entry, &meta), make)?;
            Ok(made.map(|()| {
                self.all
                    .applier
                    .to_special(dir.as_fd(), &entry.name, entry.kind, &meta)
            }))
        });
        let path = join(&self.window.folders[*folder as usize].path, &entry.name);
        match made {
            Ok(missed) => self.tell_missed(missed.unwrap_or_default(), || path),
            Err(e) => {
                self.all.tally.failed_others.fetch_add(1, Relaxed);
                self.failed(&path, &self.io("create", &path, e));
            }
        }
    }
}

fn make_special(dir: &OwnedFd, entry: &crate::Entry) -> Result<(), Errno> {
    let name = &entry.name[..];
    let mode = Mode::RUSR | Mode::WUSR;
    let node = |kind, device| rustix::fs::mknodat(dir, name, kind, mode, device);
    match entry.kind {
        Kind::Symlink => rustix::fs::symlinkat(&entry.target[..], dir, name),
        Kind::Fifo => node(FileType::Fifo, 0),
        Kind::Socket => node(FileType::Socket, 0),
        Kind::CharDevice => node(FileType::CharacterDevice, entry.rdev),
        Kind::BlockDevice => node(FileType::BlockDevice, entry.rdev),
        Kind::File | Kind::Dir => Err(Errno::INVAL),
    }
}
