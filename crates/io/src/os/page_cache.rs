//! The page cache: how much of a file is in RAM (`cachestat`, Linux 6.5), and starting to write it back.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Number of the system call, the same on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CacheRange {
    offset: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct CacheCounts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// About how many of `len` bytes from `offset` on are in the page cache, in whole pages; `None` where the kernel does
/// not tell.
pub fn cached_bytes(file: BorrowedFd<'_>, offset: u64, len: u64) -> Option<u64> {
    let range = CacheRange { offset, len };
    let mut counts = CacheCounts::default();
    // SAFETY: both are what the call expects (linux/mman.h), live across it, and nothing else is touched.
    let done = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut counts,
            0,
        )
    };
    (done == 0).then(|| counts.cached * rustix::param::page_size() as u64)
}

/// Starts writing a file's changed pages to the disk, without waiting for it. A later write through a mapping then
/// faults again, so that it changes the file's times.
pub fn begin_write_back(file: BorrowedFd<'_>) {
    // SAFETY: no memory is passed. Pipes and some file systems refuse the call; they have no such mappings either.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}
