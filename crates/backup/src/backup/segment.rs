//! Segments of a large file: read side by side, cut one after another, fingerprinted side by side.
//!
//! One thread takes a segment all the way, so that its bytes are still in the core's cache when it is cut and
//! fingerprinted; and as several threads do so, the disk has several reads to do at once. Only the cuts depend on the
//! segment before: the cutter goes from segment to segment as a baton. Segments that wait for the disk and segments in
//! RAM have threads of their own: many threads wait for the disk; fewer threads than cores copy or map, since the
//! store's thread helps them, and more would only push each other out of the cores and their caches. Each queue is
//! taken in the order in which it was filled, and a segment is sent after the one before it: of all unfinished
//! segments, the one that was sent first never has to wait, and a thread has it or is free for it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crossbeam_channel::{Receiver, RecvError, Sender, bounded, select_biased};
use onefold_chunk::{Chunker, Fingerprint, StreamHints};
use onefold_io::Gate;
use onefold_store::digest::{self, Digester};
use onefold_store::{Fingerprinter, Packing};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::buffers::{Buffer, Buffers, SegmentBytes};
use super::read::{Handle, cut, pieces};
use super::windows::WindowView;

/// Chunks of a large file's segment: they fill `held` from `start` on. `held` may be `None` where there are no chunks.
pub struct Segment {
    pub held: Option<Arc<SegmentBytes>>,
    pub packing: Packing,
    pub start: usize,
    pub chunks: Vec<(Fingerprint, u32)>,
    /// Digest of the bytes that were read for the segment, without carried ones. `None` where no digest was wanted, or
    /// another program may have changed the bytes since.
    pub digest: Option<digest::Part>,
}

impl Segment {
    /// Lengths of the chunks, in bytes.
    pub fn lengths(&self) -> impl Iterator<Item = u32> {
        self.chunks.iter().map(|(_, len)| *len)
    }

    /// Bytes of all chunks together.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|(_, len)| u64::from(*len)).sum()
    }
}

/// Makes a channel for one result.
pub fn slot<T>() -> (Sender<T>, Receiver<T>) {
    bounded(1)
}

/// Cuts files, one after another.
pub struct FileCutter {
    chunker: Box<dyn Chunker>,
    /// Name of the current file.
    name: Vec<u8>,
    /// Whether nothing of the file has been cut yet.
    begins: bool,
}

impl FileCutter {
    pub fn new(chunker: Box<dyn Chunker>) -> Self {
        Self {
            chunker,
            name: Vec::new(),
            begins: false,
        }
    }

    /// Begins a file of this name.
    pub fn begin(&mut self, name: &[u8]) {
        self.name.clear();
        self.name.extend_from_slice(name);
        self.begins = true;
    }

    /// Cuts as [`cut`] does; at the beginning of a file, the chunker gets the file's hints first.
    pub fn cut(&mut self, data: &[u8], ends: bool, lengths: &mut Vec<u32>) -> usize {
        if std::mem::take(&mut self.begins) {
            self.chunker.begin(&StreamHints::of(&self.name, data));
        }
        cut(&mut *self.chunker, data, ends, lengths)
    }

    pub fn packing(&self) -> Packing {
        if self.chunker.is_compressible() {
            Packing::Compress
        } else {
            Packing::AsIs
        }
    }
}

/// Passed from segment to segment of a range: the thread that has it cuts.
pub(super) struct Baton {
    cutter: Arc<Mutex<FileCutter>>,
    /// Bytes before the segment that are not cut yet, fewer than a longest chunk, and where they are held.
    carried: Option<Carried>,
    /// Offset where the range really ended, or why it could not be read on.
    pub(super) end: Option<Result<u64, Errno>>,
}

/// Bytes of a segment before they are read, and where they are.
pub(super) enum Bytes {
    /// Bytes of a file from this offset on; `true` where they are on the disk, as far as the kernel tells.
    At(Arc<Handle>, u64, bool),
    /// Bytes that were read already: the buffer, the offset in it, and their number.
    Here(Buffer, usize, usize),
    /// Bytes in RAM that are mapped, and likely to be stored already.
    Mapped(WindowView),
}

/// A piece of work for a thread that takes segments: one to cut, or other work on bytes of a large file.
pub enum SegmentTask {
    Cut(UncutSegment),
    Other(Box<dyn FnOnce(&Worker<'_>) + Send>),
}

/// A segment to read, cut and fingerprint.
pub struct UncutSegment {
    pub(super) bytes: Bytes,
    /// Range of the segment in the file, in bytes; the end counts if the file does not end before.
    pub(super) range: Range<u64>,
    /// Whether the range ends with this segment.
    pub(super) is_last: bool,
    pub(super) is_digested: bool,
    /// Set once nothing more of the range is wanted.
    pub(super) over: Arc<AtomicBool>,
    /// See [`SegmentSender`](super::segments::SegmentSender).
    pub(super) carries_much: Arc<AtomicBool>,
    pub(super) before: Receiver<Baton>,
    pub(super) after: Sender<Baton>,
    pub(super) done: Sender<Segment>,
}

/// Queues in which segments wait for a thread.
#[derive(Clone)]
pub struct Queues {
    /// Segments whose bytes come from the disk.
    pub cold: Sender<SegmentTask>,
    /// Segments whose bytes are in RAM.
    pub cached: Sender<SegmentTask>,
}

/// A thread that takes segments all the way.
pub struct Worker<'a> {
    pub tasks: Receiver<SegmentTask>,
    pub turns: Arc<Gate>,
    pub fingerprinter: Fingerprinter,
    pub digester: Option<Arc<Digester>>,
    pub buffers: &'a Buffers,
}

impl Worker<'_> {
    /// Works until all senders are gone.
    pub fn run(self) {
        for task in &self.tasks {
            self.take(task);
        }
    }

    /// Does the task that waits longest, if there is any; returns whether it did.
    pub fn help(&self) -> bool {
        let task = self.tasks.try_recv();
        task.map(|task| self.take(task)).is_ok()
    }

    /// Waits for a message, and does tasks meanwhile.
    pub fn recv<T>(&self, from: &Receiver<T>) -> Result<T, RecvError> {
        loop {
            select_biased! {
                recv(from) -> message => return message,
                recv(self.tasks) -> task => match task {
                    Ok(task) => self.take(task),
                    Err(_) => return from.recv(),
                },
            }
        }
    }

    fn take(&self, task: SegmentTask) {
        match task {
            SegmentTask::Cut(cut) => self.cut(cut),
            SegmentTask::Other(work) => work(self),
        }
    }

    pub(super) fn cut(&self, task: UncutSegment) {
        let want = (task.range.end - task.range.start) as usize;
        let (got, filled) = self.get(task.bytes, want);
        let mut digest = match (&self.digester, &got.held, filled) {
            (Some(digester), SegmentBytes::Buffer(buffer), Ok(filled)) if task.is_digested => {
                let bytes = &buffer[got.fresh..][..filled];
                Some(self.turns.with(|| digester.part(bytes)))
            }
            _ => None,
        };
        // The thread that had the baton died: the scope that holds the threads reports it.
        let Ok(mut baton) = task.before.recv() else {
            return;
        };
        let segment = self.turns.with(|| {
            let (mut lengths, mut packing) = (Vec::new(), Packing::Compress);
            let (mut held, mut start) = (None, 0);
            match (&baton.end, filled) {
                // The file was cut short before, and has grown since.
                (Some(_), _) => digest = None,
                (None, Err(e)) => baton.end = Some(Err(e)),
                (None, Ok(filled)) => match self.join(baton.carried.take(), got, filled) {
                    Err(e) => baton.end = Some(Err(e)),
                    Ok((joined, bytes)) => {
                        let ends = task.is_last || filled < want;
                        start = bytes.start;
                        (packing, held) = baton.cut(joined, bytes, ends, &mut lengths);
                        baton.end = ends.then_some(Ok(task.range.start + filled as u64));
                        if !ends {
                            let much = baton.carries_more_than(self.buffers.carried_bytes());
                            task.carries_much.store(much, Relaxed);
                        }
                    }
                },
            }
            task.over.store(baton.end.is_some(), Relaxed);
            // The next segment, or the receiver, may have given up; then the range is abandoned.
            let _ = task.after.send(baton);
            let bytes = held.as_ref().map_or(&[][..], |held| &held[start..]);
            let found = self
                .fingerprinter
                .fingerprints(pieces(bytes, lengths.iter().copied()));
            Segment {
                held,
                packing,
                start,
                chunks: found.into_iter().zip(lengths).collect(),
                digest,
            }
        });
        let _ = task.done.send(segment);
    }

    /// Gets a segment's bytes, and says how many of the `want` bytes there were; `want` is at most the room of a
    /// buffer.
    pub(super) fn get(&self, bytes: Bytes, want: usize) -> (Got, Result<usize, Errno>) {
        let (file, at, from_disk) = match bytes {
            Bytes::Here(buffer, fresh, filled) => return (Got::buffer(buffer, fresh), Ok(filled)),
            Bytes::Mapped(view) => match Got::mapped(view, want) {
                Ok(got) => return (got, Ok(want)),
                Err(view) => (view.file, view.at, false),
            },
            Bytes::At(file, at, from_disk) => (file, at, from_disk),
        };
        let (mut buffer, fresh) = self.buffers.for_segment(want);
        let filled = file.fill(&mut buffer[fresh..], want, at, from_disk);
        (Got::buffer(buffer, fresh), filled)
    }

    /// Joins the carried bytes and the `filled` bytes of the segment behind them in one piece. Returns the memory that
    /// holds them, and their range in it.
    fn join(
        &self,
        carried: Option<Carried>,
        mut got: Got,
        filled: usize,
    ) -> Result<(SegmentBytes, Range<usize>), Errno> {
        let Some((before, bytes)) = carried else {
            return Ok((got.held, got.fresh..got.fresh + filled));
        };
        let start = match got.fresh.checked_sub(bytes.len()) {
            Some(start) if bytes.len() <= got.room => start,
            _ => return self.gather((before, bytes), got, filled),
        };
        if let SegmentBytes::Buffer(buffer) = &mut got.held {
            buffer[start..got.fresh].copy_from_slice(&before[bytes]);
        }
        self.buffers.put(before);
        Ok((got.held, start..got.fresh + filled))
    }

    /// Does the same where the segment has no room before it for the carried bytes: the segment is copied behind them,
    /// if this thread alone holds them, or both go to another buffer. A mapped segment is read.
    fn gather(
        &self,
        (before, bytes): Carried,
        got: Got,
        filled: usize,
    ) -> Result<(SegmentBytes, Range<usize>), Errno> {
        let (mut buffer, bytes) = match Arc::try_unwrap(before) {
            Ok(SegmentBytes::Buffer(buffer)) if buffer.len() - bytes.end >= filled => {
                (buffer, bytes)
            }
            other => {
                let before = other.map_or_else(|shared| shared, Arc::new);
                let mut buffer = self.buffers.for_gathering();
                buffer[..bytes.len()].copy_from_slice(&before[bytes.clone()]);
                self.buffers.put(before);
                (buffer, 0..bytes.len())
            }
        };
        let behind = &mut buffer[bytes.end..bytes.end + filled];
        let filled = match got.again {
            Some((file, at)) => file.fill(behind, filled, at, false)?,
            None => {
                behind.copy_from_slice(&got.held[got.fresh..got.fresh + filled]);
                filled
            }
        };
        self.buffers.put(Arc::new(got.held));
        Ok((
            SegmentBytes::Buffer(buffer),
            bytes.start..bytes.end + filled,
        ))
    }
}

/// Bytes that are not cut yet: the memory that holds them, and their range in it.
type Carried = (Arc<SegmentBytes>, Range<usize>);

/// Bytes of a segment once they are there.
pub(super) struct Got {
    pub held: SegmentBytes,
    /// Offset of the bytes in `held`.
    pub fresh: usize,
    /// Room before the bytes for carried ones, in bytes.
    room: usize,
    /// File and offset that the bytes can be read from, if they are mapped.
    again: Option<(Arc<Handle>, u64)>,
}

impl Got {
    /// Makes the bytes of a view available; gives the view back where some of it is not there.
    pub fn mapped(view: WindowView, want: usize) -> Result<Self, WindowView> {
        if !view.populate(want) {
            return Err(view);
        }
        Ok(Self {
            held: SegmentBytes::Window(view.window),
            fresh: view.start,
            room: view.room,
            again: Some((view.file, view.at)),
        })
    }

    fn buffer(buffer: Buffer, fresh: usize) -> Self {
        Self {
            held: SegmentBytes::Buffer(buffer),
            fresh,
            room: fresh,
            again: None,
        }
    }
}

impl Baton {
    /// The baton of the first segment of a range.
    pub(super) fn new(cutter: &Arc<Mutex<FileCutter>>) -> Self {
        Self {
            cutter: cutter.clone(),
            carried: None,
            end: None,
        }
    }

    /// Cuts these bytes, which begin with the carried ones, as far as the cuts are certain. Returns the memory that
    /// holds the chunks. Memory without a finished chunk is carried on, but a window is returned all the same: the
    /// store looks whether it is torn.
    fn cut(
        &mut self,
        held: SegmentBytes,
        bytes: Range<usize>,
        ends: bool,
        lengths: &mut Vec<u32>,
    ) -> (Packing, Option<Arc<SegmentBytes>>) {
        let mut cutter = self.cutter.lock();
        let covered = cutter.cut(&held[bytes.clone()], ends, lengths);
        let left = bytes.start + covered..bytes.end;
        let held = Arc::new(held);
        let kept = (!lengths.is_empty() || !held.is_steady()).then(|| held.clone());
        self.carried = (!left.is_empty()).then_some((held, left));
        (cutter.packing(), kept)
    }

    fn carries_more_than(&self, bytes: usize) -> bool {
        let carried = self.carried.as_ref();
        carried.is_some_and(|(_, carried)| carried.len() > bytes)
    }
}
