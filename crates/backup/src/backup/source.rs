//! Reader threads: small files whole, many in one job; large files in segments that other threads fingerprint.
//!
//! Small files are cut and fingerprinted by the thread that read them, while their bytes are in its cache. A large file is read and cut by one
//! thread, since cuts depend on each other and cutting is quick; its segments go to the fingerprinting threads, so that a single file
//! keeps all cores busy. Who waits for whom: a reader of a large file waits until the store has taken its earlier segments; the store waits for
//! readers and fingerprinters; fingerprinters wait for nobody. So nothing waits in a circle.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use onefold_chunk::{Chunker, Fingerprint, Hints};
use onefold_store::{Fingerprinter, Packing};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::read::{self, PAGE_BYTES, Source, cut};
use crate::meta::Stat;
use crate::{Progress, Xattrs};

/// Small files up to this many bytes together make one job; larger ones stand alone.
pub const JOB_BYTES: usize = 128 << 10;
/// Files in one job at most: a job is what one thread does while others do others.
pub const JOB_FILES: usize = 48;
/// Files from this size on are read in segments.
pub const LARGE_BYTES: u64 = 1 << 20;
/// A segment of a large file, in bytes: some eighty chunks.
const SEGMENT_BYTES: usize = 1 << 20;
/// Segments of one large file between its reader and the store.
const SEGMENTS_AHEAD: usize = 4;
/// A file that grew since it was looked at is still read whole as a small one up to this size.
const GROWN_BYTES_MAX: usize = 64 << 20;

/// What follows in a file's content.
pub enum Part {
    /// A chunk: the next `len` bytes of the buffer.
    Chunk(u32),
    /// A hole of this length.
    Hole(u64),
}

/// A file that was read to its end.
pub struct FileEnd {
    /// As it was while it was read.
    pub stat: Stat,
    /// Its extended attributes.
    pub xattrs: Xattrs,
    /// Somebody wrote while it was read, each time it was tried.
    pub changed: bool,
}

/// A small file's content: parts whose chunks lie one after the other in the job's buffer.
pub struct SmallFile {
    pub end: FileEnd,
    pub packing: Packing,
    pub parts: Vec<Part>,
}

/// A job of small files, done: chunks of all files in order fill the buffer from its start.
pub struct SmallDone {
    pub buffer: Vec<u8>,
    pub files: Vec<Result<SmallFile, Errno>>,
    /// Those of all chunks, in order.
    pub fingerprints: Vec<Fingerprint>,
}

/// Chunks of a large file's segment: they fill the buffer from `start` on.
pub struct Segment {
    pub buffer: Vec<u8>,
    pub packing: Packing,
    pub start: usize,
    pub chunks: Vec<(Fingerprint, u32)>,
}

/// What a reader of a large file says, in order.
pub enum LargePart {
    /// Data; fingerprints come when they are ready.
    Segment(Receiver<Segment>),
    /// A hole.
    Hole(u64),
    /// Forget what was said so far: the file changed and is read anew.
    Again,
    /// No more.
    End(Result<FileEnd, Errno>),
}

/// What a reader thread is to do.
pub enum Work {
    /// Files of one folder.
    Small {
        dir: Arc<OwnedFd>,
        names: Vec<Vec<u8>>,
        buffer_bytes: usize,
        done: Sender<SmallDone>,
    },
    /// One large file.
    Large {
        dir: Arc<OwnedFd>,
        name: Vec<u8>,
        parts: Sender<LargePart>,
    },
    /// A stream, read to its end; it becomes a file that looks like `stat`.
    Stream {
        fd: OwnedFd,
        name: Vec<u8>,
        stat: Stat,
        parts: Sender<LargePart>,
    },
}

/// A channel for one result.
pub fn slot<T>() -> (Sender<T>, Receiver<T>) {
    bounded(1)
}

/// The channel through which a large file's parts go.
pub fn large_channel() -> (Sender<LargePart>, Receiver<LargePart>) {
    bounded(SEGMENTS_AHEAD)
}

/// A segment to fingerprint.
pub struct Hash {
    buffer: Vec<u8>,
    packing: Packing,
    start: usize,
    lengths: Vec<u32>,
    done: Sender<Segment>,
}

/// Buffers in two sizes, used again so that their pages are touched once.
pub struct Buffers {
    small: Mutex<Vec<Vec<u8>>>,
    large: Mutex<Vec<Vec<u8>>>,
    large_bytes: usize,
    carried_bytes_max: usize,
}

impl Buffers {
    /// For chunks up to `chunk_bytes_max`.
    pub fn new(chunk_bytes_max: usize) -> Self {
        Self {
            small: Mutex::default(),
            large: Mutex::default(),
            large_bytes: SEGMENT_BYTES + chunk_bytes_max + PAGE_BYTES,
            carried_bytes_max: chunk_bytes_max,
        }
    }

    /// What a buffer for so many bytes really takes.
    pub fn size_for(&self, bytes: usize) -> usize {
        if bytes <= JOB_BYTES {
            JOB_BYTES
        } else {
            bytes.max(self.large_bytes)
        }
    }

    fn get(&self, bytes: usize) -> Vec<u8> {
        let size = self.size_for(bytes);
        let pool = if size == JOB_BYTES {
            &self.small
        } else {
            &self.large
        };
        let pooled = if size <= self.large_bytes {
            pool.lock().pop()
        } else {
            None
        };
        pooled.unwrap_or_else(|| vec![0; size])
    }

    /// Where in a large buffer a segment is read to: at a page's start, with room before it for the end of the segment before.
    fn segment_start(&self, buffer: &[u8]) -> usize {
        let place = buffer.as_ptr().addr() + self.carried_bytes_max;
        self.carried_bytes_max + place.next_multiple_of(PAGE_BYTES) - place
    }

    /// Takes a buffer back.
    pub fn put(&self, buffer: Vec<u8>) {
        match buffer.len() {
            JOB_BYTES => self.small.lock().push(buffer),
            n if n == self.large_bytes => self.large.lock().push(buffer),
            _ => {}
        }
    }
}

/// A fingerprinting thread: works until nobody sends any more.
pub fn hash_segments(work: &Receiver<Hash>, fingerprinter: &Fingerprinter) {
    for Hash {
        buffer,
        packing,
        start,
        lengths,
        done,
    } in work
    {
        let found = fingerprinter.fingerprints(pieces(&buffer[start..], lengths.iter().copied()));
        let chunks = found.into_iter().zip(lengths).collect();
        // Whoever waited for it gave up: so does this.
        let _ = done.send(Segment {
            buffer,
            packing,
            start,
            chunks,
        });
    }
}

/// The chunks of these lengths that fill `buffer` from its start.
fn pieces(mut buffer: &[u8], lengths: impl Iterator<Item = u32>) -> impl Iterator<Item = &[u8]> {
    lengths.map(move |len| {
        let (piece, rest) = buffer.split_at(len as usize);
        buffer = rest;
        piece
    })
}

/// A reader thread.
pub struct Reader<'a> {
    pub chunker: Box<dyn Chunker>,
    pub fingerprinter: Fingerprinter,
    pub buffers: &'a Buffers,
    pub progress: &'a Progress,
    pub hash: Sender<Hash>,
    /// The name of a file of which nothing has been cut yet.
    pub begins: Option<Vec<u8>>,
}

/// Nobody takes what this thread reads: the backup has ended.
struct Abandoned;

impl Reader<'_> {
    /// Works until nobody sends any more.
    pub fn run(mut self, work: &Receiver<Work>) {
        for work in work {
            match work {
                Work::Small {
                    dir,
                    names,
                    buffer_bytes,
                    done,
                } => {
                    let result = self.small(&dir, &names, buffer_bytes);
                    let _ = done.send(result);
                }
                Work::Large { dir, name, parts } => {
                    let _ = self.large(&dir, &name, &parts);
                }
                Work::Stream {
                    fd,
                    name,
                    stat,
                    parts,
                } => {
                    self.begins = Some(name);
                    let _ = self.stream(Source::stream(fd, stat, self.progress), &parts);
                }
            }
        }
    }

    fn small(&mut self, dir: &OwnedFd, names: &[Vec<u8>], buffer_bytes: usize) -> SmallDone {
        let mut buffer = self.buffers.get(buffer_bytes);
        let mut used = 0;
        let files = names.iter().map(|name| {
            let file = read::open(dir.as_fd(), name)
                .and_then(|source| self.small_file((name, source), &mut buffer, used));
            file.map(|(file, more)| {
                used += more;
                file
            })
        });
        let files: Vec<Result<SmallFile, Errno>> = files.collect();
        let lengths = files
            .iter()
            .flatten()
            .flat_map(|file| &file.parts)
            .filter_map(|part| match part {
                Part::Chunk(len) => Some(*len),
                Part::Hole(_) => None,
            });
        let fingerprints = self.fingerprinter.fingerprints(pieces(&buffer, lengths));
        SmallDone {
            buffer,
            files,
            fingerprints,
        }
    }

    fn small_file(
        &mut self,
        (name, mut source): (&[u8], Source),
        buffer: &mut Vec<u8>,
        at: usize,
    ) -> Result<(SmallFile, usize), Errno> {
        self.begins = Some(name.to_vec());
        let mut read = self.small_content(&source, buffer, at)?;
        let mut changed = source.changed()?;
        if changed {
            source.look_again()?;
            self.begins = Some(name.to_vec());
            read = self.small_content(&source, buffer, at)?;
            changed = source.changed()?;
        }
        let (parts, used) = read;
        Ok((
            SmallFile {
                end: FileEnd {
                    stat: source.stat,
                    xattrs: source.xattrs,
                    changed,
                },
                packing: self.packing(),
                parts,
            },
            used,
        ))
    }

    /// Reads the whole file behind `at`; gives its parts and how many bytes of the buffer they take.
    fn small_content(
        &mut self,
        source: &Source,
        buffer: &mut Vec<u8>,
        at: usize,
    ) -> Result<(Vec<Part>, usize), Errno> {
        let size = (source.stat.size as usize).min(GROWN_BYTES_MAX);
        if buffer.len() < at + size {
            buffer.resize(at + size, 0);
        }
        let mut parts = Vec::with_capacity(1 + size / self.chunker.limits().mean);
        if !source.may_have_holes() {
            // Files of /proc say that they are empty, and are not.
            let end = if size == 0 { buffer.len() } else { at + size };
            let used = fill(source, &mut buffer[at..end])?;
            self.cut(&buffer[at..at + used], &mut parts);
            return Ok((parts, used));
        }
        let (mut used, mut offset) = (0, 0);
        while let Some(data) = source
            .data_from(offset)?
            .filter(|data| data.start < size as u64)
        {
            push_hole(&mut parts, data.start - offset);
            let want = data.end.min(size as u64) - data.start;
            let got = fill(source, &mut buffer[at + used..at + used + want as usize])?;
            self.cut(&buffer[at + used..at + used + got], &mut parts);
            used += got;
            offset = data.start + got as u64;
            if (got as u64) < want {
                return Ok((parts, used));
            }
        }
        push_hole(&mut parts, (size as u64).saturating_sub(offset));
        Ok((parts, used))
    }

    fn cut(&mut self, data: &[u8], parts: &mut Vec<Part>) {
        let mut lengths = Vec::new();
        self.cut_on(data, true, &mut lengths);
        parts.extend(lengths.into_iter().map(Part::Chunk));
    }

    /// As [`cut`]; tells the chunker before of a file that begins here.
    fn cut_on(&mut self, data: &[u8], ends: bool, lengths: &mut Vec<u32>) -> usize {
        if let Some(name) = self.begins.take() {
            self.chunker.begin(&Hints::of(&name, data));
        }
        cut(&mut *self.chunker, data, ends, lengths)
    }

    fn packing(&self) -> Packing {
        match self.chunker.is_compressible() {
            true => Packing::Compress,
            false => Packing::AsIs,
        }
    }

    fn large(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        parts: &Sender<LargePart>,
    ) -> Result<(), Abandoned> {
        let end = match read::open(dir.as_fd(), name) {
            Ok(source) => self.large_file(name, source, parts)?,
            Err(e) => Err(e),
        };
        parts.send(LargePart::End(end)).map_err(|_| Abandoned)
    }

    fn stream(&mut self, source: Source, parts: &Sender<LargePart>) -> Result<(), Abandoned> {
        let end = self.extent(&source, 0..u64::MAX, parts)?;
        let end = end.map(|_| FileEnd {
            stat: source.stat,
            xattrs: Xattrs::new(),
            changed: false,
        });
        parts.send(LargePart::End(end)).map_err(|_| Abandoned)
    }

    fn large_file(
        &mut self,
        name: &[u8],
        mut source: Source,
        parts: &Sender<LargePart>,
    ) -> Result<Result<FileEnd, Errno>, Abandoned> {
        source.read_ahead();
        self.begins = Some(name.to_vec());
        let mut result = self
            .large_content(&source, parts)?
            .and_then(|()| source.changed());
        if result == Ok(true) {
            parts.send(LargePart::Again).map_err(|_| Abandoned)?;
            self.begins = Some(name.to_vec());
            result = match source.look_again() {
                Ok(()) => self
                    .large_content(&source, parts)?
                    .and_then(|()| source.changed()),
                Err(e) => Err(e),
            };
        }
        Ok(result.map(|changed| FileEnd {
            stat: source.stat,
            xattrs: source.xattrs,
            changed,
        }))
    }

    fn large_content(
        &mut self,
        source: &Source,
        parts: &Sender<LargePart>,
    ) -> Result<Result<(), Errno>, Abandoned> {
        let size = source.stat.size;
        if !source.may_have_holes() {
            return Ok(self.extent(source, 0..size, parts)?.map(drop));
        }
        let mut offset = 0;
        loop {
            let data = match source.data_from(offset) {
                Ok(data) => data.filter(|data| data.start < size),
                Err(e) => return Ok(Err(e)),
            };
            let hole_end = data.as_ref().map_or(size, |data| data.start);
            if hole_end > offset {
                parts
                    .send(LargePart::Hole(hole_end - offset))
                    .map_err(|_| Abandoned)?;
            }
            let Some(data) = data else { return Ok(Ok(())) };
            let end = data.end.min(size);
            match self.extent(source, data.start..end, parts)? {
                Ok(got) if got == end => offset = end,
                Ok(_) => return Ok(Ok(())),
                Err(e) => return Ok(Err(e)),
            }
        }
    }

    /// Sends this range of the file, in segments; gives where it really ended.
    fn extent(
        &mut self,
        source: &Source,
        range: Range<u64>,
        parts: &Sender<LargePart>,
    ) -> Result<Result<u64, Errno>, Abandoned> {
        let mut carried: Vec<u8> = Vec::new();
        let mut at = range.start;
        loop {
            let mut buffer = self.buffers.get(self.buffers.large_bytes);
            let fresh = self.buffers.segment_start(&buffer);
            let start = fresh - carried.len();
            buffer[start..fresh].copy_from_slice(&carried);
            let want = SEGMENT_BYTES.min((range.end - at).try_into().unwrap_or(SEGMENT_BYTES));
            let filled = match source.fill(&mut buffer[fresh..], want, at) {
                Ok(filled) => filled,
                Err(e) => return Ok(Err(e)),
            };
            at += filled as u64;
            let ends = filled < want || at == range.end;
            let data = &buffer[start..fresh + filled];
            let mut lengths = Vec::new();
            let covered = self.cut_on(data, ends, &mut lengths);
            carried.clear();
            carried.extend_from_slice(&data[covered..]);
            let (done, segment) = slot();
            parts
                .send(LargePart::Segment(segment))
                .map_err(|_| Abandoned)?;
            self.hash
                .send(Hash {
                    buffer,
                    packing: self.packing(),
                    start,
                    lengths,
                    done,
                })
                .map_err(|_| Abandoned)?;
            if ends {
                return Ok(Ok(at));
            }
        }
    }
}

/// A hole of no length is none.
fn push_hole(parts: &mut Vec<Part>, len: u64) {
    if len > 0 {
        parts.push(Part::Hole(len));
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(source: &Source, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}
