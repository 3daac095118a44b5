//! What the store found of late, for those who read: where nothing was new, nothing is likely to be.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// So many bytes without a new chunk make the next ones likely to be stored, too.
const KNOWN_BYTES_MIN: u64 = 8 << 20;

/// Whether the store has found anything new of late. Shared by the store and those who read.
#[derive(Default)]
pub struct Outlook {
    /// Bytes since the last new chunk.
    known_bytes: AtomicU64,
}

impl Outlook {
    /// The store looked up so many bytes, and some of them were new or not.
    pub fn tell(&self, bytes: u64, any_new: bool) {
        if any_new {
            self.known_bytes.store(0, Relaxed);
        } else {
            self.known_bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// Whether what is read next is likely to be stored already.
    pub fn is_known(&self) -> bool {
        self.known_bytes.load(Relaxed) >= KNOWN_BYTES_MIN
    }
}
