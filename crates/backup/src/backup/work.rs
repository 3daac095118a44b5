//! Work for reader threads, and the result of a job of small files.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_channel::Sender;
use onefold_chunk::Fingerprint;
use onefold_store::Packing;
use rustix::io::Errno;

use super::buffers::SEGMENT_BYTES;
use super::device::DeviceWork;
use super::file_end::FileEnd;
use super::hint::Hint;
use super::parts::{PartReceiver, PartSender};
use crate::meta::Stat;
use crate::walk::opened::{self, OpenedFile};

/// Largest number of files in one job: other threads are to have work meanwhile.
pub const JOB_FILES: usize = 48;
/// Likely number of files in a job, as of files of 8 KiB.
pub const FILES_LIKELY: usize = 16;
/// Size from which on a file is read in segments, in bytes.
pub const LARGE_BYTES: u64 = SEGMENT_BYTES as u64;
const _: () = assert!(
    LARGE_BYTES == opened::SMALL_BYTES,
    "no other is opened for nothing"
);

/// The next part of a file's content.
pub enum SmallPart {
    /// A chunk: the next `len` bytes of the buffer.
    Chunk(u32),
    /// A hole of this length.
    Hole(u64),
}

/// A small file's content: parts whose chunks lie one after the other in the job's buffer.
pub struct SmallFile {
    pub end: FileEnd,
    pub packing: Packing,
    /// Number of the job's parts that belong to this file.
    pub parts: usize,
}

/// A finished job of small files: chunks of all files in order fill the buffer from its start.
#[derive(Default)]
pub struct SmallDone {
    pub buffer: Vec<u8>,
    pub files: Vec<Result<SmallFile, Errno>>,
    /// Parts of all files, in order.
    pub parts: Vec<SmallPart>,
    /// Fingerprints of all chunks, in order.
    pub fingerprints: Vec<Fingerprint>,
    /// Channel of the other files of the job, read one after another as large ones: from the first file on that does
    /// not fit, since it grew or has too many attributes.
    pub rest: Option<PartReceiver>,
}

/// Small files to read.
#[derive(Default)]
pub struct SmallFiles {
    /// Folders of the files, each with the number of files that lie in it.
    dirs: Vec<(Arc<OwnedFd>, usize)>,
    /// Names of the files, one behind another.
    names: Vec<u8>,
    files: Vec<WantedFile>,
}

struct WantedFile {
    name_end: usize,
    /// The file and its `stat`, if it is open already.
    opened: Option<(OpenedFile, Stat)>,
}

impl SmallFiles {
    pub fn push(&mut self, dir: &Arc<OwnedFd>, name: &[u8], opened: Option<(OpenedFile, Stat)>) {
        match self.dirs.last_mut() {
            Some((last, count)) if Arc::ptr_eq(last, dir) => *count += 1,
            _ => self.dirs.push((Arc::clone(dir), 1)),
        }
        if self.files.is_empty() {
            self.files.reserve_exact(FILES_LIKELY);
        }
        self.names.extend_from_slice(name);
        self.files.push(WantedFile {
            name_end: self.names.len(),
            opened,
        });
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Upper bound of the folders that are open for the job.
    pub fn dirs(&self) -> usize {
        self.dirs.len()
    }

    /// Whether `dir` is the folder of the last file.
    pub fn is_last_dir(&self, dir: &Arc<OwnedFd>) -> bool {
        let last = self.dirs.last();
        last.is_some_and(|(last, _)| Arc::ptr_eq(last, dir))
    }

    /// Number of the job's files that are open.
    pub fn opened(&self) -> usize {
        let is_open = |file: &&WantedFile| file.opened.is_some();
        self.files.iter().filter(is_open).count()
    }

    /// Gives the files with their folders and names, and hands over the open ones.
    pub(super) fn iter(
        &mut self,
    ) -> impl Iterator<Item = (&OwnedFd, &[u8], Option<(OpenedFile, Stat)>)> {
        let dirs = self.dirs.iter();
        let dirs = dirs.flat_map(|(dir, count)| std::iter::repeat_n(&**dir, *count));
        let (names, mut start) = (&self.names, 0);
        dirs.zip(&mut self.files).map(move |(dir, file)| {
            let name = &names[start..file.name_end];
            start = file.name_end;
            (dir, name, file.opened.take())
        })
    }
}

/// A piece of work for a reader thread.
pub enum Work {
    /// Small files.
    Small {
        wanted: SmallFiles,
        buffer_bytes: usize,
        done: Sender<SmallDone>,
    },
    /// One large file.
    Large {
        dir: Arc<OwnedFd>,
        name: Vec<u8>,
        hint: Hint,
        parts: PartSender,
    },
    /// A device or pipe, read as a stream.
    Special {
        dir: Arc<OwnedFd>,
        name: Vec<u8>,
        stat: Stat,
        parts: PartSender,
    },
    /// A block device that tells what changed.
    Device {
        work: Box<DeviceWork>,
        parts: PartSender,
    },
    /// A stream, read to its end; it becomes a file that looks like `stat`.
    Stream {
        fd: OwnedFd,
        name: Vec<u8>,
        stat: Stat,
        parts: PartSender,
    },
}
