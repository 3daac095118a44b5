//! What the allocator gives back to the system.

/// Beyond so much, an allocation is a mapping of its own, which goes as it is freed.
#[cfg(target_env = "gnu")]
const MAPPED_FROM: libc::c_int = 1 << 20;

/// So much that is free at the end of a thread's heap stays there. The library's own 128 KiB are less than what
/// fingerprinting a segment takes and frees: a twentieth of a re-read's time went into giving pages back and having
/// them anew, and into telling the other cores.
#[cfg(target_env = "gnu")]
const KEPT_MAX: libc::c_int = 512 << 10;

/// Has large allocations be mappings of their own for as long as the program runs, and small ones leave some room
/// behind. By itself the GNU C library raises the limit between them to 32 MiB at the first one that is freed: from
/// then on large ones leave holes in the heaps of the threads, 15 to 20 MiB of a backup's RAM. Every page of a mapping
/// is then new to the program each time: what takes and frees a buffer a block, as a restore does, would take twice the
/// time. Other libraries do as they do.
pub fn tune_heap() {
    #[cfg(target_env = "gnu")]
    for (option, bytes) in [
        (libc::M_MMAP_THRESHOLD, MAPPED_FROM),
        (libc::M_TRIM_THRESHOLD, KEPT_MAX),
    ] {
        // SAFETY: it takes two numbers, and refuses by giving 0: then all is as before.
        unsafe { libc::mallopt(option, bytes) };
    }
}
