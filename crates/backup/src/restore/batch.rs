//! Batches of chunks between the threads that read containers and those that write files.

use crossbeam_channel::Sender;

/// A batch for a writer: this many bytes of chunks,
const BATCH_BYTES: usize = 1 << 20;
/// or this many places they go to.
const BATCH_PLACES: usize = 256;
/// Writes past the page cache want the same place in a page in RAM as in the file, or else copy.
const PAGE_BYTES: usize = 4096;

/// Chunks and where they go.
pub struct Batch {
    pub buffer: Vec<u8>,
    pub places: Vec<Place>,
}

/// A place in a file that gets `len` bytes from `start` of the batch's buffer.
#[derive(Clone, Copy)]
pub struct Place {
    /// Its number in the window.
    pub file: u32,
    pub offset: u64,
    pub start: usize,
    pub len: usize,
}

impl Batch {
    pub fn new() -> Self {
        Self {
            buffer: Vec::with_capacity(BATCH_BYTES + PAGE_BYTES),
            places: Vec::new(),
        }
    }

    /// Whether `more` bytes no longer fit.
    pub fn is_full_for(&self, more: usize) -> bool {
        !self.buffer.is_empty() && self.buffer.len() + more > BATCH_BYTES
    }

    /// Whether no more places fit.
    pub fn has_all_places(&self) -> bool {
        self.places.len() >= BATCH_PLACES
    }

    /// Adds a chunk that goes, first of all, to `offset` of a file; gives where it starts.
    pub fn push(&mut self, bytes: &[u8], offset: u64) -> usize {
        if self.buffer.is_empty() {
            let apart = (offset as usize).wrapping_sub(self.buffer.as_ptr().addr());
            self.buffer.resize(apart % PAGE_BYTES, 0);
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(bytes);
        start
    }

    /// Hands the batch over, if there is anything in it, and begins the next.
    pub fn send(&mut self, batches: &Sender<Batch>) {
        if !self.places.is_empty() {
            // Writers only end after all batches: nobody has dropped the other end.
            let _ = batches.send(std::mem::replace(self, Self::new()));
        }
        self.buffer.clear();
    }
}
