//! Files and folders of the operating system.
//!
//! A [`FileDir`] holds its folder open, so that renaming a parent does not lead it elsewhere. A handle that was opened stays readable
//! after its file is removed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, RenameFlags};

use crate::{Dir, DirEntry, Disk, Error, ErrorKind, LockGuard, LockKind, Result};

/// A file: reads and writes go through the page cache.
pub struct FileDisk {
    file: File,
    path: PathBuf,
}

impl FileDisk {
    /// An existing file or block device, for reading only.
    pub fn open(path: &Path) -> Result<Self> {
        Self::with(path, "open", OpenOptions::new().read(true))
    }

    fn with(path: &Path, op: &'static str, options: &OpenOptions) -> Result<Self> {
        let file = options
            .open(path)
            .map_err(|error| failed(op, path, None, error))?;
        Ok(Self {
            file,
            path: path.into(),
        })
    }

    fn failed(&self, op: &'static str, offset: Option<u64>, error: io::Error) -> Error {
        failed(op, &self.path, offset, error)
    }
}

impl Disk for FileDisk {
    fn len(&self) -> Result<u64> {
        use std::io::{Seek, SeekFrom};
        let meta = self
            .file
            .metadata()
            .map_err(|error| self.failed("stat", None, error))?;
        if meta.is_file() {
            return Ok(meta.len());
        }
        (&self.file)
            .seek(SeekFrom::End(0))
            .map_err(|error| self.failed("seek", None, error))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => return Err(short(&self.path, offset, buf.len(), done)),
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("read", Some(offset + done as u64), error)),
            }
        }
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file
            .write_all_at(data, offset)
            .map_err(|error| self.failed("write", Some(offset), error))
    }

    fn sync(&self) -> Result<()> {
        self.file
            .sync_data()
            .map_err(|error| self.failed("sync", None, error))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file
            .set_len(len)
            .map_err(|error| self.failed("truncate", Some(len), error))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        match fallocate(
            &self.file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            offset,
            len,
        ) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(self.failed("discard", Some(offset), error.into())),
        }
    }
}

/// A folder of the operating system.
pub struct FileDir {
    folder: File,
    path: PathBuf,
}

impl FileDir {
    /// An existing folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let folder = File::open(path).map_err(|error| failed("open", path, None, error))?;
        match folder.metadata() {
            Ok(meta) if meta.is_dir() => Ok(Self {
                folder,
                path: path.into(),
            }),
            Ok(_) => Err(failed(
                "open",
                path,
                None,
                io::ErrorKind::NotADirectory.into(),
            )),
            Err(error) => Err(failed("open", path, None, error)),
        }
    }

    /// The folder, made with its parents where it is missing.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        fs::create_dir_all(path).map_err(|error| failed("create", path, None, error))?;
        Self::open(path)
    }

    /// Where the folder is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn within(&self, op: &'static str, name: &str) -> Result<PathBuf> {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(failed(
                op,
                &self.path.join(name),
                None,
                io::ErrorKind::InvalidInput.into(),
            ));
        }
        Ok(self.path.join(name))
    }
}

impl Dir for FileDir {
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>> {
        let path = self.within("open", name)?;
        Ok(Arc::new(FileDisk::open(&path)?))
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>> {
        let path = self.within("open", name)?;
        Ok(Arc::new(FileDisk::with(
            &path,
            "open",
            OpenOptions::new().read(true).write(true),
        )?))
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Disk>> {
        let path = self.within("create", name)?;
        Ok(Arc::new(FileDisk::with(
            &path,
            "create",
            OpenOptions::new().read(true).write(true).create_new(true),
        )?))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.within("rename", from)?, self.within("rename", to)?);
        fs::rename(&from, &to).map_err(|error| failed("rename", &from, None, error))
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.within("rename", from)?, self.within("rename", to)?);
        match rustix::fs::renameat_with(
            rustix::fs::CWD,
            &from,
            rustix::fs::CWD,
            &to,
            RenameFlags::NOREPLACE,
        ) {
            Ok(()) => return Ok(()),
            Err(
                rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP,
            ) => {}
            Err(error) => return Err(failed("rename", &to, None, error.into())),
        }
        // A file system without RENAME_NOREPLACE: a hard link fails where the name is taken, too.
        fs::hard_link(&from, &to).map_err(|error| failed("rename", &to, None, error))?;
        fs::remove_file(&from).map_err(|error| failed("rename", &from, None, error))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.within("remove", name)?;
        fs::remove_file(&path).map_err(|error| failed("remove", &path, None, error))
    }

    fn list(&self) -> Result<Vec<DirEntry>> {
        let fault = |error| failed("list", &self.path, None, error);
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let meta = match entry.metadata() {
                Ok(meta) => meta,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(fault(error)),
            };
            // A name that is not UTF-8 is none of ours.
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let is_dir = meta.is_dir();
            entries.push(DirEntry {
                name,
                len: if is_dir { 0 } else { meta.len() },
                is_dir,
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn sync(&self) -> Result<()> {
        self.folder
            .sync_all()
            .map_err(|error| failed("sync", &self.path, None, error))
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        let path = self.within("create", name)?;
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(failed("create", &path, None, error))
            }
            _ => Ok(Arc::new(Self::open(path)?)),
        }
    }

    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Arc::new(Self::open(self.within("open", name)?)?))
    }

    fn remove_subdir(&self, name: &str) -> Result<()> {
        let path = self.within("remove", name)?;
        fs::remove_dir(&path).map_err(|error| failed("remove", &path, None, error))
    }

    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>> {
        let path = self.within("lock", name)?;
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .clone();
        let file = options
            .open(&path)
            .map_err(|error| failed("lock", &path, None, error))?;
        let operation = match kind {
            LockKind::Shared => FlockOperation::NonBlockingLockShared,
            LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        match rustix::fs::flock(&file, operation) {
            Ok(()) => Ok(Some(Box::new(FileLock { _file: file }))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(failed("lock", &path, None, error.into())),
        }
    }
}

/// An open file description with a flock on it: closing it, in whatever way, frees the lock.
struct FileLock {
    _file: File,
}

impl LockGuard for FileLock {}

fn short(path: &Path, offset: u64, wanted: usize, found: usize) -> Error {
    let what = format!("{wanted} bytes wanted, found {found}");
    Error {
        op: "read",
        path: path.display().to_string(),
        offset: Some(offset),
        kind: ErrorKind::Short,
        what,
        source: None,
    }
}

/// What the system said of `op` on `path`, sorted into what callers tell apart.
pub(crate) fn failed(
    op: &'static str,
    path: &Path,
    offset: Option<u64>,
    error: io::Error,
) -> Error {
    use io::ErrorKind as Std;
    let (kind, what) = match error.kind() {
        Std::NotFound => (ErrorKind::NotFound, "no such file or folder"),
        Std::AlreadyExists => (ErrorKind::Exists, "the name is taken"),
        Std::StorageFull | Std::QuotaExceeded => (ErrorKind::NoSpace, "no space left"),
        Std::PermissionDenied | Std::ReadOnlyFilesystem => (ErrorKind::Denied, "not permitted"),
        Std::UnexpectedEof => (ErrorKind::Short, "the file ends early"),
        _ => (ErrorKind::Device, "the system refused"),
    };
    Error {
        op,
        path: path.display().to_string(),
        offset,
        kind,
        what: what.into(),
        source: Some(error),
    }
}
