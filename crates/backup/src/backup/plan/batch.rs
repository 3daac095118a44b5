//! Batches for the store: entries of folders that follow each other, and those of their small files that one job reads.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{Planned, STEP_BYTES};
use crate::backup::buffers::JOB_BYTES;
use crate::backup::work::{FILES_LIKELY, JOB_FILES, LARGE_BYTES, SmallFiles};
use crate::meta::Stat;
use crate::open_files;
use crate::walk::opened::OpenedFile;

/// Largest number of entries in one step: small enough that the store need not wait long for a step.
const STEP_ENTRIES: usize = 64;

/// Bytes that an open folder and an open file count as in the budget of small files, so that no more are open than
/// allowed.
#[derive(Clone, Copy)]
pub struct OpenBytes {
    dir: usize,
    file: usize,
}

/// Largest number of bytes that a job counts as because of its open files, except a job with a single folder.
const OPEN_BYTES_MAX: usize = LARGE_BYTES as usize;
/// Largest number of bytes that an open file counts as: where few files may be open, jobs also wait for places.
const FILE_BYTES_MAX: usize = 16 << 10;

impl OpenBytes {
    /// Shares out a budget of `bytes_in_flight` among the files and folders that may be open.
    pub fn of(bytes_in_flight: usize) -> Self {
        Self {
            dir: bytes_in_flight / open_files::folders_ahead_max(),
            file: (2 * bytes_in_flight / open_files::ahead_max()).min(FILE_BYTES_MAX),
        }
    }

    /// Largest number of folders of one job.
    pub fn dirs_max(&self) -> usize {
        (OPEN_BYTES_MAX / self.dir.max(1)).max(1)
    }

    /// Largest number of bytes that a job counts as because of its open files.
    pub fn job_max(&self) -> usize {
        OPEN_BYTES_MAX.max(self.dir)
    }

    /// Bytes that this job counts as because of its open files.
    pub fn of_job(&self, wanted: &SmallFiles) -> usize {
        let files = (wanted.opened() * self.file).min(OPEN_BYTES_MAX);
        files.max(wanted.dirs() * self.dir)
    }
}

/// Entries in order, and the folders that they lie in.
#[derive(Default)]
pub struct Entries {
    entries: Vec<Planned>,
    /// Folders, each with the number of entries that lie in it.
    folders: Vec<(Arc<[u8]>, usize)>,
}

impl Entries {
    /// Makes a list of a single entry.
    pub fn one(folder: &Arc<[u8]>, planned: Planned) -> Self {
        Self {
            entries: vec![planned],
            folders: vec![(Arc::clone(folder), 1)],
        }
    }

    /// Folder of the first entry.
    pub fn first_folder(&self) -> Option<&Arc<[u8]>> {
        self.folders.first().map(|(folder, _)| folder)
    }

    /// Gives each entry with its folder.
    pub fn into_iter(self) -> impl Iterator<Item = (Arc<[u8]>, Planned)> {
        let folders = self.folders.into_iter();
        let folders = folders.flat_map(|(folder, count)| std::iter::repeat_n(folder, count));
        folders.zip(self.entries)
    }

    /// Adds an entry. Returns the bytes of the folder's path if the folder is new here, else 0.
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

/// Entries that are collected until they are enough for a step.
#[derive(Default)]
pub(super) struct StepBatch {
    entries: Entries,
    wanted: SmallFiles,
    /// Bytes of the files to read.
    file_bytes: u64,
    /// Heap bytes of the entries, and bytes of the folders' paths, which live as long.
    entry_bytes: usize,
}

impl StepBatch {
    pub fn is_empty(&self) -> bool {
        self.entries.entries.is_empty()
    }

    /// Whether the batch takes no more entries.
    pub fn is_full(&self) -> bool {
        self.entries.entries.len() >= STEP_ENTRIES || self.entry_bytes >= STEP_BYTES
    }

    /// Whether the batch's job takes one more file of `bytes` bytes in `dir`, and then has at most `dirs_max` folders.
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

    /// Adds the file of `planned`, which is pushed next, to the job.
    pub fn want(
        &mut self,
        dir: &Arc<OwnedFd>,
        (opened, stat): (Option<OpenedFile>, Stat),
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

    pub fn wanted(&self) -> &SmallFiles {
        &self.wanted
    }

    pub fn into_parts(self) -> (Entries, SmallFiles) {
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
        let mut batch = StepBatch::default();
        assert!(batch.has_room_for(1, &first, 1));
        batch.wanted.push(&first, b"a", None);
        assert!(batch.has_room_for(1, &first, 1) && !batch.has_room_for(1, &second, 1));
        assert!(batch.has_room_for(1, &second, 2));
        batch.wanted.push(&second, b"a", None);
        assert!(batch.has_room_for(1, &second, 2) && !batch.has_room_for(1, &first, 2));
    }

    /// The finisher, which may wait with a batch begun, relies on this bound to leave room for a job.
    #[test]
    fn no_job_counts_for_more_than_is_said_because_of_what_is_open() {
        for (dir_bytes, file) in [(1 << 10, 100), (32 << 10, FILE_BYTES_MAX), (2 << 20, 1)] {
            let open = OpenBytes {
                dir: dir_bytes,
                file,
            };
            let mut batch = StepBatch::default();
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
