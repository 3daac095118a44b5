//! Folders of a window: made when something goes into them, given their metadata when everything is there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::Mode;
use rustix::io::Errno;

use super::WindowRun;
use crate::meta::Stat;
use crate::restore::apply::Meta;
use crate::restore::open_folders::{FolderError, open};
use crate::restore::samples::Class;
use crate::restore::shut;
use crate::restore::target::{make_folder, open_beneath};
use crate::restore::unfinished;
use crate::restore::window::{FolderFate, WindowFolder};
use crate::{Change, Kind, Progress};

impl WindowRun<'_> {
    /// Returns a folder of the window; it and those above it are made where they are missing. `EXIST`: something else
    /// stays in its place, or in that of one above.
    pub(super) fn folder(&self, number: u32) -> Result<Arc<OwnedFd>, Errno> {
        let ready = |number| self.folders.lock().ready(number);
        // Numbers of the missing or shut folders, the innermost first.
        let mut missing = Vec::new();
        let mut at = number;
        let mut above = loop {
            if let Some(folder) = ready(at) {
                break folder;
            }
            let failed = match self.open(at) {
                Ok(folder) => break self.make_ready(at, folder, false)?,
                Err(failed) => failed,
            };
            let is_missing = matches!(
                failed.why,
                Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS
            );
            if !is_missing || failed.at == 0 {
                return Err(failed.why);
            }
            let mut way = self.window.way_up(at);
            while let Some(one) = way.next()
                && one != failed.at
            {
                missing.push(one);
            }
            missing.push(failed.at);
            at = self.window.folders[failed.at as usize].parent;
        };
        while let Some(number) = missing.pop() {
            above = match ready(number) {
                Some(folder) => folder,
                None => self.go_into(&above, number)?,
            };
        }
        Ok(above)
    }

    /// Returns a folder that lies in `above`, and makes it where it is missing.
    fn go_into(&self, above: &OwnedFd, number: u32) -> Result<Arc<OwnedFd>, Errno> {
        let folder = &self.window.folders[number as usize];
        let open = || open_beneath(above.as_fd(), &folder.name);
        let (opened, is_new) = match open() {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                let gives_way = |there: &Stat| {
                    self.must_be_exact((folder.parent, above), &folder.name)?;
                    Ok(!self.keeps(number, above.as_fd(), there))
                };
                // A folder without known metadata looks as new folders do.
                let mode = folder
                    .meta
                    .as_ref()
                    .map_or(Mode::RWXU, |_| unfinished::FOLDER);
                make_folder(above, &folder.name, mode, gives_way)?
            }
            // The folder gets its mode at the end, or its own one again, so it may be opened to its owner until then.
            Err(Errno::ACCESS) if folder.meta.is_some() => {
                self.decide(number, above.as_fd(), || {
                    Stat::at(above, &folder.name, false)
                })?;
                self.was_shut(number, shut::let_into(above, &folder.name)?);
                (open()?, false)
            }
            other => (other?, false),
        };
        self.make_ready(number, Arc::new(opened), is_new)
    }

    /// Checks that things may go into a folder, and lets its owner in.
    fn make_ready(
        &self,
        number: u32,
        opened: Arc<OwnedFd>,
        is_new: bool,
    ) -> Result<Arc<OwnedFd>, Errno> {
        let has_meta = self.window.folders[number as usize].meta.is_some();
        if is_new {
            // The folder above has exactly the snapshot's name, so this new one has, too.
            self.exact.lock().insert(number);
        } else {
            self.must_lead_exactly(number)?
        }
        let device = if is_new {
            // A new folder is on the device of the folder above.
            self.device_of(self.window.folders[number as usize].parent)
        } else {
            self.all.target.note(&opened)?
        };
        self.window.folders[number as usize]
            .device
            .store(device, Relaxed);
        if self.is_kept(&opened, number)? {
            return Err(Errno::PERM);
        }
        if is_new {
            *self.window.folders[number as usize].fate.lock() = FolderFate::Described;
        } else if has_meta {
            self.decide(number, opened.as_fd(), || Stat::of(&opened))?;
            self.was_shut(number, shut::let_in(&opened)?);
        }
        self.folders
            .lock()
            .insert_ready(number, Arc::clone(&opened));
        Ok(opened)
    }

    /// Returns the device of a folder that the restore went into.
    pub(super) fn device_of(&self, folder: u32) -> u64 {
        self.window.folders[folder as usize].device.load(Relaxed)
    }

    /// Decides about the metadata of an existing folder, where that is not decided yet; `dir` is in its file system.
    /// The thread that has just made the folder may decide otherwise, and is right.
    fn decide(
        &self,
        number: u32,
        dir: BorrowedFd<'_>,
        there: impl FnOnce() -> Result<Stat, Errno>,
    ) -> Result<(), Errno> {
        let folder = &self.window.folders[number as usize];
        let mut fate = folder.fate.lock();
        if *fate == FolderFate::Unknown {
            let there = there()?;
            let is_same = |mtime| self.all.times.is_same(dir, mtime, &there);
            *fate = FolderFate::of(folder, &there, self.all.options.overwrite, is_same);
        }
        Ok(())
    }

    /// Remembers the mode that a folder had before its owner was let in.
    fn was_shut(&self, number: u32, mode: Option<u16>) {
        if let Some(mode) = mode {
            self.shut.lock().entry(number).or_insert(mode);
        }
    }

    /// Gives folders that their owner was let into their own modes back, the deepest first.
    pub(super) fn shut_all_again(&self) {
        for number in (0..self.window.folders.len() as u32).rev() {
            self.shut_again(number);
        }
    }

    fn shut_again(&self, number: u32) {
        let mode = self.shut.lock().remove(&number);
        if let Some(mode) = mode
            && let Ok(folder) = self.open(number)
        {
            shut::shut_again(&folder, mode);
        }
    }

    /// Opens a folder that is there, in any state.
    pub(super) fn open(&self, number: u32) -> Result<Arc<OwnedFd>, FolderError> {
        open(&self.folders, self.all.target, self.window, number)
    }

    /// Runs `open`; again with fewer folders open where the process has too many open files.
    pub(super) fn with_room<T>(&self, open: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        loop {
            match open() {
                Err(Errno::MFILE) if self.folders.lock().give_up_half() => {}
                other => return other,
            }
        }
    }

    /// Whether the thing in `dir` stays instead of the folder.
    fn keeps(&self, number: u32, dir: BorrowedFd<'_>, there: &Stat) -> bool {
        let folder = &self.window.folders[number as usize];
        let path = || self.window.path(number);
        if self.all.leading.keeps(dir, &folder.name, there, path) {
            return true;
        }
        let mtime = folder.meta.as_ref().map(|meta| meta.mtime);
        let is_same = |mtime| self.all.times.is_same(dir, mtime, there);
        let overwrite = self.all.options.overwrite;
        overwrite.keeps_for_folder(there, mtime, is_same)
    }

    /// Returns the folder into which something of this kind and size is to go. Where something else stays in the
    /// folder's place, everything that would be in it counts as staying.
    pub(super) fn folder_for(
        &self,
        number: u32,
        kind: Kind,
        size: u64,
    ) -> Result<Option<Arc<OwnedFd>>, Errno> {
        match self.folder(number) {
            Err(Errno::EXIST) => {
                self.all.stayed(kind, size);
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Whether something stays in place of the folder above: then the outermost such folder is reported.
    fn is_below_what_stays(&self, folder: &WindowFolder) -> bool {
        matches!(self.folder(folder.parent), Err(Errno::EXIST))
    }

    /// Returns the thing that stands where a folder is to be.
    fn in_place_of(&self, folder: &WindowFolder) -> Option<Stat> {
        let above = self.folder(folder.parent).ok()?;
        Stat::at(&*above, &folder.name, false).ok()
    }

    /// Whether the folder is one of the repository's, into which nothing is restored; if so, a warning says it.
    fn is_kept(&self, opened: &OwnedFd, number: u32) -> Result<bool, Errno> {
        if self.all.options.kept.is_empty() {
            return Ok(false);
        }
        let is_kept = self.all.options.keeps(&Stat::of(opened)?);
        if is_kept && !self.all.tells_kept.swap(true, Relaxed) {
            let what = "nothing is restored here: the repository that is restored from is here";
            self.all.events.warning(&self.window.path(number), what);
        }
        Ok(is_kept)
    }

    /// Sets the metadata of complete folders, unless they keep their own. The deepest come first: a folder's new mode
    /// may lock us out of those below.
    pub(super) fn finish_folders(&self) {
        for (number, folder) in self.window.folders.iter().enumerate().rev() {
            let number = number as u32;
            if let Some(meta) = folder.meta.as_ref().filter(|_| !folder.continues) {
                match self.with_room(|| self.folder(number)) {
                    Ok(fd) => self.finish_folder(number, &fd, meta),
                    Err(e) => self.fail_folder(number, e),
                }
                Progress::add(&self.all.progress.dirs_done, 1);
            }
            self.shut_again(number);
        }
    }

    fn finish_folder(&self, number: u32, fd: &OwnedFd, meta: &Meta) {
        let folder = &self.window.folders[number as usize];
        let path = || self.window.path(number);
        let is_kept = *folder.fate.lock() == FolderFate::Kept;
        if !is_kept {
            let missed = self.all.applier.to_open(fd.as_fd(), meta);
            self.shut.lock().remove(&number);
            self.all
                .tell_missed(meta, missed, &folder.metadata_outcome, path);
            let class = Class::of(self.device_of(number), Kind::Dir, meta);
            let at = (folder.parent, &*folder.name);
            self.sample(class, at, meta, &folder.metadata_outcome);
        } else if folder.is_asked_for {
            self.all.tally.skipped_dirs.fetch_add(1, Relaxed);
        } else {
            return;
        }
        if self.all.events.wants_entries() {
            let change = if is_kept {
                Change::Unchanged
            } else {
                Change::New
            };
            self.all.events.entry(&path(), change, 0);
        }
    }

    fn fail_folder(&self, number: u32, why: Errno) {
        let folder = &self.window.folders[number as usize];
        let count = u64::from(folder.is_asked_for);
        self.all.tally.failed_dirs.fetch_add(count, Relaxed);
        if why != Errno::EXIST || !self.is_below_what_stays(folder) {
            let path = self.window.path(number);
            let there = self.in_place_of(folder);
            let why = self.all.leading.explain(why, there.as_ref(), &path);
            self.failed(&path, &self.io("create the folder", &path, why));
        }
    }
}
