//! Files of a window: made when their first chunk arrives, completed when the last one is written.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::WindowRun;
use super::made::reopen;
use super::make::WantedEntry;
use crate::meta::Stat;
use crate::restore::batch::FilePart;
use crate::restore::output::Output;
use crate::restore::samples::Class;
use crate::restore::temporary::CurrentName;
use crate::restore::unfinished;
use crate::restore::window::{File, FileState, Made};
use crate::{Kind, Progress};

/// Makes a new file, which no other user can read before it is complete, and whose mode marks it as incomplete.
pub(super) fn create(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, unfinished::FILE)
}

impl WindowRun<'_> {
    pub(super) fn write_file(&self, number: u32, pieces: &[FilePart], buffer: &[u8]) {
        let chunks = pieces.iter().filter(|piece| piece.len > 0).count() as u32;
        let opened = self.with_room(|| self.open_file(number, chunks));
        let result = opened.and_then(|output| {
            if let Some(output) = &output {
                output.write_places(pieces, buffer)?;
                let written: usize = pieces.iter().map(|piece| piece.len).sum();
                Progress::add(&self.all.progress.bytes_moved, written as u64);
            }
            Ok(output)
        });
        match result {
            Ok(output) => self.arrived(number, chunks, output),
            Err(e) => {
                let file = &self.window.files[number as usize];
                self.fail(file, |path| self.io("write", path, e));
                self.arrived(number, chunks, None);
            }
        }
    }

    /// Notes that `chunks` chunks of a file are done; the thread that is done with the last ones completes the file.
    pub(super) fn arrived(&self, number: u32, chunks: u32, output: Option<Output>) {
        let file = &self.window.files[number as usize];
        let is_last = if chunks == 0 {
            file.to_come() == 0
        } else {
            file.arrived(chunks)
        };
        if !is_last {
            return;
        }
        self.large.close(number);
        let state = *file.state.lock();
        if let (FileState::Made(made), Some(output)) = (state, output) {
            self.complete(file, made, output);
        }
        let state = *file.state.lock();
        if let FileState::Failed(Some(made)) = state {
            self.give_up(file, made);
        }
        if matches!(state, FileState::Made(_) | FileState::Skipped) {
            Progress::add(&self.all.progress.files_done, 1);
            Progress::add(&self.all.progress.bytes_done, file.size);
        }
    }

    /// Completes a file whose content is all there, and closes it.
    fn complete(&self, file: &File, made: Made, output: Output) {
        let missed = self.all.applier.to_open(output.as_fd(), &file.meta);
        let put = self
            .folder(file.folder)
            .and_then(|dir| self.put((file.folder, &dir), WantedEntry::of_file(file), made.place));
        match put {
            Ok(true) => {}
            Ok(false) => return *file.state.lock() = FileState::Skipped,
            Err(e) => return self.fail(file, |path| self.io("replace", path, e)),
        }
        *file.state.lock() = FileState::Made(Made {
            place: CurrentName::Own,
            ..made
        });
        // Some file systems change metadata when a file is closed.
        drop(output);
        let path = || self.path(file);
        self.all
            .tell_missed(&file.meta, missed, &file.metadata_outcome, path);
        let class = Class::of(self.device_of(file.folder), Kind::File, &file.meta);
        let at = (file.folder, &*file.name);
        self.sample(class, at, &file.meta, &file.metadata_outcome);
        if self.shown.swap(file.folder, Relaxed) != file.folder {
            *self.all.progress.current.lock() = self.window.path(file.folder);
        }
    }

    /// Returns the file open for writing, and makes it where this is its first use; `None` where nothing is to be
    /// written. The file is about to get `chunks` chunks.
    fn open_file(&self, number: u32, chunks: u32) -> Result<Option<Output>, Errno> {
        let file = &self.window.files[number as usize];
        let mut state = file.state.lock();
        let dir = match *state {
            FileState::Skipped | FileState::Failed(_) => return Ok(None),
            FileState::Planned => match self.folder_for(file.folder, Kind::File, file.size)? {
                Some(dir) => dir,
                None => {
                    *state = FileState::Skipped;
                    return Ok(None);
                }
            },
            FileState::Made(_) | FileState::Resumed(_) => self.folder(file.folder)?,
        };
        if let FileState::Made(made) = *state {
            return match self.large.get(number) {
                Some(large) => Ok(Some(large)),
                None => reopen(&dir, &file.name, made).map(|fd| Some(Output::Small(fd))),
            };
        }
        if let FileState::Resumed(made) = *state {
            let fd = reopen(&dir, &file.name, made)?;
            let output = self.large.made(number, fd, file.size, false)?;
            *state = FileState::Made(made);
            return Ok(Some(output));
        }
        let folder = (file.folder, &*dir);
        let wanted = if chunks == file.to_come() {
            WantedEntry::of_file(file)
        } else {
            WantedEntry::of_file(file).slowly()
        };
        let new = self.make(folder, wanted, |name| create(&dir, name))?;
        let Some((fd, place)) = new else {
            *state = FileState::Skipped;
            return Ok(None);
        };
        let inode = Stat::of(&fd)?.inode;
        // From here on the file is the restore's own, not an earlier one that could stay as it was.
        *state = FileState::Made(Made { inode, place });
        let sized = if file.set_size {
            rustix::fs::ftruncate(&fd, file.size)
        } else {
            Ok(())
        };
        let output = sized.and_then(|()| self.large.made(number, fd, file.size, !file.set_size));
        match output {
            Ok(output) => Ok(Some(output)),
            Err(e) => {
                // The file is empty and will stay so: remove it.
                let name = place.name(&file.name);
                let _ = rustix::fs::unlinkat(&*dir, name, rustix::fs::AtFlags::empty());
                self.fail_in(file, state, |path| self.io("write", path, e));
                Ok(None)
            }
        }
    }
}
