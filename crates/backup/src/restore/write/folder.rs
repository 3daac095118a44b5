//! The folders of a window: made when something goes into them, described when everything is there.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;

use super::Run;
use crate::meta::Stat;
use crate::restore::Overwrite;
use crate::{Change, Progress};

/// Folders kept open.
const FOLDERS_OPEN_MAX: usize = 384;

/// Descriptors of folders, the oldest given up first.
#[derive(Default)]
pub(super) struct OpenFolders {
    open: HashMap<u32, Arc<OwnedFd>>,
    order: VecDeque<u32>,
}

impl Run<'_> {
    /// A folder of the window, made with those above it where they are missing.
    pub(super) fn folder(&self, number: u32) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(fd) = self.folders.lock().open.get(&number) {
            return Ok(fd.clone());
        }
        let folder = &self.window.folders[number as usize];
        let opened = match self.all.target.open_folder(&folder.path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if folder.parent != number => {
                self.folder(folder.parent)?;
                self.all
                    .target
                    .make_folder(&folder.path, self.all.options.overwrite != Overwrite::Never)?
            }
            other => other?,
        };
        if self.is_kept(&opened, &folder.path)? {
            return Err(Errno::PERM);
        }
        let fd = Arc::new(opened);
        let mut folders = self.folders.lock();
        if folders.open.insert(number, fd.clone()).is_none() {
            folders.order.push_back(number);
        }
        if folders.order.len() > FOLDERS_OPEN_MAX
            && let Some(oldest) = folders.order.pop_front()
        {
            folders.open.remove(&oldest);
        }
        Ok(fd)
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
            match self.folder(number as u32) {
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
                    let error = self.io("create the folder", &folder.path, e);
                    self.failed(&folder.path, &error);
                }
            }
            Progress::add(&self.all.progress.dirs_done, 1);
        }
    }
}
