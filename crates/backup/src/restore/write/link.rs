//! Further names of files that were restored before.
//!
//! Invariant: a name is linked to a file that looks as the snapshot says, or gets the content itself; it is never
//! linked to another file that happens to have the first name.

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::super::window::{FirstName, Link};
use super::{WindowRun, file::create, folding::is_exact, make::WantedEntry};
use crate::meta::Stat;
use crate::restore::apply::{Meta, by_descriptor};
use crate::restore::compare::{has_metadata, looks_as};
use crate::restore::lacking::{Kinds, MetadataOutcome};
use crate::restore::samples::Class;
use crate::tree::{Visit, visit_items};
use crate::{Entry, Error, Progress, Result};

impl WindowRun<'_> {
    /// Makes the link, or a copy where the first name is not the restored file: it may be the user's, which stayed, or
    /// have failed. Errors: [`Error::Cancelled`]; others are reported.
    pub(super) fn link(&self, link: &Link) -> Result<()> {
        self.all.progress.check()?;
        let path = self.window.path_in(link.folder, &link.entry.name);
        let failed = |e: Errno| self.io("link", &path, e);
        let try_link = |first| {
            let (folder, entry) = (link.folder, &link.entry);
            self.with_room(|| self.try_link(folder, first, entry, &link.metadata_outcome))
        };
        let made = link.first.as_ref().map_or(Ok(false), try_link);
        let made = made.map_err(failed).and_then(|linked| {
            if linked {
                return Ok(());
            }
            self.copy(link, &path)
        });
        let entry = &link.entry;
        Progress::add(&self.all.progress.files_done, 1);
        Progress::add(&self.all.progress.bytes_done, entry.size);
        match made {
            Err(Error::Cancelled) => Err(Error::Cancelled),
            Err(e) => {
                self.failed(&path, &e);
                self.all.tally.failed_file(entry.size);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Makes the link. Returns false where the first name is no file to link to, or the system does not link the two.
    /// `outcome` notes a link to a file that was there before: its metadata was looked at, and can be read back.
    pub(super) fn try_link(
        &self,
        folder: u32,
        first: &FirstName,
        entry: &Entry,
        outcome: &MetadataOutcome,
    ) -> Result<bool, Errno> {
        let was_there = first.was_there;
        if self.all.failed_firsts.has(&first.folder, &first.name) {
            return Ok(false);
        }
        let Ok(first) = self.open_first(first) else {
            return Ok(false);
        };
        let is_exact = is_exact(&first.dir, first.name).unwrap_or(false);
        let is_file = looks_as(entry, &first.fd, &first.stat) && self.is_owners(entry, &first);
        if !is_exact || !is_file || was_there && !self.has_metadata(entry, &first) {
            return Ok(false);
        }
        let Some(dir) = self.folder_for(folder, entry.kind, entry.size)? else {
            return Ok(true);
        };
        let make = |name: &[u8]| first.link_to(&dir, name);
        let meta = Meta::of(entry);
        let made = self.make((folder, &dir), WantedEntry::of(entry, &meta), make);
        match made {
            Ok(None) => Ok(true),
            Ok(Some(((), place))) => {
                place.put(&dir, &entry.name)?;
                if was_there {
                    outcome.set(Kinds::default());
                }
                Ok(true)
            }
            // The names lie on two file systems, the file has as many names as allowed, files of its kind cannot have
            // two, or its name leads elsewhere by now.
            Err(
                Errno::XDEV
                | Errno::MLINK
                | Errno::PERM
                | Errno::OPNOTSUPP
                | Errno::NOENT
                | Errno::STALE,
            ) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn open_first<'p>(&self, first: &'p FirstName) -> Result<OpenFirst<'p>, Errno> {
        let (dir, name) = (self.open_firsts(&first.folder)?, &first.name[..]);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&*dir, name, flags, Mode::empty())?;
        let stat = Stat::of(&fd)?;
        Ok(OpenFirst {
            dir,
            name,
            fd,
            stat,
        })
    }

    /// Opens the folder of a first name; the next first names are often in the same folder.
    fn open_firsts(&self, path: &Arc<[u8]>) -> Result<Arc<OwnedFd>, Errno> {
        let mut last = self.firsts.lock();
        if let Some((_, dir)) = last.as_ref().filter(|(is, _)| Arc::ptr_eq(is, path)) {
            return Ok(Arc::clone(dir));
        }
        *last = None;
        let dir = Arc::new(self.all.target.open_folder(path)?);
        *last = Some((Arc::clone(path), Arc::clone(&dir)));
        Ok(dir)
    }

    /// Whether the first name has the owner that it was given. Any other owner could write to the file behind a further
    /// name, wherever that is.
    fn is_owners(&self, entry: &Entry, first: &OpenFirst<'_>) -> bool {
        let expected = self.all.applier.uid_of(&entry.owner);
        let owners = &self.all.shown_owners;
        expected.is_none_or(|expected| owners.are_of(first.dir.as_fd(), &first.stat, expected))
    }

    /// Whether a first name that was there before has the snapshot's metadata still.
    fn has_metadata(&self, entry: &Entry, first: &OpenFirst<'_>) -> bool {
        let there = (&*first.dir, &first.fd, &first.stat);
        has_metadata(there, entry, self.all.applier, &self.all.times)
    }

    fn copy(&self, link: &Link, path: &[u8]) -> Result<()> {
        let (entry, meta) = (&link.entry, Meta::of(&link.entry));
        let failed = |e: Errno| self.io("create", path, e);
        let dir = self.folder_for(link.folder, entry.kind, entry.size);
        let Some(dir) = dir.map_err(failed)? else {
            return Ok(());
        };
        let make = |name: &[u8]| create(&dir, name);
        let (folder, wanted) = ((link.folder, &*dir), WantedEntry::of(entry, &meta).slowly());
        let made = self.make(folder, wanted, make);
        let Some((fd, place)) = made.map_err(failed)? else {
            return Ok(());
        };
        if let Err(e) = self.fill(&fd, entry, path) {
            place.give_up(&dir);
            return Err(e);
        }
        let missed = self.all.applier.to_open(fd.as_fd(), &meta);
        if !self.put(folder, wanted, place).map_err(failed)? {
            return Ok(());
        }
        drop(fd);
        self.all
            .tell_missed(&meta, missed, &link.metadata_outcome, || path.to_vec());
        let class = Class::of(self.device_of(link.folder), entry.kind, &meta);
        let at = (link.folder, &*entry.name);
        self.sample(class, at, &meta, &link.metadata_outcome);
        Ok(())
    }

    fn fill(&self, fd: &OwnedFd, entry: &Entry, path: &[u8]) -> Result<()> {
        let failed = |e: std::io::Error| self.io("write", path, e);
        let file = std::fs::File::from(fd.try_clone().map_err(failed)?);
        file.set_len(entry.size).map_err(failed)?;
        let mut reader = self.all.session.data_reader()?;
        let visited = visit_items(&entry.content, &mut reader, &mut |visit, reader| {
            self.all.progress.check()?;
            if let Visit::Data(slice, offset) = visit {
                let chunk = reader.read(&slice.chunk)?;
                let bytes = slice.of(&chunk);
                let written = std::os::unix::fs::FileExt::write_all_at(&file, bytes, offset);
                written.map_err(failed)?;
                self.all
                    .progress
                    .bytes_moved
                    .fetch_add(bytes.len() as u64, Relaxed);
            }
            Ok(true)
        });
        visited.map_err(|e| match e {
            Error::Io { .. } | Error::Cancelled => e,
            lost => self.all.target.lost(path, lost),
        })
    }
}

/// A folder of first names: its path in the target, and its descriptor.
pub type FirstFolder = (Arc<[u8]>, Arc<OwnedFd>);

/// The file found under a first name.
struct OpenFirst<'a> {
    dir: Arc<OwnedFd>,
    name: &'a [u8],
    fd: OwnedFd,
    stat: Stat,
}

impl OpenFirst<'_> {
    /// Gives the file a further name. The open file is linked, since its name may lead elsewhere by now: root may do so
    /// at once, other users through /proc. Where /proc is not mounted, the name is linked, and the result is looked at:
    /// `STALE` where it is another file.
    fn link_to(&self, dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        match rustix::fs::linkat(&self.fd, "", dir, name, AtFlags::EMPTY_PATH) {
            Err(Errno::NOENT | Errno::PERM | Errno::INVAL) => {}
            other => return other,
        }
        let path = by_descriptor(self.fd.as_fd());
        match rustix::fs::linkat(CWD, &path[..], dir, name, AtFlags::SYMLINK_FOLLOW) {
            Err(Errno::NOENT) => self.link_by_name(dir, name),
            other => other,
        }
    }

    fn link_by_name(&self, dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        rustix::fs::linkat(&*self.dir, self.name, dir, name, AtFlags::empty())?;
        let is_it = |there: Stat| {
            let expected = (self.stat.device, self.stat.inode);
            (there.device, there.inode) == expected
        };
        if Stat::at(dir, name, false).is_ok_and(is_it) {
            return Ok(());
        }
        let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        Err(Errno::STALE)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Another user who may write in the folder swaps the first name.
    #[test]
    fn a_name_that_leads_elsewhere_by_now_is_not_linked() {
        let place = tempfile::tempdir().expect("tempdir");
        let path = |name: &str| place.path().join(name);
        let open = || OwnedFd::from(fs::File::open(place.path()).expect("open"));
        fs::write(path("first"), "ours").expect("write");
        let fd = OwnedFd::from(fs::File::open(path("first")).expect("open"));
        let first = OpenFirst {
            dir: Arc::new(open()),
            name: b"first",
            stat: Stat::of(&fd).expect("stat"),
            fd,
        };
        let text = |name: &str| fs::read_to_string(path(name)).expect("read");
        assert_eq!(first.link_by_name(&open(), b"by-name"), Ok(()));
        assert_eq!(text("by-name"), "ours");
        fs::rename(path("first"), path("moved")).expect("rename");
        fs::write(path("first"), "theirs").expect("write");
        assert_eq!(first.link_by_name(&open(), b"again"), Err(Errno::STALE));
        assert!(!path("again").exists());
        assert_eq!(first.link_to(&open(), b"by-descriptor"), Ok(()));
        assert_eq!(text("by-descriptor"), "ours");
    }
}
