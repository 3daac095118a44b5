//! Reader threads: small files whole, many in one job; large files in segments that other threads read.
//!
//! Small files are cut and fingerprinted by the thread that read them, while their bytes are in its cache. A reader of
//! a large file sends out its segments ([`super::segment`]), so that a single file keeps the disk and all cores busy. A
//! file of a job that grew since it was looked at, or has many attributes, is read as a large one by the job's reader,
//! and so are the files behind it: what was reserved holds for the sizes that were known. A reader of a large file
//! waits until the store has taken earlier segments, its own or those of files before it ([`super::ahead`]); the store
//! waits for readers and segments; segments wait for segments before them. So no threads wait in a circle.

mod small;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_channel::{Receiver, Sender};
use onefold_chunk::Fingerprint;
use onefold_store::{Fingerprinter, Packing};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::ahead::LargeFileQueue;
use super::buffers::{Buffers, SEGMENT_BYTES};
use super::device::DeviceWork;
use super::hint::{Hint, Verdict};
use super::outlook::Outlook;
use super::parts::{LargePart, PartReceiver, PartSender, large_channel};
use super::read::{self, Source};
use super::retrace::Traces;
use super::segment::{Cutter, Queues, Segments};
use super::windows::{DIGESTED_BYTES_MIN, WINDOW_BYTES};
use crate::entry::xattrs_bytes;
use crate::meta::Stat;
use crate::walk::opened::{self, Opened};
use crate::{Content, Progress, Xattrs};

/// Bytes of small files that make one job; larger files stand alone.
pub const JOB_BYTES: usize = 128 << 10;
/// Largest number of files in one job: other threads are to have work meanwhile.
pub const JOB_FILES: usize = 48;
/// Likely number of files in a job, as of files of 8 KiB.
pub const FILES_LIKELY: usize = 16;
/// Largest number of bytes of attributes of a job's files, beside what is reserved for the job: enough for the labels
/// and access control lists of most files.
const JOB_XATTRS_BYTES_MAX: usize = 64 << 10;
/// Size from which on a file is read in segments, in bytes.
pub const LARGE_BYTES: u64 = SEGMENT_BYTES as u64;
const _: () = assert!(
    LARGE_BYTES == opened::SMALL_BYTES,
    "no other is opened for nothing"
);

/// The next part of a file's content.
pub enum Part {
    /// A chunk: the next `len` bytes of the buffer.
    Chunk(u32),
    /// A hole of this length.
    Hole(u64),
}

/// Result of reading a file to its end.
pub struct FileEnd {
    /// Result of `stat` while the file was read.
    pub stat: Stat,
    /// Extended attributes of the file, or why they cannot be had.
    pub xattrs: Result<Xattrs, Errno>,
    /// Whether another program wrote each time that the file was read.
    pub changed: bool,
    /// The file's content, if it is known before the file is cut.
    pub content: Option<Content>,
    /// Bytes of data that were read for that, and are no part that was sent.
    pub compared_bytes: u64,
}

impl FileEnd {
    /// Describes the end of a source that was cut.
    pub fn new(source: Source<'_>, changed: bool) -> Self {
        Self {
            stat: source.stat,
            xattrs: source.xattrs,
            changed,
            content: None,
            compared_bytes: 0,
        }
    }

    /// Heap bytes of the attributes.
    pub fn bytes(&self) -> usize {
        self.xattrs.as_ref().map_or(0, xattrs_bytes)
    }
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
    pub parts: Vec<Part>,
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
    opened: Option<(Opened, Stat)>,
}

impl SmallFiles {
    pub fn push(&mut self, dir: &Arc<OwnedFd>, name: &[u8], opened: Option<(Opened, Stat)>) {
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
    fn iter(&mut self) -> impl Iterator<Item = (&OwnedFd, &[u8], Option<(Opened, Stat)>)> {
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

/// Splits the front of `buffer` into chunks of these lengths.
pub fn pieces(
    mut buffer: &[u8],
    lengths: impl Iterator<Item = u32>,
) -> impl Iterator<Item = &[u8]> {
    lengths.map(move |len| {
        let (piece, rest) = buffer.split_at(len as usize);
        buffer = rest;
        piece
    })
}

/// A reader thread.
pub struct Reader<'a> {
    pub cutter: Arc<Mutex<Cutter>>,
    /// Lengths of the chunks that were cut last, in bytes.
    pub lengths: Vec<u32>,
    pub fingerprinter: Fingerprinter,
    pub buffers: &'a Buffers,
    pub progress: &'a Progress,
    pub queues: Queues,
    pub outlook: &'a Outlook,
    /// See [`Segments`].
    pub carries_much: Arc<AtomicBool>,
    pub traces: &'a Traces<'a>,
}

/// The reader's results are not wanted any more: the backup has ended.
pub struct Abandoned;

impl Reader<'_> {
    /// Works until all senders are gone.
    pub fn run(mut self, work: &Receiver<Work>) {
        for work in work {
            match work {
                Work::Small {
                    mut wanted,
                    buffer_bytes,
                    done,
                } => {
                    let mut result = self.small(&mut wanted, buffer_bytes);
                    let read = result.files.len();
                    let parts = (read < wanted.len()).then(|| {
                        // The rest is read one segment at a time, outside of the budget.
                        let (parts, receiver) = large_channel(&LargeFileQueue::new(1));
                        result.rest = Some(receiver);
                        parts
                    });
                    let _ = done.send(result);
                    drop(done);
                    if let Some(parts) = parts {
                        let mut rest = wanted.iter().skip(read);
                        let _ = rest.try_for_each(|(dir, name, _)| {
                            self.large(dir, name, Hint::Nothing, &parts)
                        });
                    }
                }
                Work::Large {
                    dir,
                    name,
                    hint,
                    parts,
                } => {
                    let _ = self.large(&dir, &name, hint, &parts);
                }
                Work::Special {
                    dir,
                    name,
                    stat,
                    parts,
                } => {
                    self.begins(&name);
                    let _ = match read::open_special(dir.as_fd(), &name) {
                        Ok(fd) => self.stream(Source::stream(fd, stat, self.progress), &parts),
                        Err(e) => parts.send(LargePart::End(Err(e))),
                    };
                }
                Work::Device { work, parts } => {
                    self.begins(b"");
                    let _ = self.device(*work, &parts);
                }
                Work::Stream {
                    fd,
                    name,
                    stat,
                    parts,
                } => {
                    self.begins(&name);
                    let _ = self.stream(Source::stream(fd, stat, self.progress), &parts);
                }
            }
        }
    }

    /// Notes that a file of this name is cut next.
    fn begins(&self, name: &[u8]) {
        self.cutter.lock().begin(name);
    }

    pub(super) fn segments<'s>(&'s self, parts: &'s PartSender, maps: bool) -> Segments<'s> {
        Segments {
            cutter: &self.cutter,
            buffers: self.buffers,
            queues: &self.queues,
            outlook: maps.then_some(self.outlook),
            parts,
            is_digested: false,
            carries_much: &self.carries_much,
        }
    }

    fn large(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        hint: Hint,
        parts: &PartSender,
    ) -> Result<(), Abandoned> {
        match read::open(dir.as_fd(), name) {
            Ok(source) => self.large_file(name, source, hint, parts),
            Err(e) => parts.send(LargePart::End(Err(e))),
        }
    }

    fn stream(&mut self, source: Source, parts: &PartSender) -> Result<(), Abandoned> {
        let end = self.segments(parts, false).send(&source, 0..u64::MAX)?;
        let end = end.map(|_| FileEnd::new(source, false));
        parts.send(LargePart::End(end))
    }

    fn large_file(
        &mut self,
        name: &[u8],
        mut source: Source,
        hint: Hint,
        parts: &PartSender,
    ) -> Result<(), Abandoned> {
        source.read_ahead();
        let compared_bytes = match self.compare(name, &source, hint, parts)? {
            Verdict::Unknown => 0,
            Verdict::Same(content, compared_bytes) => {
                let end = FileEnd {
                    content: Some(content),
                    compared_bytes,
                    ..FileEnd::new(source, false)
                };
                return parts.send(LargePart::End(Ok(end)));
            }
            Verdict::Other(compared_bytes) => match source.look_again() {
                Ok(()) => compared_bytes,
                Err(e) => return parts.send(LargePart::End(Err(e))),
            },
        };
        self.begins(name);
        let maps = source.stat.size >= WINDOW_BYTES as u64;
        let content = self.large_content(&source, parts, maps)?;
        let mut changed = content.and_then(|()| source.changed());
        // Mapped bytes must not vanish until the store has taken them.
        if let Ok(has_changed) = changed
            && (has_changed || parts.has_mapped())
        {
            let end = FileEnd {
                stat: source.stat,
                xattrs: std::mem::replace(&mut source.xattrs, Ok(Xattrs::new())),
                changed: has_changed,
                content: None,
                compared_bytes,
            };
            if parts.is_done(end)? {
                return Ok(());
            }
            self.begins(name);
            changed = match source.look_again() {
                Ok(()) => self
                    .large_content(&source, parts, false)?
                    .and_then(|()| source.changed()),
                Err(e) => Err(e),
            };
        }
        let end = changed.map(|changed| FileEnd {
            compared_bytes,
            ..FileEnd::new(source, changed)
        });
        parts.send(LargePart::End(end))
    }

    /// Reads a large file's content. Mapped bytes may vanish before the store has taken them ([`PartSender::is_done`]).
    fn large_content(
        &mut self,
        source: &Source,
        parts: &PartSender,
        maps: bool,
    ) -> Result<Result<(), Errno>, Abandoned> {
        let mut at = 0;
        loop {
            let data = match source.run_from(at) {
                Ok(data) => data,
                Err(e) => return Ok(Err(e)),
            };
            let hole = data.start - at;
            if hole > 0 {
                parts.send(LargePart::Hole(hole))?;
            }
            if data.is_empty() {
                return Ok(Ok(()));
            }
            let segments = Segments {
                // Two runs of data without a hole between them mean that there was a hole when the first one's end was
                // asked for.
                is_digested: source.stat.size >= DIGESTED_BYTES_MIN && (hole > 0 || at == 0),
                ..self.segments(parts, maps)
            };
            match segments.send(source, data.clone())? {
                Ok(end) if end == data.end && end < source.stat.size => at = end,
                Ok(_) => return Ok(Ok(())),
                Err(e) => return Ok(Err(e)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
