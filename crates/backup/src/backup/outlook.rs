//! Whether the store found new data lately: where nothing was new, the next data is likely to be stored, too.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes without a new chunk after which the next ones are likely to be stored, too.
const KNOWN_BYTES_MIN: u64 = 8 << 20;

/// Whether the store has found new data lately. The store writes it, readers ask it.
#[derive(Default)]
pub struct Outlook {
    /// Bytes since the last new chunk.
    known_bytes: AtomicU64,
}

impl Outlook {
    /// Notes that the store looked up `bytes` bytes, and whether any of them were new.
    pub fn tell(&self, bytes: u64, any_new: bool) {
        if any_new {
            self.known_bytes.store(0, Relaxed);
        } else {
            self.known_bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// Whether the data that is read next is likely to be stored already.
    pub fn is_known(&self) -> bool {
        self.known_bytes.load(Relaxed) >= KNOWN_BYTES_MIN
    }
}
