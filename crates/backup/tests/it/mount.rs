//! File systems of a test's own, which only root can mount.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::untested::{has, is_root, not_tested};

/// A mounted file system, unmounted when this is dropped.
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts a new file system in RAM, of `mib` MiB. Here and below `None` means that this is not possible, which is
    /// printed.
    pub fn new(at: &Path, mib: u64) -> Option<Self> {
        std::fs::create_dir_all(at).expect("a folder");
        let size = format!("size={mib}m");
        Self::with(&["-t", "tmpfs", "-o", &size, "none"].map(Path::new), at)
    }

    fn with(args: &[&Path], at: &Path) -> Option<Self> {
        if !is_root() || !has("mount") {
            return None;
        }
        let mounted = Command::new("mount").args(args).arg(at).output();
        let is_mounted = mounted.is_ok_and(|output| output.status.success());
        if !is_mounted {
            not_tested("no file system can be mounted here");
        }
        is_mounted.then(|| Self(at.to_owned()))
    }
}

#[allow(dead_code, reason = "not every crate needs them")]
impl Mount {
    /// Mounts the folder `from` at `at`, too.
    pub fn bind(from: &Path, at: &Path) -> Option<Self> {
        Self::with(&[Path::new("--bind"), from], at)
    }

    /// Mounts the folder `from` at `at` by FUSE, with these options of bindfs.
    pub fn bindfs(how: &[&str], from: &Path, at: &Path) -> Option<Self> {
        for folder in [from, at] {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        if !is_root() || !has("bindfs") || !has("fusermount3") {
            return None;
        }
        let mounted = Command::new("bindfs").args(how).args([from, at]).output();
        let is_mounted = mounted.is_ok_and(|output| output.status.success());
        if !is_mounted {
            not_tested("no file system of FUSE can be mounted here");
        }
        is_mounted.then(|| Self(at.to_owned()))
    }

    /// Mounts a new ext4 in the file `image`, of `mib` MiB, made with the options `how`.
    pub fn ext4(image: &Path, mib: u64, how: &[&str], at: &Path) -> Option<Self> {
        let how = [&["-q", "-F", "-m", "0"], how].concat();
        Self::made("mkfs.ext4", &how, (image, mib), at)
    }

    /// Mounts a new XFS in the file `image`, of the least size that it can have.
    pub fn xfs(image: &Path, at: &Path) -> Option<Self> {
        Self::made("mkfs.xfs", &["-q"], (image, 300), at)
    }

    fn made(program: &str, how: &[&str], (image, mib): (&Path, u64), at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).expect("a folder");
        if !is_root() || !has(program) {
            return None;
        }
        let file = std::fs::File::create(image).expect("create");
        file.set_len(mib << 20).expect("set_len");
        let made = Command::new(program).args(how).arg(image).output();
        let made = made.expect("it is there");
        assert!(made.status.success(), "{program}: {made:?}");
        Self::with(&[Path::new("-o"), Path::new("loop"), image], at)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}
