//! File systems whose files may claim to be empty and are not: those that the kernel makes up (/proc, /sys), and those
//! in user space.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

/// `f_type` of file systems in user space.
const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;

/// Whether a file system hides sizes, by device.
#[derive(Default)]
pub struct Sizeless(Mutex<HashMap<u64, bool>>);

impl Sizeless {
    /// Whether the file `name` in `dir`, on `device`, may hold more than its size says. A file system that cannot be
    /// asked counts as an ordinary one.
    pub fn may_hide(&self, dir: &OwnedFd, name: &[u8], device: u64) -> bool {
        *self.0.lock().entry(device).or_insert_with(|| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(dir, name, flags, Mode::empty());
            let about = file.and_then(rustix::fs::fstatfs);
            about.is_ok_and(|about| about.f_blocks == 0 || about.f_type as u64 == FUSE_SUPER_MAGIC)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_hide(folder: &std::path::Path, name: &str) -> bool {
        let dir = std::fs::File::open(folder).expect("open");
        Sizeless::default().may_hide(&dir.into(), name.as_bytes(), 1)
    }

    #[test]
    fn the_kernels_own_hide_sizes_and_disks_do_not() {
        let folder = tempfile::tempdir().expect("tempdir");
        std::fs::write(folder.path().join("file"), "").expect("write");
        assert!(!may_hide(folder.path(), "file"));
        assert!(may_hide(std::path::Path::new("/proc/self"), "status"));
        assert!(!may_hide(folder.path(), "not there"));
    }
}
