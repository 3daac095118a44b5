//! Makes a thing under a name where something else may stand, which stays or goes, as the user asked.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::super::window::File;
use super::WindowRun;
use crate::meta::Stat;
use crate::restore::apply::Meta;
use crate::restore::target::open_beneath;
use crate::restore::temporary::CurrentName;
use crate::walk::names::SortedNames;
use crate::{Change, Entry, Kind};

/// Times that making a thing is tried while other programs make and remove it, too.
pub(super) const ROUNDS_MAX: usize = 16;

/// A thing that is to stand under a name.
#[derive(Clone, Copy)]
pub(super) struct WantedEntry<'a> {
    name: &'a [u8],
    kind: Kind,
    size: u64,
    meta: &'a Meta,
    /// Whether the thing is complete as soon as it is there, or nearly so.
    is_made_at_once: bool,
}

impl<'a> WantedEntry<'a> {
    pub fn of(entry: &'a Entry, meta: &'a Meta) -> Self {
        Self {
            name: &entry.name,
            kind: entry.kind,
            size: entry.size,
            meta,
            is_made_at_once: true,
        }
    }

    /// Marks the thing as one that takes a while to make.
    pub fn slowly(self) -> Self {
        Self {
            is_made_at_once: false,
            ..self
        }
    }

    pub fn of_file(file: &'a File) -> Self {
        Self {
            name: &file.name,
            kind: Kind::File,
            size: file.size,
            meta: &file.meta,
            is_made_at_once: true,
        }
    }
}

impl WindowRun<'_> {
    /// Makes a thing in a folder by calling `make` with a name, and reports it. Something in the way stays (`None`), as
    /// the user asked; or the new thing is made beside it and replaces it when it is complete and
    /// [put](CurrentName::put) there. A thing that takes a while to make has a temporary name until then in any case.
    pub(super) fn make<T>(
        &self,
        (folder, dir): (u32, &OwnedFd),
        wanted: WantedEntry<'_>,
        make: impl Fn(&[u8]) -> Result<T, Errno>,
    ) -> Result<Option<(T, CurrentName)>, Errno> {
        let new = || {
            if wanted.is_made_at_once {
                make(wanted.name).map(|made| (made, CurrentName::Own))
            } else {
                match Stat::at(dir, wanted.name, false) {
                    Err(Errno::NOENT) => make_at(CurrentName::hidden, wanted.name, &make),
                    there => there.and(Err(Errno::EXIST)),
                }
            }
        };
        let tell = |change| self.tell(folder, wanted, change);
        let mut rounds = 0;
        let there = loop {
            match new() {
                Err(Errno::EXIST) => {}
                other => return other.inspect(|_| tell(Change::New)).map(Some),
            }
            self.must_be_exact((folder, dir), wanted.name)?;
            rounds += 1;
            match Stat::at(dir, wanted.name, false) {
                // Another program has just removed it.
                Err(Errno::NOENT) if rounds < ROUNDS_MAX => {}
                other => break other?,
            }
        };
        if self.stays((folder, dir), wanted, &there) {
            return Ok(None);
        }
        let made = match there.kind {
            // Only an empty folder can be removed, or replaced by a folder.
            Kind::Dir if wanted.is_made_at_once => {
                rustix::fs::unlinkat(dir, wanted.name, AtFlags::REMOVEDIR).and_then(|()| new())
            }
            // The folder is removed when the thing that replaces it is complete.
            Kind::Dir if holds_something(dir, wanted.name) => Err(Errno::NOTEMPTY),
            Kind::Dir => make_at(CurrentName::hidden, wanted.name, &make),
            _ => make_at(CurrentName::beside, wanted.name, &make),
        };
        made.inspect(|_| tell(Change::Modified)).map(Some)
    }

    /// Gives a complete thing its own name. `false`: it is given up, since something that has come under that name
    /// meanwhile stays, as the user asked.
    pub(super) fn put(
        &self,
        (folder, dir): (u32, &OwnedFd),
        wanted: WantedEntry<'_>,
        place: CurrentName,
    ) -> Result<bool, Errno> {
        match (place.put(dir, wanted.name), place) {
            (Err(Errno::EXIST), CurrentName::Hidden(_)) => {}
            (other, _) => return other.map(|()| true),
        }
        let replace = || place.replacing().put(dir, wanted.name).map(|()| true);
        let replaced = self
            .must_be_exact((folder, dir), wanted.name)
            .and_then(|()| {
                let there = Stat::at(dir, wanted.name, false);
                match there {
                    Ok(there) if self.stays((folder, dir), wanted, &there) => Ok(false),
                    Ok(there) if there.kind == Kind::Dir => {
                        rustix::fs::unlinkat(dir, wanted.name, AtFlags::REMOVEDIR)?;
                        replace()
                    }
                    Ok(_) | Err(Errno::NOENT) => replace(),
                    Err(e) => Err(e),
                }
            });
        if !matches!(replaced, Ok(true)) {
            place.give_up(dir);
        }
        replaced
    }

    /// Whether the thing in the target stays, as the user asked; if so, it is counted and reported.
    pub(super) fn stays(
        &self,
        (folder, dir): (u32, &OwnedFd),
        wanted: WantedEntry<'_>,
        there: &Stat,
    ) -> bool {
        let mtime = wanted.meta.mtime;
        let has_same_time = || self.all.times.is_same(dir.as_fd(), mtime, there);
        let overwrite = self.all.options.overwrite;
        let stays = overwrite.keeps(there, (wanted.meta.mode, wanted.size), mtime, has_same_time);
        if stays {
            self.all.stayed(wanted.kind, wanted.size);
            self.tell(folder, wanted, Change::Unchanged);
        }
        stays
    }

    fn tell(&self, folder: u32, wanted: WantedEntry<'_>, change: Change) {
        if self.all.events.wants_entries() {
            let path = self.window.path_in(folder, wanted.name);
            self.all.events.entry(&path, change, wanted.size);
        }
    }
}

/// Whether a folder has anything in it, as far as it can be listed.
fn holds_something(dir: &OwnedFd, name: &[u8]) -> bool {
    let opened = open_beneath(dir.as_fd(), name);
    let first = opened.and_then(|folder| SortedNames::new(4096).next_up_to(&folder, None));
    matches!(first, Ok(Some(_)))
}

fn make_at<T>(
    next: impl Fn() -> CurrentName,
    name: &[u8],
    make: impl Fn(&[u8]) -> Result<T, Errno>,
) -> Result<(T, CurrentName), Errno> {
    loop {
        let place = next();
        match make(&place.name(name)) {
            // A process that died left this name, and this one has the same process number.
            Err(Errno::EXIST) => {}
            other => return other.map(|made| (made, place)),
        }
    }
}
