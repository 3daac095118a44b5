//! Reads a window back after it was restored: checks every chunk's fingerprint again, this time in the target, and all
//! metadata that was set.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use onefold_store::ContainerId;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

use super::apply::Meta;
use super::compare::{Callbacks, Comparing, differs, open_file};
use super::kept::{Difference, Times};
use super::lacking::{Kinds, MetadataOutcome};
use super::open_folders::{FolderError, OpenFolders, open};
use super::window::{File, FileState, Made, Use, Window};
use super::write::Writer;
use crate::meta::Stat;
use crate::open_files::folders_max;
use crate::{Entry, Error, Kind, Progress, Result};

/// Largest number of files that are remembered as read back: some 48 MiB.
const READ_BACK_MAX: usize = 1 << 21;

impl Writer<'_> {
    /// Reads the files of a window that was carried out, and reports those that differ. Returns how many are right,
    /// without the last file where it goes on in the next window.
    pub fn verify(&self, window: &Window, last_continues: bool) -> Result<u64> {
        let mut uses: Vec<&Use> = window.uses.iter().collect();
        uses.sort_unstable_by_key(|one| (one.file, one.offset));
        let (mut rest, mut verified) = (&uses[..], 0);
        let folders = Mutex::new(OpenFolders::new(folders_max()));
        let open = |number: u32| open(&folders, self.target, window, number);
        for (number, file) in window.files.iter().enumerate() {
            self.progress.check()?;
            let len = rest.partition_point(|one| one.file as usize <= number);
            let (own, others) = rest.split_at(len);
            rest = others;
            let is_whole = !last_continues || number + 1 < window.files.len();
            let made = match *file.state.lock() {
                FileState::Made(made) => Some(made),
                _ => None,
            };
            if is_whole {
                let read: u64 = own.iter().map(|one| u64::from(one.len)).sum();
                self.count_unread(file.size, made.map_or(0, |_| read));
            }
            let Some(made) = made else { continue };
            let folder = open(file.folder).map_err(|failed| failed.why.into());
            let compare = |folder: Arc<OwnedFd>| {
                self.verify_file(&folder, file, made, (own, &window.containers))?;
                Ok::<_, io::Error>(folder)
            };
            match folder.and_then(compare) {
                Ok(folder) => {
                    let at = (&*folder, &*file.name);
                    let path = || window.path_of(file);
                    self.verify_metadata(at, Kind::File, &file.meta, &file.metadata_outcome, path);
                    verified += u64::from(is_whole);
                }
                Err(e) => {
                    *file.state.lock() = FileState::Failed(Some(made));
                    let path = window.path_of(file);
                    self.failed(&path, &self.target.error("verify", &path, e));
                }
            }
        }
        self.remember_failed(window);
        for link in &window.links {
            let is_to_read = link.metadata_outcome.missed().is_some();
            if !is_to_read {
                self.count_unread(link.entry.size, 0);
                continue;
            }
            let path = window.path_in(link.folder, &link.entry.name);
            let folder =
                open(link.folder).map_err(|failed| self.target.error("verify", &path, failed.why));
            let compare = |folder: Arc<OwnedFd>| {
                let is_first = self.verify_further_name(&folder, &link.entry, &path)?;
                Ok((folder, is_first))
            };
            match folder.and_then(compare) {
                Ok((_, false)) => self.count_unread(link.entry.size, 0),
                Ok((folder, true)) => {
                    verified += 1;
                    let (at, meta) = ((&*folder, &*link.entry.name), Meta::of(&link.entry));
                    let path = || path.clone();
                    self.verify_metadata(at, Kind::File, &meta, &link.metadata_outcome, path);
                }
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(e) => self.failed(&path, &e),
            }
        }
        self.verify_specials(window, &open)?;
        self.verify_folders(window, &open)?;
        Ok(verified)
    }

    /// Counts bytes of a file that are not read back here, as progress: of `size` bytes only `read` are read. The
    /// others are holes, stay as they were, have failed, or were read under another name or in the window before.
    fn count_unread(&self, size: u64, read: u64) {
        let unread = size.saturating_sub(read);
        Progress::add(&self.progress.bytes_verified, unread);
    }

    fn verify_specials(&self, window: &Window, open: &OpenIn<'_>) -> Result<()> {
        for special in &window.specials {
            self.progress.check()?;
            let entry = &special.entry;
            let path = || window.path_in(special.folder, &entry.name);
            if special.metadata_outcome.missed().is_none() {
                continue;
            }
            match open(special.folder) {
                Ok(folder) => {
                    let (at, meta) = ((&*folder, &*entry.name), Meta::of(entry));
                    self.verify_metadata(at, entry.kind, &meta, &special.metadata_outcome, path);
                }
                Err(failed) => {
                    let path = path();
                    self.failed(&path, &self.target.error("verify", &path, failed.why));
                }
            }
        }
        Ok(())
    }

    fn verify_folders(&self, window: &Window, open: &OpenIn<'_>) -> Result<()> {
        for (number, folder) in window.folders.iter().enumerate() {
            self.progress.check()?;
            let Some(meta) = &folder.meta else { continue };
            let path = || window.path(number as u32);
            if folder.metadata_outcome.missed().is_none() {
                continue;
            }
            match open(folder.parent) {
                Ok(above) => {
                    let at = (&*above, &*folder.name);
                    self.verify_metadata(at, Kind::Dir, meta, &folder.metadata_outcome, path);
                }
                Err(failed) => {
                    let path = path();
                    self.failed(&path, &self.target.error("verify", &path, failed.why));
                }
            }
        }
        Ok(())
    }

    /// Compares the metadata of `name` in `dir` with the metadata that was set, and reports what differs. Kinds that
    /// could not be set were reported then.
    pub(super) fn verify_metadata(
        &self,
        at: (&OwnedFd, &[u8]),
        kind: Kind,
        meta: &Meta,
        outcome: &MetadataOutcome,
        path: impl FnOnce() -> Vec<u8>,
    ) {
        let Some(missed) = outcome.missed() else {
            return;
        };
        match self.metadata_differences(at, kind, meta, missed) {
            Ok(found) => drop(self.tell_differences(found, missed, path)),
            Err(e) => {
                let path = path();
                self.failed(&path, &self.target.error("verify", &path, e));
            }
        }
    }

    /// Compares metadata as [`verify_metadata`](Self::verify_metadata) does. Returns whether it differs. An entry that
    /// is not there any more was changed by another program, and counts as kept.
    pub(super) fn sample_differs(
        &self,
        at: (&OwnedFd, &[u8]),
        kind: Kind,
        meta: &Meta,
        outcome: &MetadataOutcome,
        path: impl FnOnce() -> Vec<u8>,
    ) -> bool {
        let Some(missed) = outcome.missed() else {
            return false;
        };
        let found = self.metadata_differences(at, kind, meta, missed);
        found.is_ok_and(|found| self.tell_differences(found, missed, path))
    }

    /// Returns the differences between the metadata of `name` in `dir` and the metadata that was set, except those in
    /// `missed` kinds. Errors: the name leads to nothing, or to a thing of another kind.
    fn metadata_differences(
        &self,
        (dir, name): (&OwnedFd, &[u8]),
        kind: Kind,
        meta: &Meta,
        missed: Kinds,
    ) -> io::Result<Vec<Difference>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        let there = Stat::of(&fd)?;
        if there.kind != kind {
            return differs(format!("it is a {} now", there.kind.word()));
        }
        // Try things out at the target's root if it is on the same device, so that no other folder of the user is
        // touched.
        let is_roots = |root: Stat| root.device == there.device;
        let trial = || {
            if Stat::of(self.target.root()).is_ok_and(is_roots) {
                self.target.root()
            } else {
                dir
            }
        };
        let times = Times {
            is_same: |wanted| self.times.is_same(trial().as_fd(), wanted, &there),
            keeps_access: || self.times.has_access(trial().as_fd(), there.device),
        };
        let mut found = self.applier.differences(fd.as_fd(), &there, meta, times);
        found.retain(|difference| !missed.has(difference.what));
        Ok(found)
    }

    /// Reports the differences of an entry, and counts it. Returns whether there are any.
    fn tell_differences(
        &self,
        found: Vec<Difference>,
        missed: Kinds,
        path: impl FnOnce() -> Vec<u8>,
    ) -> bool {
        let kinds: Kinds = found.iter().map(|difference| difference.what).collect();
        if kinds.is_empty() {
            return false;
        }
        self.lacks(kinds, missed.is_empty());
        let path = path();
        for difference in found {
            let why = io::Error::new(ErrorKind::InvalidData, difference.how);
            let error = self.target.error("verify", &path, why);
            self.events.lacking(&path, difference.what, &error);
        }
        true
    }

    fn verify_file(
        &self,
        folder: &OwnedFd,
        file: &File,
        made: Made,
        (uses, containers): (&[&Use], &[ContainerId]),
    ) -> io::Result<()> {
        let name = made.place.name(&file.name);
        let opened = open_file(folder, &name, file.size)?;
        let mut comparing = Comparing::new(self.session, &opened);
        uses.iter().try_for_each(|one| {
            let slice = one.slice(containers[one.container as usize]);
            Progress::add(&self.progress.bytes_verified, slice.len.into());
            comparing.compare(&slice, one.offset, None)
        })
    }

    /// Verifies a further name of a file that got the content itself, or was linked to a name that was there before.
    /// Returns false where that file was read back under another name.
    fn verify_further_name(&self, folder: &OwnedFd, entry: &Entry, path: &[u8]) -> Result<bool> {
        let failed = |e: io::Error| self.target.error("verify", path, e);
        let opened = open_file(folder, &entry.name, entry.size).map_err(failed)?;
        let there = Stat::of(&opened).map_err(|e| failed(e.into()))?;
        {
            let (file, mut read_back) = ((there.device, there.inode), self.read_back.lock());
            if read_back.contains(&file) {
                return Ok(false);
            }
            // Further files may be read more often than once.
            if read_back.len() < READ_BACK_MAX {
                read_back.insert(file);
            }
        }
        let mut reader = self.session.data_reader()?;
        let callbacks = Callbacks {
            step: &|bytes| {
                Progress::add(&self.progress.bytes_verified, bytes);
                self.progress.check()
            },
            failed: &failed,
        };
        Comparing::new(self.session, &opened).compare_all(entry, &mut reader, &callbacks)?;
        Ok(true)
    }
}

/// Opens a folder of a window, by its number.
type OpenIn<'a> = dyn Fn(u32) -> std::result::Result<Arc<OwnedFd>, FolderError> + 'a;
