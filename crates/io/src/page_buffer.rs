//! Memory for a request, aligned to a page, so that direct I/O needs no copy.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::DIRECT_ALIGN;

/// Bytes that begin at a multiple of [`DIRECT_ALIGN`]. Invariant: the bytes are initialised, and exclusively the
/// owner's.
pub struct PageBuffer {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory that only its owner reaches.
unsafe impl Send for PageBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for PageBuffer {}

impl PageBuffer {
    /// A buffer of `len` zero bytes. An empty one takes no memory.
    pub fn zeroed(len: usize) -> Self {
        if len == 0 {
            return Self {
                start: NonNull::dangling(),
                len,
            };
        }
        let layout = layout(len);
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout)
        };
        Self { start, len }
    }

    /// A buffer with a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len, DIRECT_ALIGN).expect("lengths of buffers fit into memory")
}

impl Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes (none behind a dangling start) that live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for PageBuffer {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated by `zeroed` with this very layout, and freed once.
            unsafe { dealloc(self.start.as_ptr(), layout(self.len)) };
        }
    }
}

impl std::fmt::Debug for PageBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_at_a_page_border_and_keeps_what_is_written() {
        for len in [0, 1, 512, 4096, 1 << 20] {
            let mut buffer = PageBuffer::zeroed(len);
            assert!(len == 0 || buffer.as_ptr().addr().is_multiple_of(DIRECT_ALIGN));
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            assert_eq!(buffer.len(), len);
            assert!(PageBuffer::copy_of(&buffer).iter().all(|byte| *byte == 7));
        }
    }
}
