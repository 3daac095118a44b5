//! Decides about entries of a folder that are left out: because of their name, kind, size or place, or of a file that
//! marks the folder.

use std::os::fd::OwnedFd;

use super::{FolderVisit, read_start};
use crate::Kind;
use crate::exclude::CACHEDIR_SIGNATURE;
use crate::meta::Stat;
use crate::walk::names::ListedAs;

impl FolderVisit<'_> {
    /// Returns the name of the file that marks this folder's contents as left out.
    pub(super) fn marker(&self, dir: &OwnedFd) -> Option<Vec<u8>> {
        let excludes = &self.options.excludes;
        let begins = |name: &[u8], header: &[u8]| {
            read_start(dir, name, header.len()).is_some_and(|start| start == header)
        };
        if excludes.caches && begins(b"CACHEDIR.TAG", CACHEDIR_SIGNATURE) {
            return Some(b"CACHEDIR.TAG".to_vec());
        }
        let present = excludes
            .if_present
            .iter()
            .find(|(name, header)| match header {
                Some(header) => begins(name, header),
                None => Stat::at(dir, name, false).is_ok(),
            });
        present.map(|(name, _)| name.clone())
    }

    /// Whether an entry is left out because of its size, or as a folder that is always left out.
    pub(super) fn is_excluded(&self, stat: &Stat) -> bool {
        let excludes = &self.options.excludes;
        let is_too_large =
            || stat.kind == Kind::File && excludes.larger_than.is_some_and(|max| stat.size > max);
        self.select.whole && (excludes.is_left_out(stat) || is_too_large())
    }

    /// Whether a thing that cannot be looked at is left out anyway: because of its name, or since it lies on another
    /// file system.
    pub(super) fn is_out_unseen(&self, dir: &OwnedFd, name: &[u8], listed_as: ListedAs) -> bool {
        let is_elsewhere = || {
            let device = self.device.filter(|_| self.options.one_file_system);
            device.is_some_and(|device| Stat::device_at(dir, name).is_ok_and(|it| it != device))
        };
        self.is_name_excluded(name, listed_as == ListedAs::Dir) || is_elsewhere()
    }

    /// Whether an entry is left out because of its name and those of the folders above it.
    pub(super) fn is_name_excluded(&self, name: &[u8], is_dir: bool) -> bool {
        let patterns = &self.options.excludes.patterns;
        if !self.select.whole || patterns.is_empty() && self.ignore.is_none() {
            return false;
        }
        let path = self.path_of(name);
        patterns.decide(&path, is_dir) == Some(true)
            || self
                .ignore
                .as_ref()
                .is_some_and(|ignore| ignore.excludes(&path, is_dir))
    }
}
