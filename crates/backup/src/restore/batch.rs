//! Batches of chunks between the threads that read containers and those that write files.

use std::sync::Arc;

use crossbeam_channel::Sender;
use onefold_io::DIRECT_ALIGN;
use onefold_io::os::{HUGE_PAGE_BYTES, Mapped};
use parking_lot::Mutex;

/// Largest number of bytes of chunks in a batch. With the bytes before them in a page, they fill a huge page, and are
/// one request to the device.
const BATCH_BYTES: usize = HUGE_PAGE_BYTES - DIRECT_ALIGN;
/// Largest number of places that the chunks of a batch go to.
const BATCH_PLACES: usize = 384;

/// Buffers of finished batches, to be used again.
#[derive(Clone, Default)]
pub struct Spares(Arc<Mutex<Vec<Mapped>>>);

/// Chunks, and the places in files that they go to.
pub struct ChunkBatch {
    room: Mapped,
    used: usize,
    pub places: Vec<FilePart>,
    spares: Spares,
}

/// A place in a file that gets `len` bytes from offset `start` of the batch's bytes.
#[derive(Clone, Copy)]
pub struct FilePart {
    /// Number of the file in the window.
    pub file: u32,
    pub offset: u64,
    pub start: usize,
    pub len: usize,
}

impl ChunkBatch {
    /// Makes an empty batch, whose buffer goes back to `spares` at the end.
    pub fn new(spares: &Spares) -> Self {
        let room = spares.0.lock().pop();
        Self {
            room: room.unwrap_or_else(|| Mapped::huge(0, HUGE_PAGE_BYTES)),
            used: 0,
            places: Vec::new(),
            spares: spares.clone(),
        }
    }

    /// Bytes of the chunks; places refer to them by offset.
    pub fn bytes(&self) -> &[u8] {
        &self.room[..self.used]
    }

    /// Whether `more` bytes do not fit any more.
    pub fn is_full_for(&self, more: usize) -> bool {
        self.used > 0 && self.used + more > BATCH_BYTES
    }

    /// Whether the batch has as many places as it may have.
    pub fn has_all_places(&self) -> bool {
        self.places.len() >= BATCH_PLACES
    }

    /// Adds a chunk whose first place is at `offset` of a file; returns the chunk's offset in the batch.
    pub fn push(&mut self, bytes: &[u8], offset: u64) -> usize {
        if self.used == 0 {
            // Writes past the page cache need the same place within a page in RAM as in the file, or else they copy.
            self.used = (offset % DIRECT_ALIGN as u64) as usize;
        }
        let start = self.used;
        self.used += bytes.len();
        if self.used > self.room.len() {
            let mut larger = Mapped::huge(0, self.used);
            larger[..start].copy_from_slice(&self.room[..start]);
            self.room = larger;
        }
        self.room[start..self.used].copy_from_slice(bytes);
        start
    }

    /// Hands the batch over, if there is anything in it, and begins the next.
    pub fn send(&mut self, batches: &Sender<ChunkBatch>) {
        if !self.places.is_empty() {
            let next = Self::new(&self.spares);
            // Writers only end after all batches, so the other end is there.
            let _ = batches.send(std::mem::replace(self, next));
        }
        self.used = 0;
    }
}

impl Drop for ChunkBatch {
    fn drop(&mut self) {
        // The larger buffer of a very long chunk goes back to the system.
        if self.room.len() == HUGE_PAGE_BYTES {
            let room = std::mem::replace(&mut self.room, Mapped::zeroed(0));
            self.spares.0.lock().push(room);
        }
    }
}
