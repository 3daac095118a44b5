//! Reading metadata of the user's files: stat, owners' names, links' targets, extended attributes and ACLs.
//!
//! Everything is relative to an open folder, so that no path is too long and no rename on the way leads elsewhere.
//! ACLs are the attributes `system.posix_acl_access` and `system.posix_acl_default`: they need no code of their own.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::{Entry, Error, Kind, Owner, Time, Xattrs};

/// Extended attributes that one entry keeps, names and values, in bytes: some entries with so many are on their way at once. Most file systems have room for a
/// few KiB; XFS, btrfs and ZFS for 65,536 bytes in each of more than a thousand.
pub const XATTRS_BYTES_MAX: usize = 4 << 20;
/// What is said of more than that; no call on attributes says so.
const TOO_MANY_XATTRS: Errno = Errno::FBIG;
/// What is said where `/proc` is not mounted, by which they are reached; no call on attributes says so.
const NO_WAY_TO_XATTRS: Errno = Errno::NXIO;

/// What `stat` says, as far as snapshots keep it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// The lower twelve mode bits.
    pub mode: u16,
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// 512-byte units on disk: fewer than the size needs means holes.
    pub blocks: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Last access.
    pub atime: Time,
    /// Inode number.
    pub inode: u64,
    /// File system.
    pub device: u64,
    /// Hard links.
    pub links: u64,
    /// Which device it is.
    pub rdev: u64,
}

impl Stat {
    /// Of `name` in `dir`; a symbolic link itself is looked at unless `follow`.
    pub fn at(dir: impl AsFd, name: &[u8], follow: bool) -> Result<Self, Errno> {
        let flags = if follow {
            AtFlags::empty()
        } else {
            AtFlags::SYMLINK_NOFOLLOW
        };
        rustix::fs::statat(dir, name, flags).map(Self::from_system)
    }

    /// Of what is there but cannot be looked at.
    pub fn unknown() -> Self {
        Self {
            kind: Kind::File,
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            blocks: 0,
            mtime: Time::default(),
            ctime: Time::default(),
            atime: Time::default(),
            inode: 0,
            device: 0,
            links: 1,
            rdev: 0,
        }
    }

    /// Of an open file.
    pub fn of(fd: impl AsFd) -> Result<Self, Errno> {
        rustix::fs::fstat(fd).map(Self::from_system)
    }

    fn from_system(s: rustix::fs::Stat) -> Self {
        Self {
            kind: kind(FileType::from_raw_mode(s.st_mode)),
            mode: (s.st_mode & 0o7777) as u16,
            uid: s.st_uid,
            gid: s.st_gid,
            size: s.st_size as u64,
            blocks: s.st_blocks as u64,
            mtime: Time {
                secs: s.st_mtime,
                nanos: s.st_mtime_nsec as u32,
            },
            ctime: Time {
                secs: s.st_ctime,
                nanos: s.st_ctime_nsec as u32,
            },
            atime: Time {
                secs: s.st_atime,
                nanos: s.st_atime_nsec as u32,
            },
            inode: s.st_ino,
            device: s.st_dev,
            links: s.st_nlink,
            rdev: s.st_rdev,
        }
    }

    /// Whether content and metadata are as they were: nobody wrote in between.
    pub fn same_state(&self, other: &Stat) -> bool {
        (self.inode, self.device, self.size, self.mtime, self.ctime)
            == (
                other.inode,
                other.device,
                other.size,
                other.mtime,
                other.ctime,
            )
    }

    /// An entry with everything that `stat` says; target, attributes, time of access and content are missing.
    pub fn entry(&self, name: Vec<u8>, owners: &Owners) -> Entry {
        let mut entry = Entry::new(name, self.kind);
        entry.mode = self.mode;
        entry.owner = owners.get(self.uid, self.gid);
        entry.size = if self.kind == Kind::File {
            self.size
        } else {
            0
        };
        (entry.mtime, entry.ctime) = (self.mtime, self.ctime);
        (entry.inode, entry.device) = (self.inode, self.device);
        entry.links = if self.kind == Kind::Dir {
            1
        } else {
            self.links
        };
        entry.rdev = if matches!(self.kind, Kind::CharDevice | Kind::BlockDevice) {
            self.rdev
        } else {
            0
        };
        entry
    }
}

fn kind(file_type: FileType) -> Kind {
    match file_type {
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        _ => Kind::File,
    }
}

/// Names of users and groups, from `/etc/passwd` and `/etc/group` (name services beyond these files are not asked: ids are kept anyway).
pub struct Owners {
    users: HashMap<u32, Box<str>>,
    groups: HashMap<u32, Box<str>>,
    uids: HashMap<Box<str>, u32>,
    gids: HashMap<Box<str>, u32>,
    known: Mutex<HashMap<(u32, u32), Arc<Owner>>>,
}

impl Owners {
    /// This machine's.
    pub fn load() -> Self {
        let text = |file| std::fs::read(file).unwrap_or_default();
        Self::of(&text("/etc/passwd"), &text("/etc/group"))
    }

    /// Those of the texts of such files.
    pub fn of(passwd: &[u8], group: &[u8]) -> Self {
        let (users, groups) = (names(passwd), names(group));
        Self {
            uids: ids(&users),
            gids: ids(&groups),
            users,
            groups,
            known: Mutex::default(),
        }
    }

    /// The owner with these numbers; one value shared by all its entries.
    pub fn get(&self, uid: u32, gid: u32) -> Arc<Owner> {
        let name = |names: &HashMap<u32, Box<str>>, id| names.get(&id).cloned().unwrap_or_default();
        let new = || {
            Arc::new(Owner {
                uid,
                gid,
                user: name(&self.users, uid),
                group: name(&self.groups, gid),
            })
        };
        self.known
            .lock()
            .entry((uid, gid))
            .or_insert_with(new)
            .clone()
    }

    /// The number of the user called `name` here.
    pub fn uid_of(&self, name: &str) -> Option<u32> {
        self.uids.get(name).copied()
    }

    /// The number of the group called `name` here.
    pub fn gid_of(&self, name: &str) -> Option<u32> {
        self.gids.get(name).copied()
    }
}

/// Of a name with several numbers the lowest.
fn ids(names: &HashMap<u32, Box<str>>) -> HashMap<Box<str>, u32> {
    let mut ids = HashMap::new();
    for (id, name) in names {
        let known = ids.entry(name.clone()).or_insert(*id);
        *known = (*known).min(*id);
    }
    ids
}

fn names(text: &[u8]) -> HashMap<u32, Box<str>> {
    let text = String::from_utf8_lossy(text);
    let mut names = HashMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(Ok(id))) = (fields.next(), fields.nth(1).map(str::parse))
            && !name.is_empty()
        {
            names.entry(id).or_insert_with(|| name.into());
        }
    }
    names
}

/// The target of a symbolic link.
pub fn link_target(dir: impl AsFd, name: &[u8]) -> Result<Vec<u8>, Errno> {
    rustix::fs::readlinkat(dir, name, Vec::with_capacity(256)).map(|target| target.into_bytes())
}

/// Why the attributes of `path` cannot be had.
pub fn xattrs_error(path: &[u8], e: Errno) -> Error {
    let source = match e {
        TOO_MANY_XATTRS => {
            let mib = XATTRS_BYTES_MAX >> 20;
            std::io::Error::other(format!("they are more than the {mib} MiB that are kept"))
        }
        NO_WAY_TO_XATTRS => {
            std::io::Error::other("they are reached by /proc, which is not mounted")
        }
        e => e.into(),
    };
    Error::io("read the attributes of", path, source)
}

/// Extended attributes of an open file or folder; none where the file system has none.
pub fn xattrs_of(fd: BorrowedFd<'_>) -> Result<Xattrs, Errno> {
    let list = |buf: &mut [u8]| rustix::fs::flistxattr(fd, buf);
    collect(list, |name, buf| rustix::fs::fgetxattr(fd, name, buf))
}

/// Extended attributes of `name` in `dir` itself, also where it is a link or cannot be opened; none where it is gone.
pub fn xattrs_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Xattrs, Errno> {
    let path = beside(dir, name);
    let list = |buf: &mut [u8]| match rustix::fs::llistxattr(&path[..], buf) {
        Err(Errno::NOENT) if Stat::at(dir, name, false).is_ok() => Err(NO_WAY_TO_XATTRS),
        other => other,
    };
    let by_path = collect(list, |attribute, buf| {
        rustix::fs::lgetxattr(&path[..], attribute, buf)
    });
    if by_path != Err(NO_WAY_TO_XATTRS) {
        return by_path;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(folder) => xattrs_of(folder.as_fd()),
        Err(_) => by_path,
    }
}

/// A path by which calls that know no folder descriptors reach `name` in `dir`, however deep that lies.
pub fn beside(dir: BorrowedFd<'_>, name: &[u8]) -> Vec<u8> {
    [
        format!("/proc/self/fd/{}/", dir.as_raw_fd()).as_bytes(),
        name,
    ]
    .concat()
}

fn collect(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Result<Xattrs, Errno> {
    let (mut xattrs, mut bytes) = (Xattrs::new(), 0);
    for name in xattr_names(list)? {
        match grown(|buf| get(&name, buf)) {
            Ok(value) => {
                bytes += name.len() + value.len();
                if bytes > XATTRS_BYTES_MAX {
                    return Err(TOO_MANY_XATTRS);
                }
                xattrs.push((name, value.into()));
            }
            Err(Errno::NODATA | Errno::NOTSUP) => {}
            Err(e) => return Err(e),
        }
    }
    xattrs.sort();
    Ok(xattrs)
}

/// The names that `list` writes, each with a zero behind it; none where the file system has no attributes.
pub fn xattr_names(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<Box<[u8]>>, Errno> {
    let mut first = [0u8; 512];
    let names = match list(&mut first) {
        Ok(0) | Err(Errno::NOTSUP | Errno::NOENT) => return Ok(Vec::new()),
        Ok(n) => first[..n].to_vec(),
        Err(Errno::RANGE) => grown(&list)?,
        Err(e) => return Err(e),
    };
    let names = names.split(|&b| b == 0);
    Ok(names
        .filter(|name| !name.is_empty())
        .map(Box::from)
        .collect())
}

/// The kernel limits names and values to 64 KiB each.
fn grown(call: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut size = 1 << 10;
    loop {
        let mut buf = vec![0; size];
        match call(&mut buf) {
            Ok(n) => {
                buf.truncate(n);
                return Ok(buf);
            }
            Err(Errno::RANGE) if size < 1 << 20 => size *= 4,
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_to_each_other() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\nnonsense\n:::\n:x:9:9::/:\nann:x:1002:7::/:\nann:x:1001:7::/:\nbob:x:1001:8::/:\n";
        let owners = Owners::of(passwd, b"root:x:0:\nstaff:x:50:ann,bob\n");
        let ids = |user, group| (owners.uid_of(user), owners.gid_of(group));
        assert_eq!(ids("ann", "staff"), (Some(1001), Some(50)));
        assert_eq!(ids("carol", "ann"), (None, None));
        assert_eq!(ids("", ""), (None, None));
        let owner = owners.get(1001, 51);
        assert_eq!((&*owner.user, &*owner.group), ("ann", ""));
    }
}
