//! The folders of a window: made when something goes into them, described when everything is there.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;

use super::Run;
use crate::meta::Stat;
use crate::path::split;
use crate::restore::shut;
use crate::restore::window::Folder;
use crate::{Change, Kind, Progress};

/// Descriptors of folders, the oldest given up first.
pub(super) struct OpenFolders {
    open: HashMap<u32, Arc<OwnedFd>>,
    order: VecDeque<u32>,
    max: usize,
}

impl OpenFolders {
    /// None yet, and never more than `max`.
    pub fn new(max: usize) -> Self {
        Self {
            open: HashMap::new(),
            order: VecDeque::new(),
            max,
        }
    }

    fn insert(&mut self, number: u32, folder: Arc<OwnedFd>) {
        if self.open.insert(number, folder).is_none() {
            self.order.push_back(number);
        }
        self.keep(self.max);
    }

    /// Gives up half of them, and keeps no more from then on. Whether there were any.
    fn give_up_half(&mut self) -> bool {
        let had = self.order.len();
        self.max = (had / 2).max(1);
        self.keep(had / 2);
        had > 0
    }

    fn keep(&mut self, most: usize) {
        while self.order.len() > most
            && let Some(oldest) = self.order.pop_front()
        {
            self.open.remove(&oldest);
        }
    }
}

impl Run<'_> {
    /// A folder of the window, made with those above it where they are missing. `EXIST`: something else stays in its place, or in that of one above.
    pub(super) fn folder(&self, number: u32) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(fd) = self.folders.lock().open.get(&number) {
            return Ok(fd.clone());
        }
        let folder = &self.window.folders[number as usize];
        let (opened, is_new) = match self.all.target.open_folder(&folder.path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if folder.parent != number => {
                self.folder(folder.parent)?;
                let gives_way = |dir: &OwnedFd, there: &Stat| {
                    self.must_be_exact((folder.parent, dir), split(&folder.path).1)?;
                    Ok(!self.keeps(folder, dir.as_fd(), there))
                };
                self.all.target.make_folder(&folder.path, gives_way)?
            }
            // It gets its mode in the end, and may be shut until then.
            Err(Errno::ACCESS) if folder.meta.is_some() => {
                let above = self.folder(folder.parent)?;
                shut::let_into(&above, split(&folder.path).1)?;
                (self.all.target.open_folder(&folder.path)?, false)
            }
            other => (other?, false),
        };
        if !is_new {
            self.must_lead_exactly(number)?;
        }
        if self.is_kept(&opened, &folder.path)? {
            return Err(Errno::PERM);
        }
        if folder.meta.is_some() && !is_new {
            shut::let_in(&opened)?;
        }
        let fd = Arc::new(opened);
        self.folders.lock().insert(number, fd.clone());
        Ok(fd)
    }

    /// A folder that was there, and those above it, have the names that the snapshot says. Open is one at a time, however deep they lie.
    fn must_lead_exactly(&self, number: u32) -> Result<(), Errno> {
        let (mut at, mut checked) = (number, Vec::new());
        loop {
            let folder = &self.window.folders[at as usize];
            if folder.parent == at || self.exact.lock().contains(&at) {
                self.exact.lock().extend(checked);
                return Ok(());
            }
            let (above, name) = split(&folder.path);
            let above = match self.all.target.open_folder(above) {
                // It is let into on the way.
                Err(Errno::ACCESS) => self.folder(folder.parent)?,
                other => Arc::new(other?),
            };
            self.must_be_exact((folder.parent, &above), name)?;
            checked.push(at);
            at = folder.parent;
        }
    }

    /// Does what opens something; again with fewer folders open where too many files are.
    pub(super) fn with_room<T>(&self, open: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        loop {
            match open() {
                Err(Errno::MFILE) if self.folders.lock().give_up_half() => {}
                other => return other,
            }
        }
    }

    /// Whether what is there, in `dir`, stays instead of the folder.
    fn keeps(&self, folder: &Folder, dir: BorrowedFd<'_>, there: &Stat) -> bool {
        let mtime = folder.meta.as_ref().map(|meta| meta.mtime);
        let is_same = |mtime| self.all.times.is_same(dir, mtime, there);
        let overwrite = self.all.options.overwrite;
        overwrite.keeps_for_folder(there, mtime, is_same)
    }

    /// The folder into which something of this kind and size is to go; where something else stays in its place, so does what would be in it, and counts as such.
    pub(super) fn folder_for(
        &self,
        number: u32,
        kind: Kind,
        size: u64,
    ) -> Result<Option<Arc<OwnedFd>>, Errno> {
        match self.folder(number) {
            Err(Errno::EXIST) => {
                self.all.tally.stayed(kind, size);
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Whether something stays in place of the folder that this one lies in: that is told of the outermost.
    fn is_below_what_stays(&self, folder: &Folder) -> bool {
        matches!(self.folder(folder.parent), Err(Errno::EXIST))
    }

    /// Whether it is one of the repository's, into which nothing is restored; that is said.
    fn is_kept(&self, opened: &OwnedFd, path: &[u8]) -> Result<bool, Errno> {
        if self.all.options.kept.is_empty() {
            return Ok(false);
        }
        let is_kept = self.all.options.keeps(&Stat::of(opened)?);
        if is_kept && !self.all.tells_kept.swap(true, Relaxed) {
            let what = "nothing is restored here: the repository that is restored from is here";
            self.all.events.warning(path, what);
        }
        Ok(is_kept)
    }

    /// Folders that are complete get their metadata, the deepest first: what they are set to may lock us out of what is below.
    pub(super) fn finish_folders(&self) {
        for (number, folder) in self.window.folders.iter().enumerate().rev() {
            let Some(meta) = folder.meta.as_ref().filter(|_| !folder.continues) else {
                continue;
            };
            match self.with_room(|| self.folder(number as u32)) {
                Ok(fd) => {
                    self.tell_missed(self.all.applier.to_open(fd.as_fd(), meta), || {
                        folder.path.clone()
                    });
                    if self.all.events.wants_entries() {
                        self.all.events.entry(&folder.path, Change::New, 0);
                    }
                }
                Err(e) => {
                    self.all.tally.failed_dirs.fetch_add(1, Relaxed);
                    if e != Errno::EXIST || !self.is_below_what_stays(folder) {
                        let error = self.io("create the folder", &folder.path, e);
                        self.failed(&folder.path, &error);
                    }
                }
            }
            Progress::add(&self.all.progress.dirs_done, 1);
        }
    }
}
