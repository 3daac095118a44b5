//! Reads metadata of the user's files: stat, names of owners, targets of links, extended attributes and ACLs.
//!
//! All paths are relative to an open folder, so that no path is too long and no rename on the way leads elsewhere. ACLs
//! are the attributes `system.posix_acl_access` and `system.posix_acl_default`: they need no code of their own.

mod owners;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

pub use owners::Owners;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, makedev};
use rustix::io::Errno;

use crate::{Entry, Error, Kind, Time, Xattrs};

/// Largest number of bytes of extended attributes that one entry keeps, names and values: some entries with as many are
/// on their way at once. Most file systems have room for a few KiB; XFS, btrfs and ZFS for 65,536 bytes in each of more
/// than a thousand attributes.
pub const XATTRS_BYTES_MAX: usize = 4 << 20;
/// Error of an entry with more attributes than that; no call on attributes returns it.
const TOO_MANY_XATTRS: Errno = Errno::FBIG;
/// Error where `/proc` is not mounted, which leads to the attributes; no call on attributes returns it.
const NO_WAY_TO_XATTRS: Errno = Errno::NXIO;

/// The result of `stat`, as far as snapshots keep it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Kind of the file.
    pub kind: Kind,
    /// The lower twelve mode bits.
    pub mode: u16,
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// Size in bytes.
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
    /// Number of the file system.
    pub device: u64,
    /// Number of hard links.
    pub links: u64,
    /// Number of the device, for devices.
    pub rdev: u64,
}

impl Stat {
    /// Looks at `name` in `dir`; a symbolic link itself is looked at unless `follow`.
    ///
    /// # Errors
    /// Errors of `fstatat`: `NOENT`, `ACCESS`, `NAMETOOLONG` …
    pub fn at(dir: impl AsFd, name: &[u8], follow: bool) -> Result<Self, Errno> {
        let flags = if follow {
            AtFlags::empty()
        } else {
            AtFlags::SYMLINK_NOFOLLOW
        };
        rustix::fs::statat(dir, name, flags).map(Self::from_system)
    }

    /// Returns the file system of `name` in `dir`, also where the rest of `stat` is not available: for a mount whose
    /// owner keeps others out, or whose program has died.
    ///
    /// # Errors
    /// Errors of `statx`.
    pub fn device_at(dir: impl AsFd, name: &[u8]) -> Result<u64, Errno> {
        // FUSE refuses requests with a mask, and waits for a program to answer them: the mask stays empty.
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        let about = rustix::fs::statx(dir, name, flags, StatxFlags::empty())?;
        Ok(makedev(about.stx_dev_major, about.stx_dev_minor))
    }

    /// Makes the `stat` of a thing that is there but cannot be looked at.
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

    /// Looks at an open file.
    ///
    /// # Errors
    /// Errors of `fstat`, for example of a server that is gone.
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

    /// Whether the content is unchanged, as far as times tell. Another ctime does not count: the owner, the mode or the
    /// number of names may have changed. A caller that relies on this keeps the earlier ctime, so that the next backup
    /// finds a writer who put the time of change back.
    pub fn same_content(&self, other: &Stat) -> bool {
        let looks = |stat: &Stat| (stat.inode, stat.device, stat.size, stat.mtime);
        looks(self) == looks(other)
    }

    /// Makes an entry with all properties from `stat`; target, attributes, time of access and content are missing.
    pub fn entry(&self, name: Vec<u8>, owners: &Owners) -> Entry {
        let mut entry = Entry::owned_by(owners.get(self.uid, self.gid), name, self.kind);
        self.tell(&mut entry, owners);
        entry
    }

    /// Sets the entry's properties from this `stat`.
    pub fn tell(&self, entry: &mut Entry, owners: &Owners) {
        (entry.kind, entry.mode) = (self.kind, self.mode);
        if (entry.owner.uid, entry.owner.gid) != (self.uid, self.gid) {
            entry.owner = owners.get(self.uid, self.gid);
        }
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

/// Returns the target of a symbolic link.
///
/// # Errors
/// Errors of `readlinkat`: `INVAL` where the name is no link (any more), `NOENT` …
pub fn link_target(dir: impl AsFd, name: &[u8]) -> Result<Vec<u8>, Errno> {
    rustix::fs::readlinkat(dir, name, Vec::with_capacity(256)).map(|target| target.into_bytes())
}

/// Makes the error of attributes of `path` that cannot be had.
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

/// Reads the extended attributes of an open file or folder; none where the file system has none.
///
/// # Errors
/// `FBIG`: there are more than [`XATTRS_BYTES_MAX`]. Others of the system; [`xattrs_error`] puts them in words.
pub fn xattrs_of(fd: BorrowedFd<'_>) -> Result<Xattrs, Errno> {
    let list = |buf: &mut [u8]| rustix::fs::flistxattr(fd, buf);
    collect(list, |name, buf| rustix::fs::fgetxattr(fd, name, buf))
}

/// Reads the extended attributes of `name` in `dir`, also where that is a link or cannot be opened; none where it is
/// gone.
///
/// # Errors
/// Errors of [`xattrs_of`]; `NXIO` where `/proc` is not mounted and `name` is no folder that can be opened.
pub fn xattrs_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Xattrs, Errno> {
    // This quick check takes a quarter of the time.
    if onefold_io::os::has_no_attributes(dir, name) {
        return Ok(Xattrs::new());
    }
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

/// Returns a path by which calls without folder descriptors reach `name` in `dir`, at any depth.
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

/// Returns the names that `list` writes, each with a zero behind it; none where the file system has no attributes.
///
/// # Errors
/// Errors of `list`, `RANGE` at 1 MiB only.
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

/// Calls again with a larger buffer. The kernel limits names and values to 64 KiB each.
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
