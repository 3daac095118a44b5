//! A window: a part of a file, mapped into memory. Data in the page cache is read in place, without a copy.
//!
//! Other processes may write to the file meanwhile, so the bytes may differ from one read to the next: a caller that
//! keeps some must copy them and verify the copy. Where a page is gone because the file was cut short, or cannot be
//! read, it and all behind it read as zeros, and the window says that it is torn ([`super::bus_errors`]). Invariant:
//! reading a window neither ends the process nor reaches outside of the window.

use std::ffi::c_void;
use std::ops::{Deref, Range};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::bus_errors::{Guard, guard};

/// A part of a file, mapped so that data in the page cache can be read in place.
pub struct FileWindow {
    /// Dropped before the mapping is, so that no later mapping at the same place is taken for this one.
    guard: Guard,
    mapping: Mapping,
}

struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process and to no thread, and only the owner of this value unmaps it.
unsafe impl Send for Mapping {}
// SAFETY: shared access only reads, and the address and the length never change.
unsafe impl Sync for Mapping {}

impl FileWindow {
    /// Maps `len` bytes from `offset`, which must begin a page. `None` where the file or the system allows no mapping.
    pub fn map(file: BorrowedFd<'_>, offset: u64, len: usize) -> Option<Self> {
        let (any, flags) = (std::ptr::null_mut(), MapFlags::SHARED);
        // SAFETY: a new mapping at a place of the system's choice touches no memory that is in use.
        let start = unsafe { mmap(any, len, ProtFlags::READ, flags, file, offset) };
        let start = NonNull::new(start.ok()?.cast::<u8>())?;
        let mapping = Mapping { start, len };
        let guard = guard(start.addr().get()..start.addr().get() + len)?;
        Some(Self { guard, mapping })
    }

    /// Loads the pages of this range before they are read, which costs a tenth of faulting one by one. Returns whether
    /// all of them are there.
    ///
    /// # Panics
    /// If the range does not lie in the window.
    pub fn populate(&self, range: Range<usize>) -> bool {
        let page = rustix::param::page_size();
        let from = range.start / page * page;
        let len = self[from..range.end].len();
        let at = self.mapping.start.as_ptr().wrapping_add(from);
        // SAFETY: the pages are those of this mapping; reading them in changes nothing in it.
        unsafe { madvise(at.cast::<c_void>(), len, Advice::LinuxPopulateRead) }.is_ok()
    }

    /// Whether a page was missing when it was read: from then on some bytes read here are zeros and no part of the
    /// file.
    pub fn is_torn(&self) -> bool {
        self.guard.is_torn()
    }
}

impl Deref for FileWindow {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let Mapping { start, len } = &self.mapping;
        // SAFETY:
        // - `start` is not null and begins a page; `len` bytes from it on are one mapping, readable, of at most
        //   `isize::MAX` bytes: `mmap` gave them, and this module alone holds a `Mapping`.
        // - They stay mapped as long as the slice lives: it borrows `self`, and only the drop of `self.mapping` unmaps.
        // - Nobody in this process writes through the mapping: it is read only, and no exclusive reference is ever
        //   made.
        // - A page that the file has no more raises SIGBUS, which `bus_errors` answers with zeros: `guard` was there
        //   before the first look, and goes only when nobody can look any more.
        // Other processes may still write to the file: the same byte may read differently the second time. No type
        // expresses that, and no copy helps, which would read the same bytes. All readers of a window (chunkers and
        // fingerprints) must therefore be sound for any bytes at each single read: none takes an index or a length from
        // them without checking it, and kept bytes are copied first and the copy verified.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), *len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole of the mapping, which nothing borrows any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::FileWindow;

    fn file(len: usize) -> (tempfile::TempDir, File) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; len]).unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        (folder, file)
    }

    /// A file that is cut short under a window reads as zeros from there on, and the window says so; another window of
    /// the same file is unaffected.
    #[test]
    fn what_a_shorter_file_has_lost_is_zeros_and_told() {
        let page = rustix::param::page_size();
        let (_folder, file) = file(64 * page);
        let window = FileWindow::map(file.as_fd(), 16 * page as u64, 48 * page).unwrap();
        let other = FileWindow::map(file.as_fd(), 0, 8 * page).unwrap();
        assert!(window.populate(5..48 * page) && other.populate(0..8 * page));
        assert!(window.iter().all(|byte| *byte == 7) && !window.is_torn());
        file.set_len(20 * page as u64).unwrap();
        assert!(window[..4 * page].iter().all(|byte| *byte == 7));
        assert!(!window.is_torn());
        assert!(window[4 * page..].iter().all(|byte| *byte == 0));
        assert!(window.is_torn());
        assert!(!window.populate(0..48 * page) || window.is_torn());
        assert!(other.iter().all(|byte| *byte == 7) && !other.is_torn());
    }

    /// Pages behind the end of a file cannot be loaded.
    #[test]
    fn what_is_behind_the_end_cannot_be_populated() {
        let page = rustix::param::page_size();
        let (_folder, file) = file(page);
        let window = FileWindow::map(file.as_fd(), 0, 2 * page).unwrap();
        assert!(window.populate(0..page) && !window.populate(0..2 * page));
        assert_eq!((window[page], window.is_torn()), (0, true));
    }

    /// Several threads meet torn windows at once, while others map and unmap.
    #[test]
    fn threads_meet_torn_windows_side_by_side() {
        let page = rustix::param::page_size();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let (_folder, file) = file(8 * page);
                        let window = FileWindow::map(file.as_fd(), 0, 8 * page).unwrap();
                        file.set_len(page as u64).unwrap();
                        assert_eq!(window[7 * page], 0);
                        assert!(window.is_torn());
                    }
                });
            }
        });
    }

    /// A missing page in any other mapping ends the process, as without this module: tested in a process of its own.
    #[test]
    fn a_page_gone_elsewhere_ends_the_process() {
        const PLAY: &str = "ONEFOLD_TEST_PAGE_GONE";
        let page = rustix::param::page_size();
        if std::env::var_os(PLAY).is_some() {
            let (_folder, file) = file(page);
            let _window = FileWindow::map(file.as_fd(), 0, page).unwrap();
            let (any, flags) = (std::ptr::null_mut(), super::MapFlags::SHARED);
            let access = super::ProtFlags::READ;
            // SAFETY: a new mapping at a place of the system's choice.
            let other = unsafe { super::mmap(any, 2 * page, access, flags, &file, 0) }.unwrap();
            // SAFETY: the address is mapped; the missing page is the point of the test.
            std::hint::black_box(unsafe { other.cast::<u8>().add(page).read_volatile() });
            return;
        }
        let test = "os::file_window::tests::a_page_gone_elsewhere_ends_the_process";
        let mut play = std::process::Command::new(std::env::current_exe().unwrap());
        let play = play.args([test, "--exact"]).env(PLAY, "1");
        let status = play.output().unwrap().status;
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(libc::SIGBUS));
    }

    /// A folder cannot be mapped.
    #[test]
    fn what_cannot_be_mapped_is_none() {
        let folder = File::open("/").unwrap();
        assert!(FileWindow::map(folder.as_fd(), 0, 4096).is_none());
    }
}
