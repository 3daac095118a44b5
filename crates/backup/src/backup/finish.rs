//! The last stage of a backup: takes files that were read in walk order, hands chunks to the store some hundred at a
//! time, and entries to the metadata stream.
//!
//! Chunks are collected over many small files until a batch is worth an index lookup. Notes beside the batch say what
//! to do with the references that come back, so that entries reach the metadata stream in order and complete.

mod notes;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_channel::Receiver;
use onefold_chunk::Fingerprint;
use onefold_io::Gate;
use onefold_store::digest::{self, Digest};
use onefold_store::{ChunkToWrite, ChunkWriter, Packing, Written};
use rustix::io::Errno;

use notes::mark_unreadable;

use super::buffers::{Buffer, Buffers, SegmentBytes};
use super::file_end::FileEnd;
use super::long_chunks::{LongChunks, PlannedPiece};
use super::metadata::MetadataStream;
use super::names::{FirstNames, LinkedNames};
use super::outlook::Outlook;
use super::parts::{LargePart, PartReceiver};
use super::plan::{ContentFrom, Entries, Job, OpenBytes, PlanStep, Planned, STEP_BYTES_MAX};
use super::segment::{Segment, Worker};
use super::windows::DIGESTED_BYTES_MIN;
use super::work::{LARGE_BYTES, SmallDone, SmallPart};
use crate::leaf::recipe::Builder;
use crate::meta::{Owners, xattrs_error};
use crate::snapshot::Summary;
use crate::{Content, Entry, Error, Events, Flags, Progress, Result, Slice, path};

/// Chunks after which a batch goes to the store.
const BATCH_CHUNKS: usize = 512;
/// Chunk bytes after which a batch goes to the store.
const BATCH_BYTES: usize = 4 << 20;
/// Bytes of entries after which a batch goes to the store.
const BATCH_ENTRY_BYTES: usize = 4 << 20;
/// Notes after which a batch goes to the store: entries without content need no lookup, but wait for those before them.
const BATCH_NOTES: usize = 4096;

/// One step to take, in order, when the references of a batch are there.
enum Note {
    /// The next N references belong to the current file.
    Chunks(usize),
    /// The current file goes on with this part of a stored chunk, whose bytes are the same.
    Kept(Slice),
    /// A hole of this length, in bytes, in the current file.
    Hole(u64),
    /// The current file begins anew: forget its parts so far.
    Again,
    /// The first name of these could not be read, so further names get no content from it.
    Unread(LinkedNames),
    /// The current file is complete; the entry gets its content.
    File(Arc<[u8]>, Box<Planned>),
    /// A file whose entry has its content already is complete.
    Known(Arc<[u8]>, Box<Planned>),
    /// An entry that needs none of the references.
    Entry(Arc<[u8]>, Box<Planned>),
}

struct Chunk {
    fingerprint: Fingerprint,
    held: usize,
    bytes: Range<usize>,
    packing: Packing,
}

/// State of the last stage.
pub struct Finisher<'a> {
    pub writer: ChunkWriter,
    pub metadata: MetadataStream,
    long_chunks: LongChunks<'a>,
    pub budget: &'a Gate,
    pub large_budget: &'a Gate,
    open_bytes: OpenBytes,
    pub buffers: &'a Buffers,
    pub outlook: &'a Outlook,
    pub owners: &'a Owners,
    pub progress: &'a Progress,
    pub events: &'a dyn Events,
    pub summary: Summary,
    /// Folders whose entries are to be flagged as not listed.
    pub cut_off: Vec<Arc<[u8]>>,
    batch: LookupBatch,
    recipe: Builder,
    /// Bytes of new chunks of the current file, before compression.
    new_bytes: u64,
    /// Digest of the current file, as long as there is one for each of its parts.
    digest: Option<digest::InProgress>,
    /// Whether some of the current file was gone when it was to be stored.
    has_lost: bool,
    links: FirstNames,
}

#[derive(Default)]
struct LookupBatch {
    chunks: Vec<Chunk>,
    notes: Vec<Note>,
    bytes: usize,
    /// Heap bytes of the entries in the batch.
    entry_bytes: usize,
    /// Memory that the chunks of the batch lie in.
    held: Vec<Arc<SegmentBytes>>,
    /// Bytes that the batch and its entries take of the budget.
    budget_bytes: usize,
}

impl LookupBatch {
    /// Adds an entry that needs none of the references.
    fn entry(&mut self, folder: &Arc<[u8]>, planned: Planned) {
        self.entry_bytes += planned.entry.heap_bytes();
        self.notes.push(Note::Entry(folder.clone(), planned.into()));
    }

    /// Adds the end of the current file.
    fn file(&mut self, folder: &Arc<[u8]>, planned: Planned) {
        self.entry_bytes += planned.entry.heap_bytes();
        self.notes.push(Note::File(folder.clone(), planned.into()));
    }

    /// Adds a file whose content was known before it was cut.
    fn known(&mut self, folder: &Arc<[u8]>, mut planned: Planned, content: Content) {
        planned.entry.content = content;
        self.entry_bytes += planned.entry.heap_bytes();
        self.notes.push(Note::Known(folder.clone(), planned.into()));
    }
}

impl<'a> Finisher<'a> {
    pub fn new(
        (writer, metadata): (ChunkWriter, MetadataStream),
        long_chunks: LongChunks<'a>,
        (budget, large_budget, open_bytes): (&'a Gate, &'a Gate, OpenBytes),
        (buffers, outlook): (&'a Buffers, &'a Outlook),
        owners: &'a Owners,
        (progress, events): (&'a Progress, &'a dyn Events),
        links_bytes: usize,
    ) -> Self {
        Self {
            writer,
            metadata,
            long_chunks,
            budget,
            large_budget,
            open_bytes,
            buffers,
            outlook,
            owners,
            progress,
            events,
            summary: Summary::default(),
            cut_off: Vec::new(),
            batch: LookupBatch::default(),
            recipe: Builder::default(),
            new_bytes: 0,
            digest: None,
            has_lost: false,
            links: FirstNames::new(links_bytes),
        }
    }

    /// Takes all steps until the planner has no more. `worker` computes on segments in this thread while the store
    /// waits for them.
    pub fn run(&mut self, steps: &Receiver<PlanStep>, worker: Worker<'_>) -> Result<()> {
        for step in steps {
            self.progress.check()?;
            match step {
                PlanStep::Failed(path, error) => self.failed(&path, &error),
                PlanStep::CutOff(folder) => self.cut_off.push(folder),
                PlanStep::Fatal(error) => return Err(error),
                PlanStep::Entries {
                    entries,
                    job,
                    budget_bytes,
                } => {
                    self.batch.budget_bytes += budget_bytes;
                    self.entries(entries, job, &worker)?;
                }
            }
        }
        self.progress.check()?;
        self.flush()
    }

    fn failed(&mut self, path: &[u8], error: &Error) {
        self.summary.errors += 1;
        Progress::add(&self.progress.errors, 1);
        self.events.error(path, error);
    }

    fn entries(&mut self, entries: Entries, job: Job, worker: &Worker<'_>) -> Result<()> {
        if let Some(folder) = entries.first_folder() {
            let mut current = self.progress.current.lock();
            current.clear();
            current.extend_from_slice(folder);
        }
        let done = match job {
            Job::None => SmallDone::default(),
            Job::Large {
                parts,
                budget_bytes,
            } => {
                for (folder, planned) in entries.into_iter() {
                    self.large(&folder, planned, &parts, worker)?;
                }
                self.large_budget.free(budget_bytes);
                return Ok(());
            }
            Job::Small { done } => {
                let mut done = done.recv().map_err(|_| self.reader_died())?;
                let held = SegmentBytes::Buffer(Buffer::Heap(std::mem::take(&mut done.buffer)));
                self.batch.held.push(Arc::new(held));
                done
            }
        };
        let (mut files, rest) = (done.files.into_iter(), done.rest);
        let (mut pieces, mut fingerprints) = (done.parts.iter(), done.fingerprints.into_iter());
        let (held, mut at) = (self.batch.held.len().saturating_sub(1), 0);
        for (folder, mut planned) in entries.into_iter() {
            let folder = &folder;
            if planned.content != ContentFrom::Job {
                self.batch.entry(folder, planned);
                continue;
            }
            match (files.next(), &rest) {
                (None, None) => return Err(self.reader_died()),
                // The job's buffer holds nothing behind this file, so the other parts come from the channel.
                (None, Some(parts)) => self.large(folder, planned, parts, worker)?,
                (Some(Err(e)), _) => self.unreadable(folder, planned, e),
                (Some(Ok(file)), _) => {
                    for part in pieces.by_ref().take(file.parts) {
                        match *part {
                            SmallPart::Chunk(len) => {
                                let fingerprint =
                                    fingerprints.next().ok_or_else(|| self.reader_died())?;
                                let bytes = at..at + len as usize;
                                self.chunk(fingerprint, held, bytes, file.packing);
                                at += len as usize;
                            }
                            SmallPart::Hole(len) => self.batch.notes.push(Note::Hole(len)),
                        }
                    }
                    self.describe(folder, &mut planned.entry, file.end);
                    self.batch.file(folder, planned);
                }
            }
        }
        self.flush_if_full()
    }

    fn large(
        &mut self,
        folder: &Arc<[u8]>,
        planned: Planned,
        parts: &PartReceiver,
        worker: &Worker<'_>,
    ) -> Result<()> {
        self.begin(&planned, worker);
        loop {
            self.progress.check()?;
            match parts.recv(worker).map_err(|_| self.reader_died())? {
                LargePart::Hole(len) => {
                    self.long_chunks.pass_hole(len);
                    self.hole(len);
                }
                LargePart::Kept(items) => {
                    self.kept(items);
                    self.flush_if_full()?;
                }
                LargePart::Segment(segment, _) => {
                    let mut segment = segment.recv().map_err(|_| self.reader_died())?;
                    self.digest(segment.digest.take());
                    let fingerprinter = &worker.fingerprinter;
                    let writer = &mut self.writer;
                    let pieces = self.long_chunks.settle(&segment, writer, fingerprinter)?;
                    self.segment(segment, pieces);
                    self.flush_if_full()?;
                }
                LargePart::Read(end) => {
                    self.flush()?;
                    let is_done = !std::mem::take(&mut self.has_lost) && !end.changed;
                    parts.answer(is_done);
                    if is_done {
                        return self.ended(folder, planned, end);
                    }
                    self.begin(&planned, worker);
                    self.batch.notes.push(Note::Again);
                }
                LargePart::End(Ok(end)) => return self.ended(folder, planned, end),
                LargePart::End(Err(e)) => {
                    // A wait that was cancelled is no fault of the stream.
                    self.progress.check()?;
                    self.batch.notes.push(Note::Again);
                    self.unreadable(folder, planned, e);
                    return Ok(());
                }
            }
        }
    }

    /// Takes the end of a large file.
    fn ended(&mut self, folder: &Arc<[u8]>, mut planned: Planned, mut end: FileEnd) -> Result<()> {
        self.summary.bytes_read += end.compared_bytes;
        let known = end.content.take();
        let compared_bytes = end.compared_bytes;
        self.describe(folder, &mut planned.entry, end);
        match known {
            Some(content) => {
                (self.progress.bytes_ahead).fetch_sub(compared_bytes, Relaxed);
                self.batch.known(folder, planned, content);
                // Nothing of the file is on its way, so its entry need not wait for other chunks.
                return self.flush();
            }
            None => {
                // A file below this size that is all hole would have a digest as well.
                let is_digested = planned.entry.size >= DIGESTED_BYTES_MIN;
                planned.entry.content.digest = self.digested().filter(|_| is_digested);
                self.batch.file(folder, planned);
            }
        }
        self.flush_if_full()
    }

    /// Begins a file, or the same file anew.
    fn begin(&mut self, planned: &Planned, worker: &Worker<'_>) {
        self.long_chunks
            .begin(&planned.entry, planned.before.as_ref());
        self.digest = worker.digester.as_ref().map(|digester| digester.begin());
    }

    fn digest(&mut self, part: Option<digest::Part>) {
        match (&mut self.digest, part) {
            (Some(digest), Some(part)) => digest.push(&part),
            (digest, _) => *digest = None,
        }
    }

    fn digested(&self) -> Option<Digest> {
        self.digest.as_ref().map(digest::InProgress::finish)
    }

    fn segment(&mut self, segment: Segment, pieces: Vec<PlannedPiece>) {
        let Some(held) = segment.held else { return };
        self.batch.held.push(held);
        let mut at = segment.start;
        for piece in pieces {
            let bytes = at..at + piece.bytes();
            at = bytes.end;
            match piece {
                PlannedPiece::Chunk(fingerprint, _) => {
                    let held = self.batch.held.len() - 1;
                    self.chunk(fingerprint, held, bytes, segment.packing);
                }
                PlannedPiece::Kept(slice) => {
                    self.batch.bytes += bytes.len();
                    self.batch.notes.push(Note::Kept(slice));
                }
            }
        }
    }

    /// The error of a reader thread that panicked: our own mistake, which the scope that holds the threads passes on.
    fn reader_died(&self) -> Error {
        Error::Cancelled
    }

    /// Keeps the entry without content, so that a restore knows of the name.
    fn unreadable(&mut self, folder: &Arc<[u8]>, mut planned: Planned, e: Errno) {
        self.batch.notes.extend(planned.link.map(Note::Unread));
        // The file was deleted since it was listed: leave it out as if it had never been there.
        if e == Errno::NOENT {
            return;
        }
        let path = path::join(folder, &planned.entry.name);
        self.failed(&path, &Error::io("read", &path, e));
        mark_unreadable(&mut planned);
        self.batch.entry(folder, planned);
    }

    fn chunk(
        &mut self,
        fingerprint: Fingerprint,
        held: usize,
        bytes: Range<usize>,
        packing: Packing,
    ) {
        self.batch.bytes += bytes.len();
        self.batch.chunks.push(Chunk {
            fingerprint,
            held,
            bytes,
            packing,
        });
        match self.batch.notes.last_mut() {
            Some(Note::Chunks(n)) => *n += 1,
            _ => self.batch.notes.push(Note::Chunks(1)),
        }
    }

    /// Fills in the entry as the file was when it was read.
    fn describe(&mut self, folder: &[u8], entry: &mut Entry, end: FileEnd) {
        // The time of access is the one from before the reading, which may count as an access.
        end.stat.tell(entry, self.owners);
        entry.flags = Flags::default();
        match end.xattrs {
            Ok(xattrs) => entry.xattrs = xattrs.into(),
            Err(e) => {
                entry.flags.0 |= Flags::UNLISTED.0;
                let path = path::join(folder, &entry.name);
                self.failed(&path, &xattrs_error(&path, e));
            }
        }
        if end.changed {
            entry.flags.0 |= Flags::CHANGED_WHILE_READ.0;
            self.events.warning(
                &path::join(folder, &entry.name),
                "changed while it was read: its content may mix versions",
            );
        }
    }

    fn flush_if_full(&mut self) -> Result<()> {
        let batch = &self.batch;
        // The planner must find room for any job while this thread waits for it with a batch begun: there may be little
        // to store in the held buffers.
        let read_bytes_max = self.buffers.size_for(LARGE_BYTES as usize);
        let job_bytes_max = read_bytes_max.max(self.open_bytes.job_max()) + STEP_BYTES_MAX;
        let full = batch.chunks.len() >= BATCH_CHUNKS
            || batch.bytes >= BATCH_BYTES
            || batch.entry_bytes >= BATCH_ENTRY_BYTES
            || batch.notes.len() >= BATCH_NOTES
            || batch.held.len() >= 64
            || batch.budget_bytes + job_bytes_max > self.budget.units();
        if full { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let mut written = Vec::with_capacity(batch.chunks.len());
        if !batch.chunks.is_empty() {
            let given = |chunk: &Chunk| {
                let held = &batch.held[chunk.held];
                ChunkToWrite {
                    fingerprint: chunk.fingerprint,
                    data: &held[chunk.bytes.clone()],
                    packing: chunk.packing,
                    is_steady: held.is_steady(),
                }
            };
            let given: Vec<_> = batch.chunks.iter().map(given).collect();
            self.writer.write_given(&given, &mut written)?;
        }
        let any_new = written.iter().any(|w| !matches!(w, Written::Known(_)));
        self.outlook.tell(batch.bytes as u64, any_new);
        for held in batch.held {
            // By now all chunks in this memory were looked at, so a torn window shows.
            self.has_lost |= held.is_torn();
            self.buffers.put(held);
        }
        self.budget.free(batch.budget_bytes);
        Progress::add(&self.progress.bytes_moved, batch.bytes as u64);
        let new_bytes = self.writer.stats().new_bytes + self.metadata.new_bytes();
        self.progress.bytes_new.store(new_bytes, Relaxed);
        self.summary.bytes_read += batch.bytes as u64;
        let mut written = written.into_iter();
        batch
            .notes
            .into_iter()
            .try_for_each(|note| self.note(note, &mut written))
    }
}
