//! The way of a large file's parts from its reader to the store: bounded in bytes ([`super::ahead`]), since segments
//! differ in size.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_channel::{Receiver, RecvError, Select, Sender, bounded};
use onefold_store::digest::Digest;

use super::ahead::{Ahead, Place};
use super::buffers::{Buffers, LONG_SEGMENT_BYTES};
use super::segment::Done;
use super::source::{Abandoned, FileEnd};
use rustix::io::Errno;

/// Buffers of all large files between their readers and the store, in bytes: as many segments as threads read, and what
/// the store takes at once.
pub const BYTES_AHEAD: usize = 24 << 20;
/// Large files that are planned but not stored, in bytes as [`ahead_bytes`] counts them: four, or many that have few
/// segments each. They hold open files, and readers.
pub const BYTES_PLANNED: usize = 2 * BYTES_AHEAD;
/// What one file is counted as at most, and buffers of a stream: enough to read on while the store takes a batch.
pub const FILE_BYTES_AHEAD: usize = BYTES_AHEAD / 2;
/// Parts of one file on their way, holes counted.
const PARTS_AHEAD: usize = 24;
/// Segments that the store waits for together: one that comes from the disk, or four.
const TOGETHER_BYTES: usize = LONG_SEGMENT_BYTES;

/// What a reader of a large file says, in order.
pub enum LargePart {
    /// Data; fingerprints come when they are ready. What holds it takes so many bytes.
    Segment(Receiver<Done>, usize),
    /// A hole.
    Hole(u64),
    /// A hole where the trace has one.
    TracedHole(u64),
    /// Forget what was said so far: the file changed and is read anew.
    Again,
    /// Say whether all that was said so far is stored, once it is ([`PartReceiver::settled`]), and has this digest. It
    /// is not where a mapped file changed under us.
    Settle(Option<Digest>),
    /// No more.
    End(Result<FileEnd, Errno>),
}

impl LargePart {
    fn segment(&self) -> Option<&Receiver<Done>> {
        match self {
            Self::Segment(segment, _) => Some(segment),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Segment(_, bytes) => *bytes,
            Self::End(Ok(end)) => end.bytes(),
            _ => 0,
        }
    }
}

/// The reader's end.
pub struct PartSender {
    parts: Sender<LargePart>,
    place: Place,
    /// Some of what was sent since it was settled is mapped.
    has_mapped: Cell<bool>,
    /// What the store says then; its other end is the store's, so that who waits is let go when the store gives up.
    settled: Receiver<bool>,
}

/// The store's end. Dropped, it lets the reader go.
pub struct PartReceiver {
    parts: Receiver<LargePart>,
    /// Out of the channel, and not given out yet.
    taken: RefCell<VecDeque<LargePart>>,
    place: Place,
    settled: Sender<bool>,
}

/// What a large file of this size is counted as before it is read, in bytes.
pub fn ahead_bytes(size: u64, buffers: &Buffers) -> usize {
    let segments = size.div_ceil(LONG_SEGMENT_BYTES as u64).max(1);
    let each = buffers.segment_bytes(LONG_SEGMENT_BYTES);
    // A segment that is larger than that goes alone.
    let fit = (FILE_BYTES_AHEAD / each).max(1) as u64;
    segments.min(fit) as usize * each
}

/// The way for a large file, which the store takes after those that are in `ahead` already.
pub fn large_channel(ahead: &Arc<Ahead>) -> (PartSender, PartReceiver) {
    let place = ahead.enter();
    let (sender, receiver) = bounded(PARTS_AHEAD);
    let (say_settled, settled) = bounded(1);
    let sender = PartSender {
        parts: sender,
        place: place.clone(),
        has_mapped: Cell::new(false),
        settled,
    };
    let receiver = PartReceiver {
        parts: receiver,
        taken: RefCell::default(),
        place,
        settled: say_settled,
    };
    (sender, receiver)
}

impl PartSender {
    /// Waits until there is room.
    pub fn send(&self, part: LargePart) -> Result<(), Abandoned> {
        let bytes = part.bytes();
        if bytes > 0 && !self.place.take(bytes) {
            return Err(Abandoned);
        }
        self.parts.send(part).map_err(|_| Abandoned)
    }

    /// All segments are sent, if the file need not be read anew.
    pub fn sent(&self) {
        self.place.sent();
    }

    /// The next segment to be sent is mapped.
    pub fn maps(&self) {
        self.has_mapped.set(true);
    }

    /// Waits until the store has all that was mapped, or is to have this digest; whether it was still there, and has.
    pub fn settle(&self, digest: Option<Digest>) -> Result<bool, Abandoned> {
        if !self.has_mapped.take() && digest.is_none() {
            return Ok(true);
        }
        self.send(LargePart::Settle(digest))?;
        self.settled.recv().map_err(|_| Abandoned)
    }
}

impl Drop for PartSender {
    fn drop(&mut self) {
        self.place.sent();
    }
}

impl PartReceiver {
    /// The next part; fails where the reader has died.
    ///
    /// Takes those behind it, too, that are there already, and waits for the last segment of them: who waited for each
    /// alone would be woken for each, and wake the reader that waits for room each time. Rather than wait, it helps:
    /// `help` does a bit of the work that is waited for, if there is any, and says whether it did.
    pub fn recv(&self, help: impl Fn() -> bool) -> Result<LargePart, RecvError> {
        let mut taken = self.taken.borrow_mut();
        if let Some(part) = taken.pop_front() {
            return Ok(part);
        }
        let (first, mut bytes) = (self.parts.recv()?, 0);
        let others = self.parts.try_iter();
        for part in std::iter::once(first).chain(others) {
            bytes += part.bytes();
            taken.push_back(part);
            if bytes >= TOGETHER_BYTES {
                break;
            }
        }
        if let Some(last) = taken.iter().rev().find_map(LargePart::segment) {
            while last.is_empty() && help() {}
            let mut select = Select::new();
            select.recv(last);
            select.ready();
        }
        self.place.free(bytes);
        taken.pop_front().ok_or(RecvError)
    }
}

impl PartReceiver {
    /// The answer to [`LargePart::Settle`].
    pub fn settled(&self, is_stored: bool) {
        // Who asked may have given up.
        let _ = self.settled.send(is_stored);
    }
}

impl Drop for PartReceiver {
    fn drop(&mut self) {
        self.place.leave();
    }
}
