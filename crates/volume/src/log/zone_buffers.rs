//! Memory of whole zones, for cleaning. It goes round: an allocator would keep as much for each thread that took some.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use onefold_io::PageBuffer;
use parking_lot::Mutex;

use super::layout::{Layout, PAGE_BYTES};

/// The buffers that are free.
pub struct ZoneBuffers {
    spare: Mutex<Vec<PageBuffer>>,
    bytes: usize,
}

impl ZoneBuffers {
    /// None yet; each will have room for the chunks of a zone.
    pub fn new(layout: &Layout) -> Arc<Self> {
        Arc::new(Self {
            spare: Mutex::default(),
            bytes: layout.groups_end() as usize * PAGE_BYTES,
        })
    }

    /// A buffer with anything in it.
    pub fn take(self: &Arc<Self>) -> ZoneBuffer {
        let spare = self.spare.lock().pop();
        ZoneBuffer {
            bytes: spare.unwrap_or_else(|| PageBuffer::zeroed(self.bytes)),
            home: Arc::clone(self),
        }
    }
}

/// A buffer that is in use. It becomes free when it is dropped.
pub struct ZoneBuffer {
    bytes: PageBuffer,
    home: Arc<ZoneBuffers>,
}

impl Deref for ZoneBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for ZoneBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for ZoneBuffer {
    fn drop(&mut self) {
        let bytes = std::mem::replace(&mut self.bytes, PageBuffer::zeroed(0));
        self.home.spare.lock().push(bytes);
    }
}
