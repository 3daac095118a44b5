//! The message when the system has no more memory. The standard library then ends the process by a signal, with a
//! sentence about bytes, which looks like a crash.
//!
//! Invariant: the signal handler calls nothing but `write`, `mmap`, `munmap` and `_exit`, and an abort where no
//! allocation ever failed and memory is left ends the process as it would without this module.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The system's allocator, which notes when it had no memory. For `#[global_allocator]`.
pub struct NotingHeap;

/// Whether an allocation has ever failed: code that can do without it goes on.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);
/// The message to print.
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

// SAFETY: the system's allocator does all the work, with the caller's arguments.
unsafe impl GlobalAlloc for NotingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises the same.
        Self::note(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises the same.
        Self::note(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // SAFETY: the caller promises the same.
        Self::note(unsafe { System.realloc(start, layout, len) })
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller promises the same.
        unsafe { System.dealloc(start, layout) }
    }
}

/// From now on, a process without memory prints `words` on standard error and ends with exit code 1. Needs
/// [`NotingHeap`] as the global allocator. Only the first call counts.
pub fn tell_out_of_memory(words: String) {
    if WORDS.set(words.into_bytes()).is_err() {
        return;
    }
    let handler = at_abort as extern "C" fn(libc::c_int);
    // SAFETY: the handler only does what handlers may do, and lives as long as the process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        libc::sigaction(libc::SIGABRT, &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn at_abort(_: libc::c_int) {
    let is_out = HAS_FAILED.load(Relaxed) || !is_memory_left();
    let Some(words) = WORDS.get().filter(|_| is_out) else {
        return; // `abort` ends the process once this has returned
    };
    // SAFETY: both calls are async-signal-safe, and the bytes live as long as the process.
    unsafe {
        libc::write(2, words.as_ptr().cast(), words.len());
        libc::_exit(EXIT_CODE);
    }
}

/// Whether the system gives a few MiB more. The C library has allocations of its own, as for the destructors of a
/// thread's variables, and aborts where they fail.
fn is_memory_left() -> bool {
    const PROBED_BYTES: usize = 4 << 20;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: system calls without side effects on other memory; nothing refers to the mapping.
    unsafe {
        let (none, access) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        let start = libc::mmap(none, PROBED_BYTES, access, flags, -1, 0);
        start != libc::MAP_FAILED && libc::munmap(start, PROBED_BYTES) == 0
    }
}
