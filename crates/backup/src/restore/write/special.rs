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
            let make = |name: &[u8]| make_special(&dir, name, entry);
            let made = self.make((*folder, &dir), Wanted::of(entry, &meta), make)?;
            let Some(((), place)) = made else {
                return Ok(None);
            };
            let name = place.name(&entry.name);
            let applier = self.all.applier;
            let missed = applier.to_special(dir.as_fd(), &name, entry.kind, &meta);
            place.put(&dir, &entry.name).map(|()| Some(missed))
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

fn make_special(dir: &OwnedFd, name: &[u8], entry: &crate::Entry) -> Result<(), Errno> {
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
