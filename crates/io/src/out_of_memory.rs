//! What is said where the system gives no more memory. The standard library ends the process by a signal then, in a
//! sentence about bytes; whoever started it takes that for a crash.
//!
//! Always holds: the handler of the signal calls nothing but `write` and `_exit`, and an abort for any other reason ends
//! the process as it would without this.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The system's heap, which notes that it had no memory to give. For `#[global_allocator]`.
pub struct NotingHeap;

/// An allocation has failed. Who can do without it has gone on.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);
/// What is said.
static WORDS: OnceLock<Vec<u8>> = OnceLock::new();
const EXIT_CODE: i32 = 1;

impl NotingHeap {
    fn note(start: *mut u8) -> *mut u8 {
        if start.is_null() {
            HAS_FAILED.store(true, Relaxed);
        }
        start
    }
}

// SAFETY: all is done by the system's heap, with what the caller gives.
unsafe impl GlobalAlloc for NotingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        Self::note(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        Self::note(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        Self::note(unsafe { System.realloc(start, layout, len) })
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) }
    }
}

/// From here on a process without memory says `words` on standard error and ends with exit code 1. Needs
/// [`NotingHeap`] as the global allocator. The first call counts.
pub fn tell_out_of_memory(words: String) {
    if WORDS.set(words.into_bytes()).is_err() {
        return;
    }
    let handler = at_abort as extern "C" fn(libc::c_int);
    // SAFETY: the handler only does what may be done in one, and lives as long as the process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        libc::sigaction(libc::SIGABRT, &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn at_abort(_: libc::c_int) {
    let Some(words) = WORDS.get().filter(|_| HAS_FAILED.load(Relaxed)) else {
        return; // `abort` ends the process once this has returned
    };
    // SAFETY: both are async-signal-safe, and the bytes live as long as the process.
    unsafe {
        libc::write(2, words.as_ptr().cast(), words.len());
        libc::_exit(EXIT_CODE);
    }
}
