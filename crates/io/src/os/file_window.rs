//! A part of a file, mapped into memory: what is in the page cache already is looked at where it is, and not copied.
//!
//! Others may write to the file meanwhile, so the bytes may differ from one look to the next: who keeps some copies
//! them, and verifies the copy. Where a page is gone because the file was cut short, or cannot be read, zeros stand in
//! for it and for all behind it, and the window says that it is torn ([`super::bus_errors`]). Always holds: looking at
//! a window neither ends the process nor reaches outside of it.

use std::ffi::c_void;
use std::ops::{Deref, Range};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::bus_errors::{Guard, guard};

/// A part of a file, mapped to be looked at where the page cache holds it.
pub struct FileWindow {
    /// Goes before the mapping does, so that no other at the same place is taken for this one.
    guard: Guard,
    mapping: Mapping,
}

struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process and to no thread, and whoever owns this is the only one who unmaps it.
unsafe impl Send for Mapping {}
// SAFETY: shared access only reads, and the address and the length never change.
unsafe impl Sync for Mapping {}

impl FileWindow {
    /// `len` bytes from `offset` on, which begins a page. `None` where the file or the system allows no mapping.
    pub fn map(file: BorrowedFd<'_>, offset: u64, len: usize) -> Option<Self> {
        let (any, flags) = (std::ptr::null_mut(), MapFlags::SHARED);
        // SAFETY: a new mapping at a place of the system's choice touches no memory that is in use.
        let start = unsafe { mmap(any, len, ProtFlags::READ, flags, file, offset) };
        let start = NonNull::new(start.ok()?.cast::<u8>())?;
        let mapping = Mapping { start, len };
        let guard = guard(start.addr().get()..start.addr().get() + len)?;
        Some(Self { guard, mapping })
    }

    /// Has the pages of this range there before they are looked at, which costs a tenth of faulting one by one. Whether
    /// they all are.
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

    /// Whether a page was not there when it was looked at: from then on some of what is read here is no part of the
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
        // What is left is that other processes write to the file: the same byte may read differently the second time.
        // No type says that, and no copy helps, which would look at the same bytes. So who looks into a window
        // (chunkers and fingerprints) must be sound for any bytes at each single look: none takes an index or a length
        // from them that is not checked by itself, and what is kept is copied first and the copy verified.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), *len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole of the mapping, which nobody borrows any more.
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
    /// the same file is as it was.
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

    /// Pages that a file does not have are not there.
    #[test]
    fn what_is_behind_the_end_cannot_be_populated() {
        let page = rustix::param::page_size();
        let (_folder, file) = file(page);
        let window = FileWindow::map(file.as_fd(), 0, 2 * page).unwrap();
        assert!(window.populate(0..page) && !window.populate(0..2 * page));
        assert_eq!((window[page], window.is_torn()), (0, true));
    }

    /// Torn by several threads at once, while others map and let go.
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

    /// A page that is gone in anybody else's mapping ends the process, as ever: played in a process of its own.
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
            // SAFETY: mapped; that there is no page is the point.
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

    /// A folder has nothing to map.
    #[test]
    fn what_cannot_be_mapped_is_none() {
        let folder = File::open("/").unwrap();
        assert!(FileWindow::map(folder.as_fd(), 0, 4096).is_none());
    }
}
