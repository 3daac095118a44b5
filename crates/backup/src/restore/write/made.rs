//! Files that this restore has made, opened again by their names. Other users who may write in the target may have put
//! something else there meanwhile, which is left alone.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::Kind;
use crate::meta::Stat;
use crate::path::split;
use crate::restore::window::Made;

/// Types of file systems where a file's inode number may change while it is not open: FAT, exFAT, FUSE, CIFS and SMB.
const WITHOUT_INODES: [u32; 5] = [0x4d44, 0x2011_bab0, 0x6573_5546, 0xff53_4d42, 0xfe53_4d42];

/// Opens a file that was made before and is or will be called `name`, if it is still the one that was made. `STALE`:
/// the name leads to another file. `NOENT`: it leads to none.
pub fn reopen(dir: &OwnedFd, name: &[u8], made: Made) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let name = made.place.name(name);
    let fd = rustix::fs::openat(dir, &name[..], flags, Mode::empty())?;
    if !is_it(&fd, &name, made.inode)? {
        return Err(Errno::STALE);
    }
    rustix::fs::fcntl_setfl(&fd, OFlags::empty())?;
    Ok(fd)
}

/// Whether the open file has this inode; where inodes say nothing, whether it has exactly this name.
fn is_it(fd: &OwnedFd, name: &[u8], inode: u64) -> Result<bool, Errno> {
    let there = Stat::of(fd)?;
    if there.kind != Kind::File || there.inode == inode {
        return Ok(there.kind == Kind::File);
    }
    let system = rustix::fs::fstatfs(fd)?.f_type as u32;
    Ok(there.links == 1 && WITHOUT_INODES.contains(&system) && is_called(fd, name))
}

/// Whether the system calls the open file by this name: where case does not count, it may have been opened by another.
fn is_called(fd: &OwnedFd, name: &[u8]) -> bool {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    // Without /proc that is not known, and the name counts as the same.
    rustix::fs::readlink(link, Vec::new()).map_or(true, |path| split(path.as_bytes()).1 == name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::restore::temporary::CurrentName;

    /// Another user who may write in the target swaps a file that a restore has made, before it is opened again.
    #[test]
    fn only_what_was_made_is_opened_again() {
        let outer = tempfile::tempdir().expect("tempdir");
        let path = |name: &str| outer.path().join(name);
        fs::write(path("outside"), "not ours").expect("write");
        fs::write(path("file"), "ours").expect("write");
        let dir = OwnedFd::from(fs::File::open(outer.path()).expect("open"));
        let inode = Stat::at(&dir, b"file", false).expect("stat").inode;
        let place = CurrentName::Own;
        let made = Made { inode, place };
        assert!(reopen(&dir, b"file", made).is_ok());
        let open = OwnedFd::from(fs::File::open(path("file")).expect("open"));
        assert!(is_called(&open, b"file") && !is_called(&open, b"FILE"));
        fs::rename(path("file"), path("ours")).expect("rename");
        fs::hard_link(path("outside"), path("file")).expect("link");
        assert_eq!(reopen(&dir, b"file", made).err(), Some(Errno::STALE));
        fs::remove_file(path("file")).expect("remove");
        let node = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(&dir, "file", node, Mode::RUSR | Mode::WUSR, 0).expect("mkfifo");
        // Opening a pipe does not wait for a reader.
        assert_eq!(reopen(&dir, b"file", made).err(), Some(Errno::NXIO));
        fs::remove_file(path("file")).expect("remove");
        std::os::unix::fs::symlink("ours", path("file")).expect("link");
        assert_eq!(reopen(&dir, b"file", made).err(), Some(Errno::LOOP));
    }
}
