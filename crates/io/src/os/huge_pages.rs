//! A hint to the system: memory that will be filled at once.
//!
//! Fresh memory costs a fault every 4 KiB, which for 64 MiB is some 40 ms of a core; huge pages cost a fault every 2
//! MiB. Invariant: a hint changes nothing but time; where the system ignores it, nothing happens.

use std::ffi::c_void;

use rustix::mm::{Advice, madvise};

/// Bytes of a huge page on x86-64, and on AArch64 with pages of 4 KiB.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Asks for huge pages for the part of `room` that they fill. To be called before the memory is written to.
pub fn prefer_huge_pages<T>(room: &mut [T]) {
    let bytes = room.as_mut_ptr_range();
    let start = bytes.start.addr().next_multiple_of(HUGE_PAGE_BYTES);
    let end = bytes.end.addr() / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if start < end {
        let at = room.as_mut_ptr().with_addr(start).cast::<c_void>();
        // SAFETY: the whole pages lie in `room`, which is borrowed exclusively; this advice does not change their
        // content.
        let _ = unsafe { madvise(at, end - start, Advice::LinuxHugepage) };
    }
}

#[cfg(test)]
mod tests {
    use super::prefer_huge_pages;

    #[test]
    fn hints_are_harmless_for_any_length() {
        for len in [0, 1, 5000, 3 << 20, 9 << 20] {
            let mut bytes: Vec<u8> = Vec::with_capacity(len);
            prefer_huge_pages(bytes.spare_capacity_mut());
            bytes.resize(len, 7);
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
    }
}
