//! The way of a large file's parts from its reader to the store: bounded in bytes, since segments differ in size.

use std::sync::Arc;

use crossbeam_channel::{Receiver, RecvError, Sender, bounded};

use super::budget::Budget;
use super::buffers::{Buffers, COLD_SEGMENT_BYTES};
use super::segment::Segment;
use super::source::{Abandoned, FileEnd};
use rustix::io::Errno;

/// Buffers of all large files between their readers and the store, in bytes: two files, or many that have few segments each.
pub const BYTES_AHEAD: usize = 28 << 20;
/// Those of one file: enough to read on while the store takes a batch.
const FILE_BYTES_AHEAD: usize = BYTES_AHEAD / 2;
/// Parts of one file on their way, holes counted.
const PARTS_AHEAD: usize = 24;

/// What a reader of a large file says, in order.
pub enum LargePart {
    /// Data; fingerprints come when they are ready. The buffer takes so many bytes.
    Segment(Receiver<Segment>, usize),
    /// A hole.
    Hole(u64),
    /// Forget what was said so far: the file changed and is read anew.
    Again,
    /// No more.
    End(Result<FileEnd, Errno>),
}

/// The reader's end.
pub struct PartSender {
    parts: Sender<LargePart>,
    room: Arc<Budget>,
}

/// The store's end. Dropped, it lets the reader go.
pub struct PartReceiver {
    parts: Receiver<LargePart>,
    room: Arc<Budget>,
}

/// The way for a large file of this size, and what the buffers on it take at most.
pub fn large_channel(size: u64, buffers: &Buffers) -> (PartSender, PartReceiver, usize) {
    let segments = size.div_ceil(COLD_SEGMENT_BYTES as u64).max(1);
    let each = buffers.segment_bytes(COLD_SEGMENT_BYTES);
    // A segment that is larger than that goes alone.
    let fit = (FILE_BYTES_AHEAD / each).max(1) as u64;
    let bytes = segments.min(fit) as usize * each;
    let (sender, receiver) = bounded(PARTS_AHEAD);
    let room = Arc::new(Budget::new(bytes));
    let sender = PartSender {
        parts: sender,
        room: room.clone(),
    };
    let receiver = PartReceiver {
        parts: receiver,
        room,
    };
    (sender, receiver, bytes)
}

impl PartSender {
    /// Waits until there is room.
    pub fn send(&self, part: LargePart) -> Result<(), Abandoned> {
        if let LargePart::Segment(_, bytes) = part
            && !self.room.take(bytes)
        {
            return Err(Abandoned);
        }
        self.parts.send(part).map_err(|_| Abandoned)
    }
}

impl PartReceiver {
    /// The next part; fails where the reader has died.
    pub fn recv(&self) -> Result<LargePart, RecvError> {
        let part = self.parts.recv()?;
        if let LargePart::Segment(_, bytes) = part {
            self.room.free(bytes);
        }
        Ok(part)
    }
}

impl Drop for PartReceiver {
    fn drop(&mut self) {
        self.room.close();
    }
}
