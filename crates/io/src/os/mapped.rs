//! Memory that goes back to the system when dropped.
//!
//! Blocks of some 100 KiB that live for hours between others that live for milliseconds leave an allocator's heap full
//! of holes: filters of 37 MiB cost a process 60. From [`MAPPED_MIN`] on each block here is a mapping of its own.
//! Invariant: the bytes are zero at first, and exclusively the owner's.
//!
//! Blocks for direct I/O begin at the border of a huge page ([`Mapped::huge`]). 2 MiB in one piece of RAM are one
//! request to the device, of which several are under way at once; in pages of 4 KiB they are three requests, and the
//! pages are looked up one by one.

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::huge_pages::{HUGE_PAGE_BYTES, prefer_huge_pages};

/// Smallest mapping in bytes; the heap serves smaller blocks. A mapping takes whole pages, and a process may have some
/// 65,000 of them.
pub const MAPPED_MIN: usize = 64 << 10;

static MAPPED_BYTES: AtomicUsize = AtomicUsize::new(0);
static MAPPED_PEAK: AtomicUsize = AtomicUsize::new(0);

/// Bytes in all mappings of the process now, which a counting allocator does not see.
pub fn mapped_bytes() -> usize {
    MAPPED_BYTES.load(Ordering::Relaxed)
}

/// The largest value of [`mapped_bytes`] since [`reset_mapped_peak`].
pub fn mapped_peak() -> usize {
    MAPPED_PEAK.load(Ordering::Relaxed)
}

/// Restarts the peak at the present value.
pub fn reset_mapped_peak() {
    MAPPED_PEAK.store(mapped_bytes(), Ordering::Relaxed);
}

fn note_mapped(len: usize) {
    let before = MAPPED_BYTES.fetch_add(len, Ordering::Relaxed);
    MAPPED_PEAK.fetch_max(before + len, Ordering::Relaxed);
}

/// Memory that goes back to the system when dropped.
pub struct Mapped(Inner);

enum Inner {
    Heap(Box<[u8]>),
    /// Start, number of bytes for use, and number of bytes mapped.
    Mapping(NonNull<u8>, usize, usize),
}

// SAFETY: a mapping is plain memory that only its owner reaches.
unsafe impl Send for Mapped {}
// SAFETY: shared access only reads.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// `len` zero bytes. Where the system gives no mapping, they come from the heap.
    pub fn zeroed(len: usize) -> Mapped {
        let mapping = if len < MAPPED_MIN { None } else { map(len) };
        Mapped(match mapping {
            Some(start) => {
                note_mapped(len);
                Inner::Mapping(start, len, len)
            }
            None => Inner::Heap(vec![0; len].into_boxed_slice()),
        })
    }

    /// `before` bytes and `len` more, all zero. The latter begin at the border of a huge page, and are in huge pages
    /// where the system has them: then the first access to each makes all of it resident. Where the system gives no
    /// mapping, or `before` is no multiple of [`PAGES_BYTES`], all come from the heap, at any alignment.
    pub fn huge(before: usize, len: usize) -> Mapped {
        let kept = before + len.next_multiple_of(HUGE_PAGE_BYTES);
        let whole_pages = before.is_multiple_of(PAGES_BYTES);
        let mapping = whole_pages.then(|| map(kept + HUGE_PAGE_BYTES)).flatten();
        let Some(start) = mapping else {
            return Mapped(Inner::Heap(vec![0; before + len].into_boxed_slice()));
        };
        let head = (start.addr().get() + before).wrapping_neg() % HUGE_PAGE_BYTES;
        // SAFETY: both parts are whole pages of a mapping that nothing refers to yet, and lie outside of the rest,
        // which is `kept` bytes from `head` on.
        let start = unsafe {
            unmap(start, head);
            unmap(start.add(head + kept), HUGE_PAGE_BYTES - head);
            start.add(head)
        };
        note_mapped(before + len);
        let mut memory = Mapped(Inner::Mapping(start, before + len, kept));
        prefer_huge_pages(&mut memory[before..]);
        memory
    }

    /// Keeps the first `len` bytes; whole pages of the others go back to the system at once. Nothing happens where
    /// there are not more bytes than `len`.
    pub fn truncate(&mut self, len: usize) {
        match &mut self.0 {
            Inner::Heap(bytes) => {
                let mut vec = std::mem::take(bytes).into_vec();
                vec.truncate(len);
                *bytes = vec.into_boxed_slice();
            }
            Inner::Mapping(start, held, mapped) if len < *held => {
                let kept = len.next_multiple_of(PAGES_BYTES).max(PAGES_BYTES);
                if kept < *mapped {
                    // SAFETY: these whole pages are ours, and nobody borrows them: `self` is borrowed exclusively;
                    // `kept` bytes stay, which dropping gives back.
                    unsafe { unmap(start.add(kept), *mapped - kept) };
                    *mapped = kept;
                }
                MAPPED_BYTES.fetch_sub(*held - len, Ordering::Relaxed);
                *held = len;
            }
            Inner::Mapping(..) => {}
        }
    }
}

/// A multiple of the page size of every system, in bytes.
pub const PAGES_BYTES: usize = 64 << 10;

fn map(len: usize) -> Option<NonNull<u8>> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new anonymous mapping at a place of the system's choice touches no memory that is in use.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, flags) };
    NonNull::new(start.ok()?.cast::<u8>())
}

/// Gives whole pages of a mapping back to the system.
///
/// # Safety
/// The pages are mapped, and no reference into them exists or will exist.
unsafe fn unmap(start: NonNull<u8>, len: usize) {
    if len > 0 {
        // SAFETY: the caller promises the same.
        unsafe { munmap(start.as_ptr().cast::<c_void>(), len) }.ok();
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::Heap(bytes) => bytes,
            // SAFETY: the mapping is `len` readable bytes, zeroed by the system, and lives as long as `self`.
            Inner::Mapping(start, len, _) => unsafe {
                std::slice::from_raw_parts(start.as_ptr(), *len)
            },
        }
    }
}

impl DerefMut for Mapped {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Inner::Heap(bytes) => bytes,
            // SAFETY: as above, writable, and borrowed exclusively.
            Inner::Mapping(start, len, _) => unsafe {
                std::slice::from_raw_parts_mut(start.as_ptr(), *len)
            },
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Inner::Mapping(start, len, mapped) = self.0 {
            MAPPED_BYTES.fetch_sub(len, Ordering::Relaxed);
            // SAFETY: the mapping is ours, nothing borrows it any more, and it is given back once.
            unsafe { unmap(start, mapped) };
        }
    }
}

impl std::fmt::Debug for Mapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_truncated_bytes_is_what_was_there() {
        for (len, kept) in [
            (100, 7),
            (MAPPED_MIN * 3, MAPPED_MIN + 5),
            (MAPPED_MIN, 0),
            (9, 20),
        ] {
            let mut bytes = Mapped::zeroed(len);
            (0..len).for_each(|i| bytes[i] = i as u8);
            bytes.truncate(kept);
            assert_eq!(bytes.len(), kept.min(len));
            assert!((0..kept.min(len)).all(|i| bytes[i] == i as u8));
        }
    }

    #[test]
    fn huge_bytes_begin_at_a_huge_page() {
        let lens = [1, 5000, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 1];
        for (before, len) in lens
            .into_iter()
            .flat_map(|len| [(0, len), (PAGES_BYTES, len)])
        {
            let mut one = Mapped::huge(before, len);
            let mut other = Mapped::huge(before, len);
            assert!(
                one[before..]
                    .as_ptr()
                    .addr()
                    .is_multiple_of(HUGE_PAGE_BYTES)
            );
            assert_eq!(one.len(), before + len);
            assert!(one.iter().all(|byte| *byte == 0));
            one.fill(1);
            other.fill(2);
            other.truncate(len / 2);
            assert!(one.iter().all(|byte| *byte == 1));
            assert!(other.iter().all(|byte| *byte == 2));
        }
        let mut elsewhere = Mapped::huge(1000, 5000);
        elsewhere.fill(1);
        assert_eq!(elsewhere.len(), 6000);
    }

    #[test]
    fn the_peak_outlives_what_was_mapped() {
        // Other tests map memory meanwhile, but nothing as large as this.
        const LARGE: usize = 256 << 20;
        drop(Mapped::zeroed(LARGE));
        assert!(mapped_peak() >= LARGE && mapped_bytes() < LARGE);
        reset_mapped_peak();
        assert!(mapped_peak() < LARGE);
        drop(Mapped::huge(0, LARGE));
        assert!(mapped_peak() >= LARGE);
    }

    #[test]
    fn bytes_are_zero_and_keep_what_is_written() {
        for len in [0, 1, MAPPED_MIN - 1, MAPPED_MIN, MAPPED_MIN * 3 + 5] {
            let mut one = Mapped::zeroed(len);
            let mut other = Mapped::zeroed(len);
            assert_eq!(one.len(), len);
            assert!(one.iter().all(|byte| *byte == 0));
            one.fill(1);
            other.fill(2);
            assert!(one.iter().all(|byte| *byte == 1));
            let moved = std::thread::spawn(move || other.iter().all(|byte| *byte == 2));
            assert!(moved.join().expect("no panic"));
        }
    }
}
