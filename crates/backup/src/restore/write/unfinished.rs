//! Files that are not completed: each is reported once and removed, so that it does not pass for a complete one.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::MutexGuard;
use rustix::fs::AtFlags;

use super::made::reopen;
use super::{WindowRun, make::WantedEntry};
use crate::Error;
use crate::meta::Stat;
use crate::restore::target::TargetFolder;
use crate::restore::temporary::CurrentName;
use crate::restore::window::{File, FileState, Made, Use, Window};

impl WindowRun<'_> {
    /// Fails each file that wants a chunk which the repository does not give.
    pub(super) fn lost(&self, group: &[Use], error: Error) {
        let error = Arc::new(error);
        for files in group.chunk_by(|a, b| a.file == b.file) {
            let file = &self.window.files[files[0].file as usize];
            self.fail(file, |path| self.all.target.lost(path, Arc::clone(&error)));
            self.arrived(files[0].file, files.len() as u32, None);
        }
    }

    /// Fails a file, once, unless the file in the target stays anyway.
    pub(super) fn fail(&self, file: &File, error: impl FnOnce(&[u8]) -> Error) {
        let mut state = file.state.lock();
        if *state == FileState::Planned && self.stays_anyway(file) {
            *state = FileState::Skipped;
        }
        self.fail_in(file, state, error);
    }

    /// Fails a file whose state is locked. It is marked as failed before the lock is released: otherwise another thread
    /// would report an error that only follows from this one.
    pub(super) fn fail_in(
        &self,
        file: &File,
        mut state: MutexGuard<'_, FileState>,
        error: impl FnOnce(&[u8]) -> Error,
    ) {
        if matches!(*state, FileState::Skipped | FileState::Failed(_)) {
            return;
        }
        *state = FileState::Failed(state.made());
        drop(state);
        let path = self.path(file);
        self.failed(&path, &error(&path));
        self.all.tally.failed_file(file.size);
    }

    /// Whether a file that nothing was done for yet has something in its place that stays.
    fn stays_anyway(&self, file: &File) -> bool {
        let Ok(dir) = self.open(file.folder) else {
            return false;
        };
        if self.must_be_exact((file.folder, &dir), &file.name).is_err() {
            return false;
        }
        let there = Stat::at(&dir, &file.name, false);
        there.is_ok_and(|there| self.stays((file.folder, &dir), WantedEntry::of_file(file), &there))
    }

    pub(super) fn give_up(&self, file: &File, made: Made) {
        if let Ok(dir) = self.folder(file.folder) {
            give_up(&dir, &file.name, made);
        }
    }
}

/// Removes a file that this restore has made and cannot complete.
fn give_up(dir: &OwnedFd, name: &[u8], made: Made) {
    match made.place {
        CurrentName::Hidden(_) | CurrentName::Beside(_) => made.place.give_up(dir),
        CurrentName::Own => {
            if reopen(dir, name, made).is_ok() {
                let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
            }
        }
    }
}

/// The last file of a window, which goes on in the next.
pub struct Begun {
    /// State of the file at the end of the window.
    pub state: FileState,
    folder: Vec<u8>,
    name: Box<[u8]>,
}

impl Begun {
    /// Returns the last file of this window.
    pub fn last_of(window: &Window) -> Option<Self> {
        let file = window.files.last()?;
        Some(Self {
            state: *file.state.lock(),
            folder: window.path(file.folder),
            name: file.name.clone(),
        })
    }

    /// Removes the file, which will not go on.
    pub fn give_up(&self, target: &TargetFolder) {
        if let Some(made) = self.state.made()
            && let Ok(dir) = target.open_folder(&self.folder)
        {
            give_up(&dir, &self.name, made);
        }
    }
}
