//! Sets metadata: owner, attributes and ACLs first, then times and mode, since each may undo a later one. For files and
//! folders that are [known by their mode](super::unfinished) while incomplete, the mode comes last.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::acl;
use super::lacking::{Metadata, MetadataFailure};
use crate::exclude::Patterns;
use crate::meta::{Owners, Stat, xattr_names};
use crate::{Entry, Kind, Owner, SharedXattrs, Time};

/// Mode bit of a program that runs as its owner.
pub const SET_UID: u16 = 0o4000;
/// Mode bit of a program that runs as its group.
pub const SET_GID: u16 = 0o2000;

/// Metadata of an entry that a restore sets.
#[derive(Clone, Debug)]
pub struct Meta {
    pub mode: u16,
    pub owner: Arc<Owner>,
    pub mtime: Time,
    /// Time of access. Few snapshots have it, and many of these values are in RAM, so it is boxed.
    pub atime: Option<Box<Time>>,
    pub xattrs: SharedXattrs,
    /// Whether the snapshot knows the entry's attributes: then all others are removed.
    pub knows_xattrs: bool,
}

impl Meta {
    pub fn of(entry: &Entry) -> Self {
        Self {
            mode: entry.mode,
            owner: entry.owner.clone(),
            mtime: entry.mtime,
            atime: entry.atime.map(Box::new),
            xattrs: entry.xattrs.clone(),
            knows_xattrs: entry.knows_xattrs(),
        }
    }
}

/// Sets metadata as the options say.
#[derive(Clone, Copy)]
pub struct Applier<'a> {
    /// Whether owners are set: only root may give files away.
    pub owners: bool,
    /// Whether a mode that cannot be set, or is not kept, is reported.
    pub modes: bool,
    /// Names of this machine: a user who has the owner's name becomes the owner. `None`: the number counts.
    pub names: Option<&'a Owners>,
    /// Choice of extended attributes to set.
    pub xattrs: &'a AttributeChoice,
}

/// Choice of extended attributes to set, ACLs among them; patterns match their names.
#[derive(Clone, Default, Debug)]
pub struct AttributeChoice {
    /// Patterns of attributes to set; none: all.
    pub include: Patterns,
    /// Patterns of attributes not to set.
    pub exclude: Patterns,
    /// Set no attributes at all.
    pub none: bool,
}

impl AttributeChoice {
    fn wants(&self, name: &[u8]) -> bool {
        if self.none {
            return false;
        }
        if self.include.is_empty() && self.exclude.is_empty() {
            return true;
        }
        let path = [b"/", name].concat();
        let matches = |patterns: &Patterns| patterns.decide(&path, false) == Some(true);
        (self.include.is_empty() || matches(&self.include)) && !matches(&self.exclude)
    }

    /// Whether attributes are wanted that the snapshot does not know.
    pub(super) fn misses(&self, knows_xattrs: bool) -> bool {
        !knows_xattrs && !self.none
    }

    /// Returns the attributes of `meta` that are set.
    pub(super) fn of<'a>(
        &'a self,
        meta: &'a Meta,
    ) -> impl Iterator<Item = &'a (Box<[u8]>, Box<[u8]>)> {
        meta.xattrs.iter().filter(|(name, _)| self.wants(name))
    }
}

fn acl_of(meta: &Meta) -> Option<&[u8]> {
    let acl = meta.xattrs.iter().find(|(name, _)| **name == *acl::ACCESS);
    acl.map(|(_, value)| &value[..])
}

impl Applier<'_> {
    /// Returns the numbers of the user and group that become the owners.
    pub(super) fn ids(self, owner: &Owner) -> (Uid, Gid) {
        let known = self.names;
        let uid = known.and_then(|names| names.uid_of(&owner.user));
        let gid = known.and_then(|names| names.gid_of(&owner.group));
        (
            Uid::from_raw(uid.unwrap_or(owner.uid)),
            Gid::from_raw(gid.unwrap_or(owner.gid)),
        )
    }

    /// Returns attributes of users, and ACLs, that are there and not in the snapshot: a thing made in a folder with a
    /// default ACL has inherited it, and a thing that was there before may have any. Attributes of the system itself
    /// (labels) are not returned.
    pub(super) fn foreign(
        self,
        meta: &Meta,
        list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    ) -> Vec<Box<[u8]>> {
        if !meta.knows_xattrs {
            return Vec::new();
        }
        let is_users =
            |name: &[u8]| name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_");
        let is_known = |name: &[u8]| meta.xattrs.iter().any(|(known, _)| **known == *name);
        let is_foreign = |name: &[u8]| is_users(name) && self.xattrs.wants(name) && !is_known(name);
        // attributes that cannot be listed are left as they are: setting the missing ones tells why
        let there = xattr_names(list).unwrap_or_default();
        let foreign = there.into_iter().filter(|name| is_foreign(name));
        foreign.collect()
    }

    /// Returns the mode to set. Set-user-ID and set-group-ID bits are only kept with the snapshot's owner and group:
    /// where setting these failed, or was not asked for, a stranger's program would run as the user who restores.
    ///
    /// Where the snapshot has an ACL, the group's bits are all that the ACL grants to anybody it names; without the
    /// ACL, the group gets the bits that the ACL gave to it.
    pub(super) fn mode(
        self,
        meta: &Meta,
        has_acl: bool,
        stat: impl Fn() -> Result<Stat, Errno>,
    ) -> u16 {
        let mode = match acl_of(meta).filter(|_| !has_acl) {
            Some(acl) => acl::mode_without(meta.mode, acl),
            None => meta.mode,
        };
        let is_set = |bit: u16| mode & bit != 0;
        if !is_set(SET_UID | SET_GID) {
            return mode;
        }
        let (uid, gid) = self.ids(&meta.owner);
        let there = stat().map(|stat| (Uid::from_raw(stat.uid), Gid::from_raw(stat.gid)));
        let (has_owner, has_group) =
            there.map_or((false, false), |there| (there.0 == uid, there.1 == gid));
        let lost = |has: bool, bit: u16| if has { 0 } else { bit };
        mode & !(lost(has_owner, SET_UID) | lost(has_group, SET_GID))
    }

    /// Sets the metadata of an open file or folder. Returns the steps that failed.
    pub fn to_open(self, fd: BorrowedFd<'_>, meta: &Meta) -> Vec<MetadataFailure> {
        let (mut missed, has_acl) = self.all_but_mode(fd, meta);
        let mode = self.mode(meta, has_acl, || Stat::of(fd));
        let set = rustix::fs::fchmod(fd, Mode::from_raw_mode(mode.into()));
        missed.extend(self.told_of_mode(set).map(|why| SET_MODE.failed(why)));
        missed
    }

    /// Returns the error of setting a mode, where such errors are reported.
    fn told_of_mode(self, set: Result<(), Errno>) -> Option<Errno> {
        set.err().filter(|_| self.modes)
    }

    /// Sets all but the mode. Returns the steps that failed, and whether the file has the snapshot's ACL.
    fn all_but_mode(self, fd: BorrowedFd<'_>, meta: &Meta) -> (Vec<MetadataFailure>, bool) {
        let mut missed = Vec::new();
        let mut note = |step: MetadataStep, result: Result<(), Errno>| {
            missed.extend(result.err().map(|why| step.failed(why)));
        };
        if self.owners {
            let (uid, gid) = self.ids(&meta.owner);
            let owned = rustix::fs::fchown(fd, Some(uid), Some(gid));
            note(SET_OWNER, owned);
        }
        let list = |names: &mut [u8]| rustix::fs::flistxattr(fd, names);
        for name in self.foreign(meta, list) {
            let removed = rustix::fs::fremovexattr(fd, &name[..]);
            note(REMOVE_ATTRIBUTE, gone(removed));
        }
        let mut has_acl = false;
        for (name, value) in self.xattrs.of(meta) {
            let set = rustix::fs::fsetxattr(fd, &name[..], value, XattrFlags::empty());
            has_acl |= set.is_ok() && **name == *acl::ACCESS;
            note(SET_ATTRIBUTE, set);
        }
        note(SET_TIMES, rustix::fs::futimens(fd, &times(meta)));
        (missed, has_acl)
    }

    /// Sets the metadata of a link, pipe, socket or device that was just made. Its descriptor was opened by path alone:
    /// everybody who may write in its folder may have replaced it since.
    pub fn to_special(self, fd: BorrowedFd<'_>, kind: Kind, meta: &Meta) -> Vec<MetadataFailure> {
        let mut missed = Vec::new();
        let mut note = |step: MetadataStep, result: Result<(), Errno>| {
            missed.extend(result.err().map(|why| step.failed(why)));
        };
        if self.owners {
            let (uid, gid) = self.ids(&meta.owner);
            let owned = rustix::fs::chownat(fd, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH);
            note(SET_OWNER, owned);
        }
        // This path leads to the open file itself, also where that is a link.
        let path = &by_descriptor(fd)[..];
        if kind != Kind::Symlink {
            let list = |names: &mut [u8]| rustix::fs::listxattr(path, names);
            for attribute in self.foreign(meta, list) {
                let removed = rustix::fs::removexattr(path, &attribute[..]);
                note(REMOVE_ATTRIBUTE, gone(removed));
            }
        }
        let mut has_acl = false;
        for (attribute, value) in self.xattrs.of(meta) {
            let set = rustix::fs::setxattr(path, &attribute[..], value, XattrFlags::empty());
            has_acl |= set.is_ok() && **attribute == *acl::ACCESS;
            note(SET_ATTRIBUTE, set);
        }
        if kind != Kind::Symlink {
            let mode = self.mode(meta, has_acl, || Stat::of(fd));
            let mode = Mode::from_raw_mode(mode.into());
            let set = self.told_of_mode(rustix::fs::chmod(path, mode));
            note(SET_MODE, set.map_or(Ok(()), Err));
        }
        let times = times(meta);
        let set = match rustix::fs::utimensat(fd, "", &times, AtFlags::EMPTY_PATH) {
            // Kernels before 5.8 need the path.
            Err(Errno::INVAL | Errno::NOENT) => {
                rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())
            }
            other => other,
        };
        note(SET_TIMES, set);
        missed
    }

    /// Returns the number of the user who is to own files of `owner`, where owners are set.
    pub fn uid_of(self, owner: &Owner) -> Option<u32> {
        let (uid, _) = self.ids(owner);
        self.owners.then(|| uid.as_raw())
    }
}

/// Returns a path that leads to the open file, wherever its names lead now.
pub fn by_descriptor(fd: BorrowedFd<'_>) -> Vec<u8> {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into_bytes()
}

/// Treats an attribute that is gone already as removed.
fn gone(removed: Result<(), Errno>) -> Result<(), Errno> {
    match removed {
        Err(Errno::NODATA) => Ok(()),
        other => other,
    }
}

/// A step of setting metadata, which may fail by itself: the kind of metadata, and the step in words.
#[derive(Clone, Copy)]
struct MetadataStep(Metadata, &'static str);

const SET_OWNER: MetadataStep = MetadataStep(Metadata::Owner, "set the owner of");
const SET_MODE: MetadataStep = MetadataStep(Metadata::Mode, "set the mode of");
const SET_TIMES: MetadataStep = MetadataStep(Metadata::Times, "set the times of");
const SET_ATTRIBUTE: MetadataStep = MetadataStep(Metadata::Attributes, "set an attribute of");
const REMOVE_ATTRIBUTE: MetadataStep = MetadataStep(Metadata::Attributes, "remove an attribute of");

impl MetadataStep {
    fn failed(self, why: Errno) -> MetadataFailure {
        let Self(what, op) = self;
        MetadataFailure { what, op, why }
    }
}

/// Returns both times, always: some file systems of FUSE accept a call that leaves one out, and do nothing. A time of
/// access that the snapshot does not have becomes the current time, as of all new files.
fn times(meta: &Meta) -> Timestamps {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_NOW,
    };
    Timestamps {
        last_access: meta.atime.as_deref().copied().map_or(now, timespec),
        last_modification: timespec(meta.mtime),
    }
}

/// Converts a time to the system's form.
pub fn timespec(time: Time) -> Timespec {
    Timespec {
        tv_sec: time.secs,
        tv_nsec: time.nanos.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::restore::unfinished;

    /// A restore may be killed between any two calls.
    #[test]
    fn the_mark_of_what_is_unfinished_goes_when_all_else_is_done() {
        let file = tempfile::tempfile().expect("tempfile");
        let marked = std::fs::Permissions::from_mode(unfinished::FILE.as_raw_mode());
        file.set_permissions(marked).expect("chmod");
        let meta = Meta {
            mode: 0o640,
            owner: Arc::default(),
            mtime: Time {
                secs: 1_000_001,
                nanos: 5,
            },
            atime: None,
            xattrs: SharedXattrs::default(),
            knows_xattrs: true,
        };
        let applier = Applier {
            owners: false,
            modes: true,
            names: None,
            xattrs: &AttributeChoice::default(),
        };
        let looks = |file: &File| {
            let there = file.metadata().expect("stat");
            (there.mtime(), there.mode() & 0o7777)
        };
        let (missed, _) = applier.all_but_mode(file.as_fd(), &meta);
        assert_eq!((missed, looks(&file)), (vec![], (1_000_001, 0o1600)));
        assert_eq!(applier.to_open(file.as_fd(), &meta), []);
        assert_eq!(looks(&file), (1_000_001, 0o640));
    }
}
