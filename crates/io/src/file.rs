//! Disks and folders of the operating system, through its page cache: `pread`, `pwrite`, `fdatasync`.
//!
//! Always holds: names stay within their folder, which is held open (a renamed parent changes nothing); a `sync` that failed once fails for
//! ever, because the kernel forgets which pages it lost; nothing is created that others may read (mode 0600, folders 0700).

use std::{
    fs::File,
    os::{fd::OwnedFd, unix::fs::FileExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fs::{AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags},
    io::Errno,
};

use crate::{
    Dir, DirEntry, Disk, Error, ErrorKind, LockGuard, LockKind, Result,
    name::{check_name, join},
    read_fully::read_fully,
};

const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const DIR_MODE: Mode = Mode::RWXU;

/// A file or a block device.
pub struct FileDisk {
    file: File,
    path: String,
    sync_failed: AtomicBool,
}

impl FileDisk {
    /// An existing file or block device anywhere, for reading only.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_path(path, false)
    }

    /// An existing file or block device anywhere, for reading and writing.
    pub fn open_write(path: &Path) -> Result<Self> {
        Self::open_path(path, true)
    }

    fn open_path(path: &Path, writable: bool) -> Result<Self> {
        let shown = path.display().to_string();
        let file = File::options()
            .read(true)
            .write(writable)
            .open(path)
            .map_err(|e| Error::from_io("open", &shown, e))?;
        Self::new(file, shown)
    }

    fn new(file: File, path: String) -> Result<Self> {
        let kind = file
            .metadata()
            .map_err(|e| Error::from_io("open", &path, e))?
            .file_type();
        if kind.is_dir() {
            return Err(Error::new("open", path, ErrorKind::Device, "is a folder"));
        }
        Ok(Self {
            file,
            path,
            sync_failed: AtomicBool::new(false),
        })
    }

    fn fail(&self, op: &'static str, source: impl Into<std::io::Error>) -> Error {
        Error::from_io(op, &self.path, source)
    }
}

impl Disk for FileDisk {
    fn len(&self) -> Result<u64> {
        let stat = rustix::fs::fstat(&self.file).map_err(|e| self.fail("stat", e))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
            return rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))
                .map_err(|e| self.fail("seek", e));
        }
        Ok(stat.st_size as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        match read_fully(buf, offset, |part, at| self.file.read_at(part, at)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::short(
                &self.path,
                offset,
                buf.len(),
                self.len().unwrap_or(0),
            )),
            Err(e) => Err(self.fail("read", e).at(offset)),
        }
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file
            .write_all_at(data, offset)
            .map_err(|e| self.fail("write", e).at(offset))
    }

    fn sync(&self) -> Result<()> {
        if self.sync_failed.load(Ordering::Acquire) {
            return Err(Error::new(
                "sync",
                &self.path,
                ErrorKind::Device,
                "an earlier sync failed, so bytes may be lost",
            ));
        }
        rustix::fs::fdatasync(&self.file).map_err(|e| {
            self.sync_failed.store(true, Ordering::Release);
            self.fail("sync", e)
        })
    }

    fn set_len(&self, len: u64) -> Result<()> {
        rustix::fs::ftruncate(&self.file, len).map_err(|e| self.fail("set length of", e))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(
            &self.file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            offset,
            len,
        ) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(e) => Err(self.fail("discard", e).at(offset)),
        }
    }
}

/// A folder of the file system.
pub struct FileDir {
    fd: OwnedFd,
    path: String,
}

impl FileDir {
    /// An existing folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::open_at(rustix::fs::CWD, path, path.display().to_string())
    }

    /// A folder that is made where it is missing, with its missing parents.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(DIR_MODE.bits())
            .create(path)
            .map_err(|e| Error::from_io("create folder", path.display().to_string(), e))?;
        Self::open(path)
    }

    /// The path that it was opened with.
    pub fn path(&self) -> &Path {
        Path::new(&self.path)
    }

    fn open_at(
        parent: impl std::os::fd::AsFd,
        path: impl rustix::path::Arg,
        shown: String,
    ) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(parent, path, flags, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, path: shown }),
            Err(e) => Err(Error::from_io("open folder", shown, e)),
        }
    }

    fn open_file(&self, op: &'static str, name: &str, flags: OFlags) -> Result<File> {
        check_name(op, &self.path, name)?;
        rustix::fs::openat(
            &self.fd,
            name,
            flags | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            FILE_MODE,
        )
        .map(File::from)
        .map_err(|e| self.fail(op, name, e))
    }

    fn open_disk(&self, op: &'static str, name: &str, flags: OFlags) -> Result<Arc<dyn Disk>> {
        // NONBLOCK: a FIFO in the folder must not make the engine wait for a writer.
        let file = self.open_file(op, name, flags | OFlags::NONBLOCK)?;
        Ok(Arc::new(FileDisk::new(file, join(&self.path, name))?))
    }

    fn fail(&self, op: &'static str, name: &str, errno: Errno) -> Error {
        Error::from_io(op, join(&self.path, name), errno)
    }

    /// For file systems without `RENAME_NOREPLACE` (NFS, some FUSE ones). A crash between leaves the disk under both names.
    fn link_and_unlink(&self, from: &str, to: &str) -> Result<()> {
        rustix::fs::linkat(&self.fd, from, &self.fd, to, AtFlags::empty())
            .map_err(|e| self.fail("rename", to, e))?;
        rustix::fs::unlinkat(&self.fd, from, AtFlags::empty())
            .map_err(|e| self.fail("rename", from, e))
    }

    fn entry(&self, name: &str) -> Result<Option<DirEntry>> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
                Ok(Some(DirEntry {
                    name: name.to_owned(),
                    len: if is_dir { 0 } else { stat.st_size as u64 },
                    is_dir,
                }))
            }
            Err(Errno::NOENT) => Ok(None), // removed since it was read
            Err(e) => Err(self.fail("stat", name, e)),
        }
    }

    fn open_lock_file(&self, name: &str) -> Result<File> {
        match self.open_file("lock", name, OFlags::RDWR | OFlags::CREATE) {
            Err(e) if e.kind == ErrorKind::Denied => self.open_file("lock", name, OFlags::RDONLY),
            other => other,
        }
    }

    /// Whether `name` is still the file that was opened, so that a lock on it means something.
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
        match rustix::fs::renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.link_and_unlink(from, to),
            done => {
                done.map_err(|e| self.fail("rename", if e == Errno::EXIST { to } else { from }, e))
            }
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        check_name("remove", &self.path, name)?;
        rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())
            .map_err(|e| self.fail("remove", name, e))
    }

    /// Names that are not UTF-8 are not the engine's and are left out.
    fn list(&self) -> Result<Vec<DirEntry>> {
        let fail = |e| Error::from_io("list", &self.path, e);
        let mut entries = Vec::new();
        for item in rustix::fs::Dir::read_from(&self.fd).map_err(fail)? {
            let item = item.map_err(fail)?;
            match item.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => entries.extend(self.entry(name)?),
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn sync(&self) -> Result<()> {
        match rustix::fs::fsync(&self.fd) {
            Ok(()) | Err(Errno::INVAL) => Ok(()), // INVAL: a file system whose folders need no sync
            Err(e) => Err(Error::from_io("sync folder", &self.path, e)),
        }
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        check_name("create folder", &self.path, name)?;
        match rustix::fs::mkdirat(&self.fd, name, DIR_MODE) {
            Ok(()) | Err(Errno::EXIST) => self.open_subdir(name),
            Err(e) => Err(self.fail("create folder", name, e)),
        }
    }

    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        check_name("open folder", &self.path, name)?;
        Ok(Arc::new(Self::open_at(
            &self.fd,
            name,
            join(&self.path, name),
        )?))
    }

    fn remove_subdir(&self, name: &str) -> Result<()> {
        check_name("remove folder", &self.path, name)?;
        rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
            .map_err(|e| self.fail("remove folder", name, e))
    }

    /// By `flock` on a file description of its own, so that two handles of one process conflict too.
    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>> {
        let operation = match kind {
            LockKind::Shared => FlockOperation::NonBlockingLockShared,
            LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        loop {
            let file = self.open_lock_file(name)?;
            match rustix::fs::flock(&file, operation) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(e) => return Err(self.fail("lock", name, e)),
            }
            if self.is_still(name, &file)? {
                return Ok(Some(Box::new(FileLock { _file: file })));
            }
        }
    }
}

/// Closing the file frees the lock.
struct FileLock {
    _file: File,
}

impl LockGuard for FileLock {}
