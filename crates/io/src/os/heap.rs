//! Limits of the C library's allocator: which memory it returns to the system.

/// Allocations of more bytes are mappings of their own, which are returned to the system when freed.
#[cfg(target_env = "gnu")]
const MAPPED_FROM: libc::c_int = 1 << 20;

/// Free bytes that stay at the end of a thread's heap, at most. The library's own 128 KiB are less than fingerprinting
/// a segment allocates and frees: a twentieth of a re-read's time went into returning pages and getting them again, and
/// into telling the other cores.
#[cfg(target_env = "gnu")]
const KEPT_MAX: libc::c_int = 512 << 10;

/// Makes large allocations mappings of their own for the rest of the process, and lets heaps keep some free room. By
/// itself the GNU C library raises the limit between them to 32 MiB when the first mapping is freed: from then on large
/// allocations leave holes in the heaps of the threads, 15 to 20 MiB of a backup's RAM. The price: every page of a
/// mapping is new each time, so code that allocates a buffer for each block, as a restore would, takes twice the time.
/// Other libraries are not affected.
pub fn tune_heap() {
    #[cfg(target_env = "gnu")]
    for (option, bytes) in [
        (libc::M_MMAP_THRESHOLD, MAPPED_FROM),
        (libc::M_TRIM_THRESHOLD, KEPT_MAX),
    ] {
        // SAFETY: the call takes two numbers, and refuses by returning 0, without any effect.
        unsafe { libc::mallopt(option, bytes) };
    }
}
