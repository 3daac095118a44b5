//! What goes together to the store: entries of folders that follow each other, and the small ones of their files that
//! one job reads.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{Planned, STEP_BYTES};
use crate::backup::source::{FILES_LIKELY, JOB_BYTES, JOB_FILES, LARGE_BYTES, Wanted};
use crate::meta::Stat;
use crate::open_files;
use crate::walk::opened::Opened;

/// Entries that go together to the store. Many steps wait for it.
const STEP_ENTRIES: usize = 64;

/// What a folder and a file that are open for a job count for in the budget of small files, so that no more are than
/// may be.
#[derive(Clone, Copy)]
pub struct OpenBytes {
    dir: usize,
    file: usize,
}

/// What a job counts for at most because of what is open for it, but for one with a single folder.
const OPEN_BYTES_MAX: usize = LARGE_BYTES as usize;
/// What a file counts for at most: where few may be open, others wait beside them.
const FILE_BYTES_MAX: usize = 16 << 10;

impl OpenBytes {
    /// Of so many bytes in flight.
    pub fn of(bytes_in_flight: usize) -> Self {
        Self {
            dir: bytes_in_flight / open_files::folders_ahead_max(),
            file: (2 * bytes_in_flight / open_files::ahead_max()).min(FILE_BYTES_MAX),
        }
    }

    /// Folders of a job.
    pub fn dirs_max(&self) -> usize {
        (OPEN_BYTES_MAX / self.dir.max(1)).max(1)
    }

    /// What a job counts for at most because of what is open for it.
    pub fn job_max(&self) -> usize {
        OPEN_BYTES_MAX.max(self.dir)
    }

    /// What this one does.
    pub fn of_job(&self, wanted: &Wanted) -> usize {
        let files = (wanted.opened() * self.file).min(OPEN_BYTES_MAX);
        files.max(wanted.dirs() * self.dir)
    }
}

/// Entries in order, and the folders that they lie in.
#[derive(Default)]
pub struct Entries {
    entries: Vec<Planned>,
    /// Each with how many of the entries lie in it.
    folders: Vec<(Arc<[u8]>, usize)>,
}

impl Entries {
    /// A single one.
    pub fn one(folder: &Arc<[u8]>, planned: Planned) -> Self {
        Self {
            entries: vec![planned],
            folders: vec![(Arc::clone(folder), 1)],
        }
    }

    /// The folder that the first one lies in.
    pub fn first_folder(&self) -> Option<&Arc<[u8]>> {
        self.folders.first().map(|(folder, _)| folder)
    }

    /// Each with its folder.
    pub fn into_iter(self) -> impl Iterator<Item = (Arc<[u8]>, Planned)> {
        let folders = self.folders.into_iter();
        let folders = folders.flat_map(|(folder, count)| std::iter::repeat_n(folder, count));
        folders.zip(self.entries)
    }

    /// Gives the bytes of the folder's path where it was none of these before.
    fn push(&mut self, folder: &Arc<[u8]>, planned: Planned) -> usize {
        if self.entries.is_empty() {
            self.entries.reserve_exact(FILES_LIKELY);
        }
        self.entries.push(planned);
        match self.folders.last_mut() {
            Some((last, count)) if Arc::ptr_eq(last, folder) => {
                *count += 1;
                0
            }
            _ => {
                self.folders.push((Arc::clone(folder), 1));
                folder.len()
            }
        }
    }
}

/// Collected until it is enough for a step.
#[derive(Default)]
pub(super) struct Batch {
    entries: Entries,
    wanted: Wanted,
    /// Of the files.
    file_bytes: u64,
    /// What the entries have with them, and the paths of the folders, which stay as long as they do.
    entry_bytes: usize,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.entries.entries.is_empty()
    }

    /// Whether no more entries are to come.
    pub fn is_full(&self) -> bool {
        self.entries.entries.len() >= STEP_ENTRIES || self.entry_bytes >= STEP_BYTES
    }

    /// Whether its job takes a file more of so many bytes in `dir`, and is then of no more than so many folders.
    pub fn has_room_for(&self, bytes: u64, dir: &Arc<OwnedFd>, dirs_max: usize) -> bool {
        self.wanted.len() < JOB_FILES
            && (self.wanted.dirs() < dirs_max || self.wanted.is_last_dir(dir))
            && self.file_bytes + bytes <= JOB_BYTES as u64
            && self.entry_bytes < STEP_BYTES
    }

    pub fn push(&mut self, folder: &Arc<[u8]>, planned: Planned) {
        self.entry_bytes += planned.heap_bytes();
        self.entry_bytes += self.entries.push(folder, planned);
    }

    /// The file which `planned`, that is pushed next, stands for.
    pub fn want(
        &mut self,
        dir: &Arc<OwnedFd>,
        (opened, stat): (Option<Opened>, Stat),
        planned: &Planned,
    ) {
        self.file_bytes += stat.size;
        let opened = opened.map(|file| (file, stat));
        self.wanted.push(dir, &planned.entry.name, opened);
    }

    pub fn entry_bytes(&self) -> usize {
        self.entry_bytes
    }

    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    pub fn into_parts(self) -> (Entries, Wanted) {
        (self.entries, self.wanted)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn dir() -> Arc<OwnedFd> {
        Arc::new(File::open("/").expect("open").into())
    }

    #[test]
    fn a_job_of_as_many_folders_as_it_may_have_takes_more_of_the_last_one() {
        let (first, second) = (dir(), dir());
        let mut batch = Batch::default();
        assert!(batch.has_room_for(1, &first, 1));
        batch.wanted.push(&first, b"a", None);
        assert!(batch.has_room_for(1, &first, 1) && !batch.has_room_for(1, &second, 1));
        assert!(batch.has_room_for(1, &second, 2));
        batch.wanted.push(&second, b"a", None);
        assert!(batch.has_room_for(1, &second, 2) && !batch.has_room_for(1, &first, 2));
    }

    /// Whoever waits with a batch begun leaves room for a job.
    #[test]
    fn no_job_counts_for_more_than_is_said_because_of_what_is_open() {
        for (dir_bytes, file) in [(1 << 10, 100), (32 << 10, FILE_BYTES_MAX), (2 << 20, 1)] {
            let open = OpenBytes {
                dir: dir_bytes,
                file,
            };
            let mut batch = Batch::default();
            let mut dirs = 0;
            loop {
                let dir = dir();
                if !batch.has_room_for(0, &dir, open.dirs_max()) {
                    break;
                }
                batch.wanted.push(&dir, b"a", None);
                dirs += 1;
            }
            assert!((1..=JOB_FILES).contains(&dirs), "{dirs}");
            let counted = open.of_job(&batch.wanted);
            assert!(
                (dirs * dir_bytes..=open.job_max()).contains(&counted),
                "{counted}"
            );
        }
    }
}
