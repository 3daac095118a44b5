//! Segments of a large file: read side by side, cut one after the other, fingerprinted side by side.
//!
//! One thread takes a segment all the way, so that what it read is still in its core's cache when it is cut and fingerprinted; and as several
//! threads do so, the disk has several reads to do at once. Only the cuts depend on the segment before: what cuts goes from segment to segment as a
//! baton. Segments that wait for the disk and those that are there already have threads of their own: many that wait; and those that copy or map fewer than there are
//! cores, since the store's thread helps them, and more would only push each other out of the cores and their caches. Each queue is taken in the order in which it was filled, and a segment
//! is sent after the one before it: of all that is unfinished, the segment that was sent first waits for nobody, and a thread has it or is free for it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crossbeam_channel::{Receiver, Sender, bounded};
use onefold_chunk::{Chunker, Fingerprint, Hints};
use onefold_store::{Fingerprinter, Packing};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::buffers::{Buffer, Buffers, Held, LONG_SEGMENT_BYTES, SEGMENT_BYTES};
use super::outlook::Outlook;
use super::parts::{LargePart, PartSender};
use super::read::{Cached, Handle, Source, cut};
use super::source::{Abandoned, pieces};
use super::windows::{View, Windows};

/// Chunks of a large file's segment: they fill what is held from `start` on.
pub struct Segment {
    pub held: Held,
    pub packing: Packing,
    pub start: usize,
    pub chunks: Vec<(Fingerprint, u32)>,
}

/// A channel for one result.
pub fn slot<T>() -> (Sender<T>, Receiver<T>) {
    bounded(1)
}

/// What cuts files, one after the other.
pub struct Cutter {
    pub chunker: Box<dyn Chunker>,
    /// The name of a file of which nothing has been cut yet.
    pub begins: Option<Vec<u8>>,
}

impl Cutter {
    /// As [`cut`]; tells the chunker before of a file that begins here.
    pub fn cut(&mut self, data: &[u8], ends: bool, lengths: &mut Vec<u32>) -> usize {
        if let Some(name) = self.begins.take() {
            self.chunker.begin(&Hints::of(&name, data));
        }
        cut(&mut *self.chunker, data, ends, lengths)
    }

    pub fn packing(&self) -> Packing {
        match self.chunker.is_compressible() {
            true => Packing::Compress,
            false => Packing::AsIs,
        }
    }
}

/// Goes from segment to segment of a range: whoever has it cuts.
struct Baton {
    cutter: Arc<Mutex<Cutter>>,
    /// The bytes before the segment that are not cut yet: fewer than a longest chunk has.
    carried: Vec<u8>,
    /// Where the range really ended, or why it could not be read on.
    end: Option<Result<u64, Errno>>,
}

/// Where a segment's bytes are.
enum Bytes {
    /// In a file, from here on; whether on the disk, as far as the kernel tells.
    At(Arc<Handle>, u64, bool),
    /// Read already: so many, from here in this buffer.
    Here(Buffer, usize, usize),
    /// In RAM, and likely to be stored already.
    Mapped(View),
}

/// A segment to read, cut and fingerprint.
pub struct Task {
    bytes: Bytes,
    /// Where it begins in the file, and where it ends if the file does not end before.
    range: Range<u64>,
    /// The range ends with it.
    is_last: bool,
    /// Nothing of the range is wanted any more.
    over: Arc<AtomicBool>,
    before: Receiver<Baton>,
    after: Sender<Baton>,
    done: Sender<Segment>,
}

/// Where segments wait for a thread.
#[derive(Clone)]
pub struct Queues {
    /// Those whose bytes come from the disk.
    pub cold: Sender<Task>,
    /// Those whose bytes are in RAM.
    pub cached: Sender<Task>,
}

/// Turns to compute: fewer than threads that read, so that what one has in a core's cache is not pushed out by others.
#[derive(Clone)]
pub struct Turns(Sender<()>, Receiver<()>);

impl Turns {
    pub fn new(at_once: usize) -> Self {
        let (sender, receiver) = bounded(at_once);
        for _ in 0..at_once {
            let _ = sender.send(());
        }
        Self(sender, receiver)
    }

    /// Whoever has a turn waits for nobody.
    fn with<T>(&self, compute: impl FnOnce() -> T) -> T {
        // Both ends are here: neither fails.
        let _ = self.1.recv();
        let _turn = Turn(&self.0);
        compute()
    }
}

/// Goes back when it is dropped, by a panic too.
struct Turn<'a>(&'a Sender<()>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// A thread that takes segments all the way.
pub struct Worker<'a> {
    pub tasks: Receiver<Task>,
    pub turns: Turns,
    pub fingerprinter: Fingerprinter,
    pub buffers: &'a Buffers,
}

impl Worker<'_> {
    /// Works until nobody sends any more.
    pub fn run(self) {
        for task in &self.tasks {
            self.segment(task);
        }
    }

    /// Does what waits longest, if anything does; whether it did.
    pub fn help(&self) -> bool {
        let task = self.tasks.try_recv();
        task.map(|task| self.segment(task)).is_ok()
    }

    fn segment(&self, task: Task) {
        let want = (task.range.end - task.range.start) as usize;
        let (mut held, fresh, filled) = self.get(task.bytes, want);
        // The thread that had it died: the scope that holds the threads tells.
        let Ok(mut baton) = task.before.recv() else {
            return;
        };
        let start = fresh - baton.carried.len();
        let (over, after) = (&task.over, &task.after);
        let (packing, chunks) = self.turns.with(|| {
            let (mut lengths, mut packing) = (Vec::new(), Packing::Compress);
            match (&baton.end, filled) {
                (Some(_), _) => {}
                (None, Err(e)) => baton.end = Some(Err(e)),
                (None, Ok(filled)) => {
                    if let Held::Buffer(buffer) = &mut held {
                        buffer[start..fresh].copy_from_slice(&baton.carried);
                    }
                    let data = &held[start..fresh + filled];
                    let ends = task.is_last || filled < want;
                    packing = baton.cut(data, ends, &mut lengths);
                    baton.end = ends.then_some(Ok(task.range.start + filled as u64));
                }
            }
            over.store(baton.end.is_some(), Relaxed);
            // Whoever waited for this or for the segment gave up: so does this.
            let _ = after.send(baton);
            let pieces = pieces(&held[start..], lengths.iter().copied());
            let found = self.fingerprinter.fingerprints(pieces);
            (packing, found.into_iter().zip(lengths).collect())
        });
        let _ = task.done.send(Segment {
            held,
            packing,
            start,
            chunks,
        });
    }

    /// Holds a segment's bytes: where in what is held they begin, and how many there were of those wanted.
    fn get(&self, bytes: Bytes, want: usize) -> (Held, usize, Result<usize, Errno>) {
        let (file, at, from_disk) = match bytes {
            Bytes::Here(buffer, fresh, filled) => return (Held::Buffer(buffer), fresh, Ok(filled)),
            Bytes::Mapped(view) => {
                if view.populate(want) {
                    return (Held::Window(view.window), view.start, Ok(want));
                }
                (view.file, view.at, false)
            }
            Bytes::At(file, at, from_disk) => (file, at, from_disk),
        };
        let (mut buffer, fresh) = self.buffers.for_segment(want);
        let filled = file.fill(&mut buffer[fresh..], want, at, from_disk);
        (Held::Buffer(buffer), fresh, filled)
    }
}

impl Baton {
    /// Cuts `data`, which begins with what was carried, as far as is sure.
    fn cut(&mut self, data: &[u8], ends: bool, lengths: &mut Vec<u32>) -> Packing {
        let mut cutter = self.cutter.lock();
        let covered = cutter.cut(data, ends, lengths);
        self.carried.clear();
        self.carried.extend_from_slice(&data[covered..]);
        cutter.packing()
    }
}

/// Gives out the segments of a range.
pub struct Segments<'a> {
    pub cutter: &'a Arc<Mutex<Cutter>>,
    pub buffers: &'a Buffers,
    pub queues: &'a Queues,
    /// Whether what comes next is likely to be stored already; `None` if nothing is to be mapped.
    pub outlook: Option<&'a Outlook>,
    pub parts: &'a PartSender,
}

impl<'a> Segments<'a> {
    /// What to read at `at`, how much of `left` bytes, and who is to do that.
    fn next(
        &self,
        windows: &mut Windows<'_>,
        at: u64,
        left: usize,
    ) -> (Bytes, usize, &'a Sender<Task>) {
        let file = windows.file;
        let (long, short) = (left.min(LONG_SEGMENT_BYTES), left.min(SEGMENT_BYTES));
        if self.outlook.is_some_and(Outlook::is_known)
            && file.cached(at, long) == Some(Cached::Whole)
            && let Some(view) = windows.view(at, long)
        {
            self.parts.maps();
            return (Bytes::Mapped(view), long, &self.queues.cached);
        }
        let (want, from_disk, queue) = match file.cached(at, short) {
            Some(Cached::Whole | Cached::Mostly) => (short, false, &self.queues.cached),
            Some(Cached::Little) if file.cached(at, long) == Some(Cached::Little) => {
                (long, true, &self.queues.cold)
            }
            Some(Cached::Little) => (short, true, &self.queues.cold),
            None => (short, false, &self.queues.cold),
        };
        (Bytes::At(file.clone(), at, from_disk), want, queue)
    }

    /// Sends this range of the file; gives where it really ended.
    pub fn send(
        &self,
        source: &Source<'_>,
        range: Range<u64>,
    ) -> Result<Result<u64, Errno>, Abandoned> {
        let over = Arc::new(AtomicBool::new(false));
        let (first, mut before) = slot();
        let _ = first.send(Baton {
            cutter: self.cutter.clone(),
            carried: Vec::new(),
            end: None,
        });
        let carried = self.buffers.carried_bytes();
        let mut windows = Windows::new(&source.handle, range.clone(), carried);
        let mut at = range.start;
        loop {
            let left = (range.end - at).try_into().unwrap_or(usize::MAX);
            let (bytes, want, queue) = if source.is_stream() {
                let want = left.min(SEGMENT_BYTES);
                let (mut buffer, fresh) = self.buffers.for_segment(want);
                let filled = match source.read_fully(&mut buffer[fresh..fresh + want]) {
                    Ok(filled) => filled,
                    Err(e) => return Ok(Err(e)),
                };
                (
                    Bytes::Here(buffer, fresh, filled),
                    want,
                    &self.queues.cached,
                )
            } else {
                self.next(&mut windows, at, left)
            };
            let ends_early = matches!(bytes, Bytes::Here(_, _, filled) if filled < want);
            let end = at + want as u64;
            let is_last = ends_early || end == range.end;
            let ((done, segment), (after, next)) = (slot(), slot());
            let taken = self.buffers.segment_bytes(want);
            self.parts.send(LargePart::Segment(segment, taken))?;
            let task = Task {
                bytes,
                range: at..end,
                is_last,
                over: over.clone(),
                before,
                after,
                done,
            };
            queue.send(task).map_err(|_| Abandoned)?;
            (before, at) = (next, end);
            if is_last || over.load(Relaxed) {
                let baton = before.recv().map_err(|_| Abandoned)?;
                return Ok(baton.end.unwrap_or(Ok(at)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::num::NonZeroU64;
    use std::os::fd::AsFd;

    use crossbeam_channel::unbounded;
    use onefold_chunk::sieve::Sieve;
    use onefold_io::cached_bytes;
    use rustix::fs::Advice;

    use super::super::parts::large_channel;
    use super::*;

    /// What comes of a range of a file: its chunks, how many segments were mapped, and where it ended.
    fn read(
        file: File,
        range: Range<u64>,
        is_known: bool,
    ) -> (Vec<Vec<u8>>, usize, Result<u64, Errno>) {
        let outlook = Outlook::default();
        outlook.tell(u64::MAX / 2, !is_known);
        let chunker = Box::new(Sieve::new(8192));
        let buffers = Buffers::new(chunker.limits().max);
        let begins = None;
        let cutter = Arc::new(Mutex::new(Cutter { chunker, begins }));
        let source = Source::file(file.into()).unwrap();
        let ((cold, cold_tasks), (cached, cached_tasks)) = (unbounded(), unbounded());
        let queues = Queues { cold, cached };
        let (parts, received, _) = large_channel(u64::MAX, &buffers);
        let turns = Turns::new(2);
        std::thread::scope(|scope| {
            for tasks in [&cold_tasks, &cold_tasks, &cold_tasks, &cached_tasks] {
                let (buffers, turns) = (&buffers, turns.clone());
                let fingerprinter = Fingerprinter::default();
                let worker = Worker {
                    tasks: tasks.clone(),
                    fingerprinter,
                    turns,
                    buffers,
                };
                scope.spawn(move || worker.run());
            }
            let chunks = scope.spawn(move || {
                let (mut chunks, mut mapped) = (Vec::new(), 0);
                while let Ok(part) = received.recv(|| false) {
                    if let LargePart::Segment(segment, _) = part {
                        let segment = segment.recv().unwrap();
                        mapped += usize::from(!segment.held.is_steady());
                        let lengths = segment.chunks.iter().map(|(_, len)| *len);
                        let found = pieces(&segment.held[segment.start..], lengths);
                        chunks.extend(found.map(<[u8]>::to_vec));
                    }
                }
                (chunks, mapped)
            });
            let segments = Segments {
                cutter: &cutter,
                buffers: &buffers,
                queues: &queues,
                outlook: Some(&outlook),
                parts: &parts,
            };
            let end = segments.send(&source, range);
            drop((parts, queues));
            let end = end.unwrap_or_else(|_| panic!("abandoned"));
            let (chunks, mapped) = chunks.join().unwrap();
            (chunks, mapped, end)
        })
    }

    /// A file shorter than it was said to be ends where it ends, cut as in one piece: from RAM, copied or mapped, from the disk, and partly from each.
    #[test]
    fn a_file_that_shrank_is_cut_to_its_end() {
        let word = |i: u32| i.wrapping_mul(0x9e37_79b1).to_be_bytes();
        let bytes: Vec<u8> = (0..1_600_001u32).flat_map(word).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, &bytes).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let places = [None, Some(0..1 << 30), Some(3 << 20..5 << 20)];
        let all = places.iter().flat_map(|place| {
            let known = [false, true].map(|is_known| (place, is_known));
            known.into_iter()
        });
        for from in [0, 4096, 2_000_001] {
            let mut expected = Vec::new();
            let sieve = &mut Sieve::new(8192);
            cut(sieve, &bytes[from..], true, &mut expected);
            let expected: Vec<_> = pieces(&bytes[from..], expected.into_iter()).collect();
            for (forgotten, is_known) in all.clone() {
                let file = File::open(&path).unwrap();
                std::fs::read(&path).unwrap();
                if let Some(Range { start, end }) = forgotten {
                    let len = NonZeroU64::new(end - start);
                    rustix::fs::fadvise(&file, *start, len, Advice::DontNeed).unwrap();
                }
                let (at, long) = (from as u64, LONG_SEGMENT_BYTES as u64);
                let begins_in_ram = cached_bytes(file.as_fd(), at, long) >= Some(long);
                let (chunks, mapped, end) = read(file, at..1 << 30, is_known);
                assert_eq!(end, Ok(bytes.len() as u64));
                assert!(chunks == expected);
                assert!(is_known || mapped == 0);
                assert!(!is_known || !begins_in_ram || mapped > 0);
            }
        }
    }

    /// A failed read ends the range and is told.
    #[test]
    fn a_failed_read_is_told() {
        let (chunks, mapped, end) = read(File::open("/").unwrap(), 0..1 << 30, true);
        assert_eq!((chunks, mapped, end), (Vec::new(), 0, Err(Errno::ISDIR)));
    }
}
