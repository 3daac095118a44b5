//! Small files that stay open after they were looked at, for a caller that reads all of them anyway: each name is
//! looked up once, not twice, and the kernel's records of the file are fetched into a core's cache once.
//!
//! An open file stays on the disk when it is deleted, so the files are few and small, and on file systems of this
//! machine: to a server an open file is more than a number, and a deleted one stays in its folder.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::fs::{Mode, OFlags, fstatfs};
use rustix::io::Errno;

use crate::Kind;
use crate::meta::Stat;

/// Size from which on files are not kept open, in bytes.
pub(crate) const SMALL_BYTES: u64 = 512 << 10;
/// `f_type` of file systems of this machine: ext2 to ext4, XFS, btrfs, ZFS, bcachefs, F2FS, those in RAM, and layers of
/// these.
const LOCAL: [u32; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0xf2f5_2010,
    0x0102_1994,
    0x794c_7630,
];

/// Number of files that may still be opened, shared by all threads.
#[derive(Clone, Debug)]
pub(crate) struct OpenFiles(Arc<AtomicUsize>);

/// A small file that is open.
#[derive(Debug)]
pub struct OpenedFile {
    fd: OwnedFd,
    /// Place among the open files, given back when this is dropped.
    _place: OpenFilePermit,
}

impl OpenedFile {
    /// Returns the descriptor, and gives the place back: another file may be opened.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

/// A place among the files that may be open.
#[derive(Debug)]
pub(crate) struct OpenFilePermit(OpenFiles);

impl Drop for OpenFilePermit {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Relaxed);
    }
}

impl OpenFiles {
    pub fn new(most: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(most)))
    }

    /// Takes a place for one more file; `None` where no place is left.
    pub fn place(&self) -> Option<OpenFilePermit> {
        let take = |left: usize| left.checked_sub(1);
        let taken = self.0.fetch_update(Relaxed, Relaxed, take);
        taken.is_ok().then(|| OpenFilePermit(self.clone()))
    }
}

impl OpenFilePermit {
    /// Returns the `stat` of `name` in `dir`, and the open file, if it is a small one; `None` where it cannot be
    /// opened.
    pub fn open(self, dir: &OwnedFd, name: &[u8]) -> Option<(Stat, Option<OpenedFile>)> {
        let fd = open(dir, name).ok()?;
        let stat = Stat::of(&fd).ok()?;
        let is_held = stat.kind == Kind::File && stat.size < SMALL_BYTES;
        let opened = OpenedFile { fd, _place: self };
        Some((stat, is_held.then_some(opened)))
    }
}

/// Whether files in `dir` may stay open for a while.
pub(super) fn may_be_held(dir: &OwnedFd) -> bool {
    fstatfs(dir).is_ok_and(|about| LOCAL.contains(&(about.f_type as u32)))
}

/// Opens a file to read it: not through a symbolic link, without waiting for another program, and without changing its
/// time of access where this user may leave that alone.
pub(crate) fn open(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let open = |more| rustix::fs::openat(dir.as_fd(), name, flags | more, Mode::empty());
    match open(OFlags::NOATIME) {
        // Only the owner may leave the time of access alone.
        Err(Errno::PERM) => open(OFlags::empty()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn small_files_are_held_and_no_more_than_may_be() {
        let folder = tempfile::tempdir().expect("tempdir");
        let path = |name: &str| folder.path().join(name);
        for name in ["a", "b", "c"] {
            fs::write(path(name), name).expect("write");
        }
        let large = fs::File::create(path("large")).expect("create");
        large.set_len(SMALL_BYTES).expect("grow");
        std::os::unix::fs::symlink("a", path("link")).expect("symlink");
        // Opening a pipe to read it would wait for a writer.
        let dir: OwnedFd = fs::File::open(folder.path()).expect("open").into();
        rustix::fs::mkfifoat(&dir, "fifo", Mode::RUSR).expect("fifo");
        let files = OpenFiles::new(2);
        let open = |name: &str| files.place()?.open(&dir, name.as_bytes());
        let held = |name: &str| open(name).and_then(|(_, opened)| opened);
        assert!(open("link").is_none() && open("none").is_none());
        for (name, bytes) in [("large", SMALL_BYTES), ("fifo", 0)] {
            let (stat, opened) = open(name).expect("it can be opened");
            assert_eq!((stat.size, opened.is_none()), (bytes, true), "{name}");
        }
        let (a, b) = (held("a").expect("small"), held("b").expect("small"));
        assert!(open("c").is_none(), "two may be open");
        drop(a);
        let c = held("c").expect("another was let go");
        assert!(open("a").is_none());
        let taken = fs::File::from(b.into_fd());
        assert_eq!(std::io::read_to_string(taken).expect("read"), "b");
        assert!(open("a").is_some(), "who took it reads it");
        drop(c);
        let proc = fs::File::open("/proc").expect("open");
        assert!(
            !may_be_held(&proc.into()),
            "that is no disk of this machine"
        );
    }
}
