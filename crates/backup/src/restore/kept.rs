//! Reads metadata back after it was set: some file systems report success and keep something else.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::acl;
use super::apply::{Applier, Meta, by_descriptor};
use super::lacking::Metadata;
use crate::meta::Stat;
use crate::{Kind, Time};

/// A kind of metadata that reads differently than it was set.
pub struct Difference {
    pub what: Metadata,
    /// Difference in words.
    pub how: String,
}

/// Comparison of times, where a file system keeps them more coarsely, or not at all.
pub struct Times<S, A> {
    /// Whether the time of change is the one that was set, as far as the file system can tell.
    pub is_same: S,
    /// Whether the file system keeps times of access. Then a different one means that a program has read the file
    /// since.
    pub keeps_access: A,
}

impl Applier<'_> {
    /// Returns the differences between `meta` and the file, among the kinds that this applier sets; `fd` is open at
    /// least by path, and `there` is its `stat`. Attributes that this user may not read count as right.
    pub fn differences(
        self,
        fd: BorrowedFd<'_>,
        there: &Stat,
        meta: &Meta,
        times: Times<impl FnOnce(Time) -> bool, impl FnOnce() -> bool>,
    ) -> Vec<Difference> {
        let mut found = Vec::new();
        let mut differs = |what, how| found.push(Difference { what, how });
        let (uid, gid) = self.ids(&meta.owner);
        let (uid, gid) = (uid.as_raw(), gid.as_raw());
        if self.owners && (there.uid, there.gid) != (uid, gid) {
            let (user, group) = (there.uid, there.gid);
            let how = format!("its owner reads as {user}:{group}, expected {uid}:{gid}");
            differs(Metadata::Owner, how);
        }
        if let Some(how) = self.attribute_difference(fd, there.kind, meta) {
            differs(Metadata::Attributes, how);
        }
        if self.modes && there.kind != Kind::Symlink {
            let mut put_back = self.xattrs.of(meta);
            let has_acl = put_back.any(|(name, value)| {
                **name == *acl::ACCESS
                    && !matches!(attribute_is(fd, name, value), Attribute::Differs)
            });
            let mode = self.mode(meta, has_acl, || Ok(*there));
            if there.mode != mode {
                let how = format!("its mode reads as {:04o}, expected {mode:04o}", there.mode);
                differs(Metadata::Mode, how);
            }
        }
        let is_other = |wanted: &Time| there.atime != *wanted && !(times.keeps_access)();
        if !(times.is_same)(meta.mtime) {
            let (is, expected) = (since_1970(there.mtime), since_1970(meta.mtime));
            let how = format!("its time of change reads as {is}, expected {expected}");
            differs(Metadata::Times, how);
        } else if let Some(wanted) = meta.atime.as_deref().filter(|wanted| is_other(wanted)) {
            let (is, expected) = (since_1970(there.atime), since_1970(*wanted));
            let how = format!("its time of access reads as {is}, expected {expected}");
            differs(Metadata::Times, how);
        }
        found
    }

    fn attribute_difference(self, fd: BorrowedFd<'_>, kind: Kind, meta: &Meta) -> Option<String> {
        let show = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        for (name, value) in self.xattrs.of(meta) {
            if let Attribute::Differs = attribute_is(fd, name, value) {
                return Some(format!("its attribute {} reads differently", show(name)));
            }
        }
        if kind == Kind::Symlink {
            return None;
        }
        let path = by_descriptor(fd);
        let list = |names: &mut [u8]| rustix::fs::listxattr(&path[..], names);
        let foreign = self.foreign(meta, list);
        let foreign = foreign.first()?;
        let name = show(foreign);
        Some(format!(
            "it has the attribute {name}, which the snapshot does not"
        ))
    }
}

/// Result of comparing an attribute.
enum Attribute {
    /// The attribute has the expected value.
    IsSame,
    /// The attribute is missing, or has another value.
    Differs,
    /// The attribute cannot be read.
    Unknown,
}

/// Compares an attribute with `value`.
fn attribute_is(fd: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> Attribute {
    // An empty buffer would ask for the length.
    let mut there = vec![0; value.len() + 1];
    let path = by_descriptor(fd);
    match rustix::fs::getxattr(&path[..], name, &mut there[..]) {
        Ok(len) if there[..len] == *value => Attribute::IsSame,
        Ok(_) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Attribute::Differs,
        Err(_) => Attribute::Unknown,
    }
}

/// Shows a time as `date --date` takes it.
fn since_1970(time: Time) -> String {
    format!("@{}.{:09}", time.secs, time.nanos)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use super::*;
    use crate::restore::apply::AttributeChoice;
    use crate::{Owner, SharedXattrs};

    /// Simulates a file system that reports success and keeps the old metadata.
    #[test]
    fn each_kind_that_was_not_kept_is_told_and_nothing_else() {
        let file = tempfile::NamedTempFile::new().expect("tempfile");
        let mode = fs::Permissions::from_mode(0o644);
        fs::set_permissions(file.path(), mode).expect("chmod");
        let there = Stat::of(file.as_file()).expect("stat");
        let as_it_is = Meta {
            mode: 0o644,
            owner: Arc::new(Owner {
                uid: there.uid,
                gid: there.gid,
                ..Owner::default()
            }),
            mtime: there.mtime,
            atime: Some(Box::new(there.atime)),
            xattrs: SharedXattrs::default(),
            knows_xattrs: true,
        };
        let all = AttributeChoice::default();
        let none = AttributeChoice {
            none: true,
            ..AttributeChoice::default()
        };
        let differ = |meta: &Meta, owners, xattrs, keeps_access| {
            let applier = Applier {
                owners,
                modes: owners,
                names: None,
                xattrs,
            };
            let times = Times {
                is_same: |wanted| wanted == there.mtime,
                keeps_access: || keeps_access,
            };
            let found = applier.differences(file.as_fd(), &there, meta, times);
            found.into_iter().map(|it| it.what).collect::<Vec<_>>()
        };
        assert_eq!(differ(&as_it_is, true, &all, false), []);
        let mut other = as_it_is.clone();
        other.mode = 0o640;
        other.mtime.secs -= 1;
        other.xattrs = vec![(b"user.a"[..].into(), b"b"[..].into())].into();
        let owner = Owner {
            uid: there.uid + 1,
            ..Owner::default()
        };
        other.owner = Arc::new(owner);
        let kinds = Metadata::ALL;
        let found = differ(&other, true, &all, false);
        assert!(kinds.iter().all(|kind| found.contains(kind)), "{found:?}");
        // Metadata that was not asked for is not missed.
        let found = differ(&other, false, &none, false);
        assert_eq!(found, [Metadata::Times]);
        // Where times of access are kept, a program has read the file since.
        let mut read = as_it_is.clone();
        read.atime = Some(Box::new(Time { secs: 1, nanos: 0 }));
        assert_eq!(differ(&read, true, &all, true), []);
        assert_eq!(differ(&read, true, &all, false), [Metadata::Times]);
    }
}
