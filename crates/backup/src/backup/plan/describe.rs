//! Looks up what a backup needs of entries that are not read: targets and attributes.

use std::os::fd::AsFd;

use rustix::io::Errno;

use super::{FailedEntry, Planner, Whereabouts};
use crate::meta::{link_target, xattrs_at, xattrs_error};
use crate::{Content, Entry, Error, Flags, Kind, path};

impl Planner<'_> {
    /// Fills in the parts of an entry that `stat` does not give.
    pub(super) fn describe(
        &self,
        whereabouts: Whereabouts<'_>,
        folder: &[u8],
        mut entry: Entry,
    ) -> Result<Entry, Box<FailedEntry>> {
        let Whereabouts { dir, own_name, .. } = whereabouts;
        let failed = |entry: Entry, e: Errno, why: &dyn Fn(&[u8]) -> Error| {
            let path = path::join(folder, &entry.name);
            Box::new(FailedEntry {
                error: why(&path),
                path,
                entry: (e != Errno::NOENT).then_some(entry),
            })
        };
        if entry.kind == Kind::Symlink {
            match link_target(dir, own_name.unwrap_or(&entry.name)) {
                Ok(target) => entry.target = target,
                Err(e) => {
                    entry.flags.0 |= Flags::UNREADABLE.0;
                    (entry.size, entry.content) = (0, Content::default());
                    return Err(failed(entry, e, &|path| {
                        Error::io("read the link", path, e)
                    }));
                }
            }
        }
        match xattrs_at(dir.as_fd(), own_name.unwrap_or(&entry.name)) {
            Ok(xattrs) => entry.xattrs = xattrs.into(),
            Err(_) if !whereabouts.is_entered => {}
            Err(e) => {
                // All other parts of the entry are kept.
                entry.flags.0 |= match entry.kind {
                    Kind::Dir => Flags::UNREADABLE.0,
                    _ => Flags::UNLISTED.0,
                };
                return Err(failed(entry, e, &|path| xattrs_error(path, e)));
            }
        }
        Ok(entry)
    }
}
