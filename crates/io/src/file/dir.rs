//! Folders of the file system.

mod shared;
mod used;

use std::{
    fs::File,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RawDir},
    io::Errno,
};

use super::{
    FileDisk,
    flock::{FileLock, no_locks},
    group::GroupAccess,
    kind::no_file,
    make::{DIR_MODE, make_durably},
    rename::{NotRenamed, rename_new},
};
use crate::{
    Dir, DirEntry, Disk, Error, ErrorKind, Interruptions, LockGuard, LockKind, Result,
    batch::Batching,
    direct::DirectDisk,
    name::{check_name, join},
    unless_interrupted,
};

/// Bytes of the buffer into which the system lists names.
const LIST_BUFFER_BYTES: usize = 32 << 10;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const NO_WAY_TO_RENAME: &str = "this file system has no rename that leaves a taken name alone (RENAME_NOREPLACE), no hard links and no locks (flock): a repository needs one of the three";

/// A folder of the file system.
pub struct FileDir {
    fd: OwnedFd,
    path: String,
    access: FolderAccess,
    /// Name of the one folder within that may be a symbolic link.
    linked: Option<&'static str>,
}

/// How a folder opens disks, and which users may access those it creates.
#[derive(Clone, Copy, Default)]
struct FolderAccess {
    batching: Batching,
    direct: bool,
    group: GroupAccess,
}

impl FileDir {
    /// Opens an existing folder.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Denied`]; [`ErrorKind::TooManyOpen`]; [`ErrorKind::Device`] where `path`
    /// is no folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::open_at(
            rustix::fs::CWD,
            path,
            path.display().to_string(),
            FolderAccess::default(),
            OFlags::empty(),
        )
    }

    /// Opens a folder, and creates it and its missing parents where needed; the names of new folders are durable.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] or [`ErrorKind::NoSpace`] where a folder cannot be created; [`ErrorKind::Exists`] where a
    /// file has the name, [`ErrorKind::Device`] where a parent is a file; errors of a sync, and of
    /// [`open`](Self::open).
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        make_durably(path)
            .map_err(|e| Error::from_io("create folder", path.display().to_string(), e))?;
        Self::open(path)
    }

    /// This folder with another method for batches of its disks, and those of folders within.
    #[must_use]
    pub fn batched(mut self, batching: Batching) -> Self {
        self.access.batching = batching;
        self
    }

    /// This folder with access past the page cache for its disks, and those of folders within, where the file system
    /// allows it (see [`DirectDisk`]).
    #[must_use]
    pub fn direct(mut self) -> Self {
        self.access.direct = true;
        self
    }

    /// This folder, in which the folder `name`, and no other, may be a symbolic link of our own, for example to a
    /// faster disk. Folders within that one may not be links.
    #[must_use]
    pub fn linked(mut self, name: &'static str) -> Self {
        self.linked = Some(name);
        self
    }

    /// The path with which the folder was opened.
    pub fn path(&self) -> &Path {
        Path::new(&self.path)
    }

    fn open_at(
        parent: impl std::os::fd::AsFd,
        path: impl rustix::path::Arg + Copy,
        shown: String,
        access: FolderAccess,
        follow: OFlags,
    ) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | follow;
        let open =
            || unless_interrupted(|| rustix::fs::openat(&parent, path, flags, Mode::empty()));
        match access.group.patiently(open) {
            Ok(fd) => Ok(Self {
                fd,
                path: shown,
                access,
                linked: None,
            }),
            Err(e) => Err(Error::from_io("open folder", shown, e)),
        }
    }

    fn open_file(&self, op: &'static str, name: &str, flags: OFlags) -> Result<File> {
        check_name(op, &self.path, name)?;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = || {
            let open = || rustix::fs::openat(&self.fd, name, flags, FILE_MODE);
            unless_interrupted(open).map(File::from)
        };
        let opened = self.access.group.patiently(open);
        let file = opened.map_err(|e| self.say_if_no_file(op, name, e))?;
        if flags.contains(OFlags::EXCL) {
            self.access.group.give(&file, self.fd.as_fd());
        }
        Ok(file)
    }

    fn open_disk(&self, op: &'static str, name: &str, flags: OFlags) -> Result<Arc<dyn Disk>> {
        // NONBLOCK: a FIFO in the folder must not make the engine wait for a writer.
        let file = self.open_file(op, name, flags | OFlags::NONBLOCK)?;
        let stat = rustix::fs::fstat(&file).map_err(|e| self.fail(op, name, e))?;
        if let Some(what) = no_file(FileType::from_raw_mode(stat.st_mode)) {
            return Err(Error::new(
                op,
                join(&self.path, name),
                ErrorKind::NotAFile,
                what,
            ));
        }
        // NONBLOCK ends here: io_uring of some kernels takes it for a wish not to wait for the device, and answers
        // EAGAIN to every read.
        rustix::fs::fcntl_setfl(&file, OFlags::empty()).map_err(|e| self.fail(op, name, e))?;
        let disk = FileDisk::new(file, join(&self.path, name))?.batched(self.access.batching);
        if !self.access.direct {
            return Ok(Arc::new(disk));
        }
        Ok(match DirectDisk::over(disk) {
            Ok(direct) => Arc::new(direct),
            Err(cached) => Arc::new(cached),
        })
    }

    fn fail(&self, op: &'static str, name: &str, errno: Errno) -> Error {
        Error::from_io(op, join(&self.path, name), errno)
    }

    /// The error for a name that cannot be opened; where the name is that of no file, it says so.
    fn say_if_no_file(&self, op: &'static str, name: &str, errno: Errno) -> Error {
        let error = self.fail(op, name, errno);
        // the errnos for a folder, a link that is not followed, a socket
        if !matches!(errno, Errno::ISDIR | Errno::LOOP | Errno::NXIO) {
            return error;
        }
        let stat = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        match stat.map(|stat| no_file(FileType::from_raw_mode(stat.st_mode))) {
            Ok(Some(what)) => Error::new(op, error.path, ErrorKind::NotAFile, what),
            _ => error,
        }
    }

    fn fail_rename(&self, from: &str, to: &str, why: NotRenamed) -> Error {
        match why {
            NotRenamed::From(errno) => self.fail("rename", from, errno),
            NotRenamed::To(errno) => self.fail("rename", to, errno),
            NotRenamed::NoWay(errno) => Error {
                kind: ErrorKind::Device,
                what: NO_WAY_TO_RENAME.into(),
                ..self.fail("rename", from, errno)
            },
        }
    }

    /// The entry of a listed name; `None` where it is gone. The name is looked up only where the file system does not
    /// list its kind. A name that cannot be looked up is listed all the same: opening it returns the error.
    fn entry(&self, name: &str, listed_as: FileType) -> Option<DirEntry> {
        let mut kind = listed_as;
        if kind == FileType::Unknown {
            match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => kind = FileType::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => return None,
                Err(_) => {}
            }
        }
        Some(DirEntry {
            name: name.to_owned(),
            is_dir: kind == FileType::Directory,
        })
    }

    fn open_lock_file(&self, name: &str) -> Result<File> {
        // NONBLOCK: a pipe must not make the locking process wait, either.
        let wanted = OFlags::RDWR | OFlags::NONBLOCK;
        let denied = loop {
            let there = match self.open_file("lock", name, wanted) {
                Err(e) if e.kind == ErrorKind::NotFound => None,
                other => Some(other),
            };
            let flags = wanted | OFlags::CREATE | OFlags::EXCL;
            match there.unwrap_or_else(|| self.open_file("lock", name, flags)) {
                Err(e) if e.kind == ErrorKind::Exists => {}
                // a folder can be locked by a descriptor for reading
                Err(e) if matches!(e.kind, ErrorKind::Denied | ErrorKind::NotAFile) => break e,
                other => return other,
            }
        };
        match self.open_file("lock", name, OFlags::RDONLY | OFlags::NONBLOCK) {
            // the error is that the file may not be created, not that it is missing
            Err(e) if e.kind == ErrorKind::NotFound => Err(denied),
            other => other,
        }
    }

    /// The flags for opening a folder within: a symbolic link is followed only where [`FileDir::linked`] names it and
    /// it is our own. Any other link may lead anywhere, and the files there are not ours to remove.
    fn follow(&self, name: &str) -> OFlags {
        let is_own = || match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat.st_uid == rustix::process::geteuid().as_raw(),
            Err(_) => false,
        };
        if self.linked == Some(name) && is_own() {
            OFlags::empty()
        } else {
            OFlags::NOFOLLOW
        }
    }

    /// The error for a folder that could not be opened; where the cause is a link that is not followed, or that leads
    /// to no folder, it says so.
    fn say_if_link(&self, name: &str, is_followed: bool, error: Error) -> Error {
        let stat = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_link =
            stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
        let errno = error.source.as_ref().and_then(|e| e.raw_os_error());
        let what = match errno.map(Errno::from_raw_os_error) {
            _ if !is_link => return error,
            _ if !is_followed => "a symbolic link, which is not followed here",
            Some(Errno::NOENT) => "a symbolic link that leads nowhere: its target does not exist",
            Some(Errno::NOTDIR) => "a symbolic link whose target is no folder",
            Some(Errno::LOOP) => "a symbolic link that leads back to itself",
            // the link's target cannot be opened, and the error says why
            _ => return error,
        };
        Error {
            what: what.into(),
            ..error
        }
    }

    /// Whether `name` still belongs to the file that was opened, so that a lock on it is of use.
    fn is_still(&self, name: &str, file: &File) -> Result<bool> {
        let held = rustix::fs::fstat(file).map_err(|e| self.fail("lock", name, e))?;
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(self.fail("lock", name, e)),
        }
    }
}

impl Dir for FileDir {
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.open_disk("open", name, OFlags::RDONLY)
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.open_disk("open", name, OFlags::RDWR)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.open_disk("create", name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name("rename", &self.path, from)?;
        check_name("rename", &self.path, to)?;
        rustix::fs::renameat(&self.fd, from, &self.fd, to).map_err(|e| self.fail("rename", from, e))
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        check_name("rename", &self.path, from)?;
        check_name("rename", &self.path, to)?;
        rename_new(self.fd.as_fd(), from, to).map_err(|why| self.fail_rename(from, to, why))
    }

    fn remove(&self, name: &str) -> Result<()> {
        check_name("remove", &self.path, name)?;
        rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())
            .map_err(|e| self.fail("remove", name, e))
    }

    /// Lists the entries. Names that are not UTF-8 are not the engine's and are left out.
    fn list(&self) -> Result<Vec<DirEntry>> {
        let fail = |e| Error::from_io("list", &self.path, e);
        let mut entries = Vec::new();
        // A new handle: other threads may be listing the folder.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&self.fd, ".", flags, Mode::empty());
        let fd = unless_interrupted(open).map_err(fail)?;
        let mut buf = [MaybeUninit::uninit(); LIST_BUFFER_BYTES];
        let mut names = RawDir::new(&fd, &mut buf);
        let mut interruptions = Interruptions::default();
        while let Some(item) = names.next() {
            let item = match item {
                Err(Errno::INTR) if interruptions.allow() => continue,
                item => item.map_err(fail)?,
            };
            match item.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => entries.extend(self.entry(name, item.file_type())),
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn len_of(&self, name: &str) -> Result<u64> {
        check_name("look at", &self.path, name)?;
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(stat.st_size as u64),
            Err(e) => Err(self.fail("look at", name, e)),
        }
    }

    fn used_ns(&self, name: &str) -> Result<u64> {
        check_name("look at", &self.path, name)?;
        used::time_ns(&self.fd, name).map_err(|e| self.fail("look at", name, e))
    }

    fn mark_used(&self, name: &str) {
        if check_name("mark", &self.path, name).is_ok() {
            used::mark(&self.fd, name);
        }
    }

    fn sync(&self) -> Result<()> {
        match rustix::fs::fsync(&self.fd) {
            Ok(()) | Err(Errno::INVAL) => Ok(()), // INVAL: a file system whose folders need no sync
            Err(e) => Err(Error::from_io("sync folder", &self.path, e)),
        }
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        check_name("create folder", &self.path, name)?;
        let make = || rustix::fs::mkdirat(&self.fd, name, DIR_MODE);
        match self.access.group.patiently(make) {
            Ok(()) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = rustix::fs::openat(&self.fd, name, flags, Mode::empty())
                    .map_err(|e| self.fail("create folder", name, e))?;
                self.access.group.give(&File::from(made), self.fd.as_fd());
                self.open_subdir(name)
            }
            Err(Errno::EXIST) => self.open_subdir(name),
            Err(e) => Err(self.fail("create folder", name, e)),
        }
    }

    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        check_name("open folder", &self.path, name)?;
        let (path, follow) = (join(&self.path, name), self.follow(name));
        match Self::open_at(&self.fd, name, path, self.access, follow) {
            Ok(dir) => Ok(Arc::new(dir)),
            Err(error) => Err(self.say_if_link(name, follow.is_empty(), error)),
        }
    }

    fn remove_subdir(&self, name: &str) -> Result<()> {
        check_name("remove folder", &self.path, name)?;
        rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
            .map_err(|e| self.fail("remove folder", name, e))
    }

    /// Locks by `flock` on a file description of its own, so that two handles of one process conflict, too.
    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>> {
        let lock = self.lock_file(name, kind)?;
        Ok(lock.map(|lock| Box::new(lock) as Box<dyn LockGuard>))
    }
}

impl FileDir {
    fn lock_file(&self, name: &str, kind: LockKind) -> Result<Option<FileLock>> {
        let operation = match kind {
            LockKind::Shared => FlockOperation::NonBlockingLockShared,
            LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        loop {
            let file = self.open_lock_file(name)?;
            match unless_interrupted(|| rustix::fs::flock(&file, operation)) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(e @ (Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP)) => {
                    return Err(no_locks(self.fail("lock", name, e)));
                }
                Err(e) => return Err(self.fail("lock", name, e)),
            }
            if self.is_still(name, &file)? {
                return Ok(Some(FileLock(file)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_lock_is_free_though_a_starting_process_has_a_copy_of_its_file() {
        let temp = tempfile::tempdir().unwrap();
        let dir = FileDir::open(temp.path()).unwrap();
        let lock = dir.lock_file("l", LockKind::Exclusive).unwrap().unwrap();
        let _copy = lock.0.try_clone().unwrap();
        assert!(dir.lock("l", LockKind::Exclusive).unwrap().is_none());
        drop(lock);
        assert!(dir.lock("l", LockKind::Exclusive).unwrap().is_some());
    }

    #[test]
    fn files_wait_for_their_device() {
        let temp = tempfile::tempdir().unwrap();
        let cached = FileDir::open(temp.path()).unwrap();
        let direct = FileDir::open(temp.path()).unwrap().direct();
        let flags = |disk: &Arc<dyn Disk>| {
            let file = disk.batch_file().expect("a file").file;
            rustix::fs::fcntl_getfl(file).unwrap()
        };
        for (dir, name) in [(&cached, "a"), (&direct, "b")] {
            let made = dir.create(name).unwrap();
            for disk in [made, dir.open(name).unwrap(), dir.open_write(name).unwrap()] {
                assert!(!flags(&disk).contains(OFlags::NONBLOCK));
            }
        }
    }

    #[test]
    fn a_listed_name_is_looked_at_only_where_its_kind_was_not_listed() {
        let temp = tempfile::tempdir().unwrap();
        let dir = FileDir::open(temp.path()).unwrap();
        dir.subdir("folder").unwrap();
        dir.create("file").unwrap();
        let is_dir = |name, kind| dir.entry(name, kind).map(|entry| entry.is_dir);
        assert_eq!(is_dir("folder", FileType::Unknown), Some(true));
        assert_eq!(is_dir("file", FileType::Unknown), Some(false));
        assert_eq!(is_dir("gone", FileType::Unknown), None);
        // the kinds come from the listing: a look-up would have found no name
        assert_eq!(is_dir("gone", FileType::RegularFile), Some(false));
        assert_eq!(is_dir("gone", FileType::Directory), Some(true));
    }
}
