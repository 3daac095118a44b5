//! Folders that led to the sources of the backup. A backup follows symbolic links on the way to its sources and stores
//! their targets as folders that hold only the way. So where the restore's target has such a link, the link is no
//! leftover in the place of a folder of ours: it may lead to much that the snapshot has never seen.

use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::Kind;
use crate::meta::Stat;
use crate::path::within;

/// Error of a folder in whose place a link stays.
const LINK_STAYS: &str = "a symbolic link to a folder stands there, and stays, for the backup led through it: restore \
     SNAPSHOT:PATH into the folder that it leads to";

/// Decides which folders led to sources of the backup.
pub struct Leading<'a> {
    /// Sources of the backup, each as [`clean`](crate::path::clean) makes it.
    sources: &'a [Vec<u8>],
    /// Path of the snapshot at which paths in the target begin.
    base: &'a [u8],
}

impl<'a> Leading<'a> {
    pub fn new(sources: &'a [Vec<u8>], base: &'a [u8]) -> Self {
        Self { sources, base }
    }

    /// Whether `there`, which is `name` in `dir`, stays in place of the folder `path` of the target.
    pub fn keeps(
        &self,
        dir: impl AsFd,
        name: &[u8],
        there: &Stat,
        path: impl FnOnce() -> Vec<u8>,
    ) -> bool {
        let leads_to_folder =
            || Stat::at(dir, name, true).is_ok_and(|there| there.kind == Kind::Dir);
        there.kind == Kind::Symlink && self.led(&path()) && leads_to_folder()
    }

    /// Whether a folder of the target led to a source, and lies in none.
    fn led(&self, path: &[u8]) -> bool {
        let path = [self.base, path].concat();
        let mut sources = self.sources.iter();
        self.sources.iter().any(|source| within(source, &path))
            && !sources.any(|source| within(&path, source))
    }

    /// Returns the error of a folder that could not be made: `EXIST` means a link that stays where `path` led to a
    /// source.
    pub fn explain(&self, why: Errno, there: Option<&Stat>, path: &[u8]) -> std::io::Error {
        let is_link = there.is_some_and(|there| there.kind == Kind::Symlink);
        if why == Errno::EXIST && is_link && self.led(path) {
            std::io::Error::new(std::io::ErrorKind::AlreadyExists, LINK_STAYS)
        } else {
            why.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_above_a_source_and_in_none_led_to_it() {
        let sources = ["/home/ann", "/home/ann/x/y", "/srv"].map(|path| path.as_bytes().to_vec());
        let led =
            |base: &str, path: &str| Leading::new(&sources, base.as_bytes()).led(path.as_bytes());
        assert!(led("", "/home") && led("/home", "") && led("", ""));
        for path in [
            "/home/ann",
            "/home/ann/x",
            "/hom",
            "/home/an",
            "/srv",
            "/tmp",
        ] {
            assert!(!led("", path), "{path}");
        }
        let root = [Vec::new()];
        assert!(!Leading::new(&root, b"").led(b"/home"));
    }
}
