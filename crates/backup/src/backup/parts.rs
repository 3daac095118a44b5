//! The way of a large file's parts from its reader to the store: bounded in bytes ([`super::ahead`]), since segments
//! differ in size.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_channel::{Receiver, RecvError, Select, Sender, bounded};

use super::ahead::{LargeFileQueue, QueuePlace};
use super::buffers::{Buffers, LONG_SEGMENT_BYTES};
use super::file_end::{Abandoned, FileEnd};
use super::segment::{Segment, Worker};
use crate::Item;
use rustix::io::Errno;

/// Largest number of bytes of large files in buffers between their readers and the store: as many segments as threads
/// read, and a batch of the store.
pub const BYTES_AHEAD: usize = 24 << 20;
/// Largest number of bytes of large files that are planned but not stored, as [`ahead_bytes`] counts them: four files,
/// or many that have few segments each. They hold open files, and readers.
pub const BYTES_PLANNED: usize = 2 * BYTES_AHEAD;
/// Largest number of bytes that one file is counted as, and that the buffers of a stream take: enough to read on while
/// the store takes a batch.
pub const FILE_BYTES_AHEAD: usize = BYTES_AHEAD / 2;
/// Largest number of parts of one file on their way, including holes.
const PARTS_AHEAD: usize = 24;
/// Bytes of segments that the store waits for together: one that comes from the disk, or four.
const TOGETHER_BYTES: usize = LONG_SEGMENT_BYTES;

/// A message of a large file's reader to the store; messages come in order.
pub enum LargePart {
    /// A segment of data, whose fingerprints come when they are ready, and the bytes that its buffer takes.
    Segment(Receiver<Segment>, usize),
    /// A hole of this length, in bytes.
    Hole(u64),
    /// Items of the parent, whose chunks are stored.
    Kept(Vec<Item>),
    /// The end of the file, which can be read once more. The store answers ([`PartReceiver::answer`]) whether it has
    /// all of the file. It lacks some where the file changed, or where mapped bytes vanished before they were stored:
    /// then the parts of the whole file follow once more, and take the place of these.
    Read(FileEnd),
    /// The end of the file, or why it cannot be read.
    End(Result<FileEnd, Errno>),
}

impl LargePart {
    fn segment(&self) -> Option<&Receiver<Segment>> {
        match self {
            Self::Segment(segment, _) => Some(segment),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Segment(_, bytes) => *bytes,
            Self::Read(end) | Self::End(Ok(end)) => end.bytes(),
            _ => 0,
        }
    }
}

/// The reader's end of the channel.
pub struct PartSender {
    parts: Sender<LargePart>,
    place: QueuePlace,
    /// Whether a segment of the file is mapped.
    has_mapped: Cell<bool>,
    /// The store's answer to [`LargePart::Read`]. The other end is the store's, so a waiting reader is woken when the
    /// store gives up.
    answers: Receiver<bool>,
}

/// The store's end of the channel. Dropping it wakes a waiting reader.
pub struct PartReceiver {
    parts: Receiver<LargePart>,
    /// Parts taken out of the channel that were not given out yet.
    taken: RefCell<VecDeque<LargePart>>,
    place: QueuePlace,
    answers: Sender<bool>,
}

/// Bytes that a large file of this size is counted as before it is read.
pub fn ahead_bytes(size: u64, buffers: &Buffers) -> usize {
    let segments = size.div_ceil(LONG_SEGMENT_BYTES as u64).max(1);
    let each = buffers.segment_bytes(LONG_SEGMENT_BYTES);
    // A segment that is larger than the whole room goes alone.
    let fit = (FILE_BYTES_AHEAD / each).max(1) as u64;
    segments.min(fit) as usize * each
}

/// Makes the channel of a large file, which the store takes after those that are in `ahead` already.
pub fn large_channel(ahead: &Arc<LargeFileQueue>) -> (PartSender, PartReceiver) {
    let place = ahead.enter();
    let (sender, receiver) = bounded(PARTS_AHEAD);
    let (answer, answers) = bounded(1);
    let sender = PartSender {
        parts: sender,
        place: place.clone(),
        has_mapped: Cell::new(false),
        answers,
    };
    let receiver = PartReceiver {
        parts: receiver,
        taken: RefCell::default(),
        place,
        answers: answer,
    };
    (sender, receiver)
}

impl PartSender {
    /// Sends a part once there is room.
    pub fn send(&self, part: LargePart) -> Result<(), Abandoned> {
        let bytes = part.bytes();
        if bytes > 0 && !self.place.take(bytes) {
            return Err(Abandoned);
        }
        self.parts.send(part).map_err(|_| Abandoned)
    }

    /// Notes that all segments are sent, unless the file must be read anew.
    pub fn sent(&self) {
        self.place.sent();
    }

    /// Takes `bytes` of the room among large files, for bytes that are no part on their way; waits until they fit.
    pub fn take(&self, bytes: usize) -> Result<(), Abandoned> {
        self.place.take(bytes).then_some(()).ok_or(Abandoned)
    }

    /// Does the same if they fit now; returns whether they did.
    pub fn try_take(&self, bytes: usize) -> bool {
        self.place.try_take(bytes)
    }

    /// Gives room back that was taken for bytes that are no part.
    pub fn free(&self, bytes: usize) {
        self.place.free(bytes);
    }

    /// Notes that the next segment is mapped.
    pub fn maps(&self) {
        self.has_mapped.set(true);
    }

    /// Whether bytes that were sent may vanish before the store has taken them.
    pub fn has_mapped(&self) -> bool {
        self.has_mapped.get()
    }

    /// Sends the end of a file that can be read once more; returns whether the store is done with the file.
    pub fn is_done(&self, end: FileEnd) -> Result<bool, Abandoned> {
        self.send(LargePart::Read(end))?;
        self.answers.recv().map_err(|_| Abandoned)
    }
}

impl Drop for PartSender {
    fn drop(&mut self) {
        self.place.sent();
    }
}

impl PartReceiver {
    /// Gives the next part; fails where the reader has died.
    ///
    /// Takes the parts behind it, too, that are there already, and waits for the last segment of them: a wait for each
    /// segment alone would wake this thread for each, and each time the reader that waits for room. While it waits,
    /// `worker` does what is waited for.
    pub fn recv(&self, worker: &Worker<'_>) -> Result<LargePart, RecvError> {
        let mut taken = self.taken.borrow_mut();
        if let Some(part) = taken.pop_front() {
            return Ok(part);
        }
        let (first, mut bytes) = (worker.recv(&self.parts)?, 0);
        let others = self.parts.try_iter();
        for part in std::iter::once(first).chain(others) {
            bytes += part.bytes();
            taken.push_back(part);
            if bytes >= TOGETHER_BYTES {
                break;
            }
        }
        if let Some(last) = taken.iter().rev().find_map(LargePart::segment) {
            while last.is_empty() && worker.help() {}
            let mut select = Select::new();
            select.recv(last);
            select.ready();
        }
        self.place.free(bytes);
        taken.pop_front().ok_or(RecvError)
    }

    /// Answers [`LargePart::Read`]: whether the store is done with the file.
    pub fn answer(&self, is_done: bool) {
        // The reader that asked may have given up.
        let _ = self.answers.send(is_done);
    }
}

impl Drop for PartReceiver {
    fn drop(&mut self) {
        self.place.leave();
    }
}
