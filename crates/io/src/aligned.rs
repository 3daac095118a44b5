//! Memory for direct I/O, and writes of whole pages from memory of any alignment.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    fs::File,
    io,
    ops::{Deref, DerefMut, Range},
    os::unix::fs::FileExt,
    ptr::NonNull,
};

use parking_lot::Mutex;
use rustix::io::Errno;

/// What `O_DIRECT` wants places, lengths and memory to be multiples of: the page, which no device in use exceeds.
pub(crate) const ALIGN: usize = 4096;

/// Bytes of a pooled buffer. Only pages that were used are resident.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;

/// Idle buffers kept.
const IDLE_MAX: usize = 8;

static IDLE: Mutex<Vec<Aligned>> = Mutex::new(Vec::new());

/// The part of `len` bytes at `offset` that is whole pages, as a range within them; empty where there is none.
pub(crate) fn whole_pages(offset: u64, len: usize) -> Range<usize> {
    let head = (offset.wrapping_neg() % ALIGN as u64) as usize;
    if head >= len {
        return 0..0;
    }
    head..head + (len - head) / ALIGN * ALIGN
}

/// Writes `data`, which is whole pages, at a page border: in place where the memory is aligned, else through pooled memory.
pub(crate) fn write_pages(direct: &File, data: &[u8], offset: u64) -> io::Result<()> {
    if data.as_ptr().addr().is_multiple_of(ALIGN) {
        return direct.write_all_at(data, offset);
    }
    let mut memory = Aligned::take();
    for (i, part) in data.chunks(BUFFER_BYTES).enumerate() {
        memory[..part.len()].copy_from_slice(part);
        direct.write_all_at(&memory[..part.len()], offset + (i * BUFFER_BYTES) as u64)?;
    }
    memory.give_back();
    Ok(())
}

/// Whether the file system wants another alignment, or no direct I/O after all.
pub(crate) fn is_misaligned(e: &io::Error) -> bool {
    e.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

/// [`BUFFER_BYTES`] of memory at a page border.
pub(crate) struct Aligned(NonNull<u8>);

impl Aligned {
    const LAYOUT: Layout = match Layout::from_size_align(BUFFER_BYTES, ALIGN) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    };

    /// An idle buffer, or a new one. Its content is whatever it was.
    pub fn take() -> Self {
        if let Some(idle) = IDLE.lock().pop() {
            return idle;
        }
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc_zeroed(Self::LAYOUT) };
        NonNull::new(memory).map_or_else(|| handle_alloc_error(Self::LAYOUT), Self)
    }

    /// Keeps it for the next one. One that is dropped instead, on an error, is freed.
    pub fn give_back(self) {
        let mut idle = IDLE.lock();
        if idle.len() < IDLE_MAX {
            idle.push(self);
        }
    }
}

// SAFETY: it owns its memory alone, as a `Box<[u8]>` does.
unsafe impl Send for Aligned {}

impl Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is that long, was initialised when it was allocated, and is ours alone.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), BUFFER_BYTES) }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), BUFFER_BYTES) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated in `take` with the same layout.
        unsafe { dealloc(self.0.as_ptr(), Self::LAYOUT) }
    }
}
