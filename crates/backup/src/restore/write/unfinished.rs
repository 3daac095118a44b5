//! Files that are not completed: told once each, and marked so that they pass for none that is whole.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::made::reopen;
use super::{Run, make::Wanted};
use crate::Error;
use crate::restore::times::mark_unfinished;
use crate::restore::window::{File, State, Use};

impl Run<'_> {
    /// What the repository does not give is lost to each file that wants it.
    pub(super) fn lost(&self, group: &[Use], error: Error) {
        let error = Arc::new(error);
        for files in group.chunk_by(|a, b| a.file == b.file) {
            let file = &self.window.files[files[0].file as usize];
            self.fail(file, |path| self.all.target.lost(path, Arc::clone(&error)));
            self.arrived(files[0].file, files.len() as u32, None);
        }
    }

    /// A file fails, once, unless what is there stays anyway.
    pub(super) fn fail(&self, file: &File, error: impl FnOnce(&[u8]) -> Error) {
        let mut state = file.state.lock();
        if *state == State::Planned && self.stays_anyway(file) {
            *state = State::Skipped;
        }
        if matches!(*state, State::Skipped | State::Failed) {
            return;
        }
        *state = State::Failed;
        drop(state);
        let path = self.path(file);
        self.failed(&path, &error(&path));
        self.all.tally.failed_file(file.size);
    }

    /// Whether a file that nothing was done for yet has something in its place that stays.
    fn stays_anyway(&self, file: &File) -> bool {
        let folder = &self.window.folders[file.folder as usize].path;
        let Ok(dir) = self.all.target.open_folder(folder) else {
            return false;
        };
        self.stays((file.folder, &dir), Wanted::of_file(file))
            .unwrap_or(false)
    }

    /// A file that this restore has made and cannot complete looks like no file of the snapshot, nor like one that is newer.
    pub(super) fn mark_unfinished(&self, file: &File) {
        let inode = file.inode.load(Relaxed);
        if inode != 0
            && let Ok(dir) = self.folder(file.folder)
            && let Ok(made) = reopen(&dir, &file.name, inode)
        {
            mark_unfinished(&made, file.meta.mtime);
        }
    }
}
