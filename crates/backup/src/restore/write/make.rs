//! Something is made under a name, where something else may stand that stays or goes, as the user asked.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::super::window::File;
use super::Run;
use crate::meta::Stat;
use crate::restore::apply::Meta;
use crate::restore::temporary::Place;
use crate::{Change, Entry, Kind};

/// Something that is to stand under a name.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    name: &'a [u8],
    kind: Kind,
    size: u64,
    meta: &'a Meta,
}

impl<'a> Wanted<'a> {
    pub fn of(entry: &'a Entry, meta: &'a Meta) -> Self {
        Self {
            name: &entry.name,
            kind: entry.kind,
            size: entry.size,
            meta,
        }
    }

    pub fn of_file(file: &'a File) -> Self {
        Self {
            name: &file.name,
            kind: Kind::File,
            size: file.size,
            meta: &file.meta,
        }
    }
}

impl Run<'_> {
    /// Makes something in a folder by the name that it is given, and tells. What is in the way stays (`None`), as the user asked; or what is made
    /// stands beside it and replaces it when it is complete and [put](Place::put) there.
    pub(super) fn make<T>(
        &self,
        (folder, dir): (u32, &OwnedFd),
        wanted: Wanted<'_>,
        make: impl Fn(&[u8]) -> Result<T, Errno>,
    ) -> Result<Option<(T, Place)>, Errno> {
        let own = || make(wanted.name).map(|made| (made, Place::Own));
        let tell = |change| self.tell(folder, wanted, change);
        match own() {
            Err(Errno::EXIST) => {}
            other => return other.inspect(|_| tell(Change::New)).map(Some),
        }
        self.must_be_exact((folder, dir), wanted.name)?;
        let there = Stat::at(dir, wanted.name, false)?;
        if self.stays((folder, dir), wanted, &there) {
            return Ok(None);
        }
        let made = match there.kind {
            // Nothing but a folder can take the place of one, and it must be empty.
            Kind::Dir => {
                rustix::fs::unlinkat(dir, wanted.name, AtFlags::REMOVEDIR).and_then(|()| own())
            }
            _ => make_beside(wanted.name, make),
        };
        made.inspect(|_| tell(Change::Modified)).map(Some)
    }

    /// Whether what is there stays, as the user asked; that is counted and told.
    pub(super) fn stays(
        &self,
        (folder, dir): (u32, &OwnedFd),
        wanted: Wanted<'_>,
        there: &Stat,
    ) -> bool {
        let mtime = wanted.meta.mtime;
        let has_same_time = || self.all.times.is_same(dir.as_fd(), mtime, there);
        let overwrite = self.all.options.overwrite;
        let stays = overwrite.keeps(there, wanted.size, mtime, has_same_time);
        if stays {
            self.all.stayed(wanted.kind, wanted.size);
            self.tell(folder, wanted, Change::Unchanged);
        }
        stays
    }

    fn tell(&self, folder: u32, wanted: Wanted<'_>, change: Change) {
        if self.all.events.wants_entries() {
            let path = self.window.path_in(folder, wanted.name);
            self.all.events.entry(&path, change, wanted.size);
        }
    }
}

fn make_beside<T>(
    name: &[u8],
    make: impl Fn(&[u8]) -> Result<T, Errno>,
) -> Result<(T, Place), Errno> {
    loop {
        let place = Place::beside();
        match make(&place.name(name)) {
            // One that died left it, and its number was given anew.
            Err(Errno::EXIST) => {}
            other => return other.map(|made| (made, place)),
        }
    }
}
