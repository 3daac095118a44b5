//! Disks and folders in RAM: nothing is durable, nothing fails. For tests, and for indexes that live in RAM alone.
//!
//! Invariant: the behaviour of [`Disk`] and [`Dir`] is that of [`file`](crate::file) (one conformance suite proves
//! it); clones of a [`MemDir`] are the same folder; holes cost no RAM.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::{
    Dir, DirEntry, Disk, Error, ErrorKind, LockGuard, LockKind, Result,
    lock::LockState,
    name::{check_name, join},
    pages::SparseBytes,
};

/// A disk in RAM. Clones are the same disk.
#[derive(Clone, Default)]
pub struct MemDisk {
    path: Arc<str>,
    pages: Arc<RwLock<SparseBytes>>,
    read_only: bool,
}

impl MemDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self {
            path: "memory".into(),
            ..Self::default()
        }
    }

    fn writable(&self, op: &'static str) -> Result<()> {
        if self.read_only {
            return Err(Error::new(
                op,
                &*self.path,
                ErrorKind::Denied,
                "opened for reading only",
            ));
        }
        Ok(())
    }
}

impl Disk for MemDisk {
    fn len(&self) -> Result<u64> {
        Ok(self.pages.read().len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let pages = self.pages.read();
        if buf.is_empty() || pages.read(buf, offset) {
            Ok(())
        } else {
            Err(Error::short(&self.path, offset, buf.len(), pages.len()))
        }
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.writable("write")?;
        check_end("write", &self.path, offset, data.len() as u64)?;
        self.pages.write().write(data, offset);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.writable("set length of")?;
        check_end("set length of", &self.path, len, 0)?;
        self.pages.write().set_len(len);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.writable("discard")?;
        self.pages.write().punch(offset, len);
        Ok(())
    }
}

/// Fails where the end lies behind the largest possible file offset.
pub(crate) fn check_end(op: &'static str, path: &str, offset: u64, len: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(Error::new(
            op,
            path,
            ErrorKind::NoSpace,
            "ends behind the largest offset of a file",
        )
        .at(offset)),
    }
}

/// The next moment of the clock by which folders in RAM tell which disk was used last: it counts calls.
fn tick() -> u64 {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    TICKS.fetch_add(1, Ordering::Relaxed) + 1
}

/// A folder in RAM. Clones are the same folder.
#[derive(Clone, Default)]
pub struct MemDir {
    path: Arc<str>,
    entries: Arc<Mutex<BTreeMap<String, MemEntry>>>,
    /// Lock of the folder itself.
    lock: Arc<LockState>,
}

#[derive(Clone)]
enum MemEntry {
    Disk {
        disk: MemDisk,
        lock: Arc<LockState>,
        /// Last use, by the clock of all folders in RAM.
        used: u64,
    },
    Dir(MemDir),
}

impl MemEntry {
    fn new_disk(path: String) -> (MemDisk, Self) {
        let disk = MemDisk {
            path: path.into(),
            ..MemDisk::default()
        };
        (
            disk.clone(),
            Self::Disk {
                disk,
                lock: Arc::default(),
                used: tick(),
            },
        )
    }

    fn disk(&self) -> Option<&MemDisk> {
        match self {
            Self::Disk { disk, .. } => Some(disk),
            Self::Dir(_) => None,
        }
    }
}

impl MemDir {
    /// An empty folder.
    pub fn new() -> Self {
        Self::default()
    }

    fn fail(&self, op: &'static str, name: &str, kind: ErrorKind, what: &str) -> Error {
        Error::new(op, join(&self.path, name), kind, what)
    }

    fn not_found(&self, op: &'static str, name: &str) -> Error {
        self.fail(op, name, ErrorKind::NotFound, "no such disk or folder")
    }

    fn find(&self, op: &'static str, name: &str) -> Result<MemEntry> {
        check_name(op, &self.path, name)?;
        self.entries
            .lock()
            .get(name)
            .cloned()
            .ok_or_else(|| self.not_found(op, name))
    }

    fn find_disk(&self, op: &'static str, name: &str) -> Result<MemDisk> {
        match self.find(op, name)? {
            MemEntry::Disk { disk, .. } => Ok(disk),
            MemEntry::Dir(_) => Err(self.fail(op, name, ErrorKind::NotAFile, "is a folder")),
        }
    }

    fn do_rename(&self, from: &str, to: &str, replace: bool) -> Result<()> {
        check_name("rename", &self.path, from)?;
        check_name("rename", &self.path, to)?;
        let mut entries = self.entries.lock();
        match (entries.get(from), entries.get(to)) {
            (None, _) => return Err(self.not_found("rename", from)),
            (Some(_), Some(_)) if !replace => {
                return Err(self.fail("rename", to, ErrorKind::Exists, "the name is taken"));
            }
            (Some(a), Some(_)) if a.disk().is_none() => {
                return Err(self.fail("rename", to, ErrorKind::Device, "something is in the way"));
            }
            (Some(_), Some(b)) if b.disk().is_none() => {
                return Err(self.fail("rename", to, ErrorKind::NotAFile, "a folder is in the way"));
            }
            _ => {}
        }
        if let Some(entry) = entries.remove(from) {
            entries.insert(to.to_owned(), entry);
        }
        Ok(())
    }
}

impl Dir for MemDir {
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>> {
        Ok(Arc::new(MemDisk {
            read_only: true,
            ..self.find_disk("open", name)?
        }))
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>> {
        Ok(Arc::new(self.find_disk("open", name)?))
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Disk>> {
        check_name("create", &self.path, name)?;
        let mut entries = self.entries.lock();
        if entries.contains_key(name) {
            return Err(self.fail("create", name, ErrorKind::Exists, "the name is taken"));
        }
        let (disk, entry) = MemEntry::new_disk(join(&self.path, name));
        entries.insert(name.to_owned(), entry);
        Ok(Arc::new(disk))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.do_rename(from, to, true)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.do_rename(from, to, false)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.find_disk("remove", name)?;
        self.entries.lock().remove(name);
        Ok(())
    }

    fn list(&self) -> Result<Vec<DirEntry>> {
        let entries = self.entries.lock();
        let row = |(name, entry): (&String, &MemEntry)| DirEntry {
            name: name.clone(),
            is_dir: entry.disk().is_none(),
        };
        Ok(entries.iter().map(row).collect())
    }

    fn len_of(&self, name: &str) -> Result<u64> {
        Ok(self.find_disk("look at", name)?.pages.read().len())
    }

    fn used_ns(&self, name: &str) -> Result<u64> {
        match self.find("look at", name)? {
            MemEntry::Disk { used, .. } => Ok(used),
            MemEntry::Dir(_) => Ok(0),
        }
    }

    fn mark_used(&self, name: &str) {
        if let Some(MemEntry::Disk { used, .. }) = self.entries.lock().get_mut(name) {
            *used = tick();
        }
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        check_name("create folder", &self.path, name)?;
        let mut entries = self.entries.lock();
        let path = join(&self.path, name).into();
        let entry = entries.entry(name.to_owned()).or_insert_with(|| {
            MemEntry::Dir(Self {
                path,
                ..Self::default()
            })
        });
        match entry {
            MemEntry::Dir(dir) => Ok(Arc::new(dir.clone())),
            MemEntry::Disk { .. } => {
                Err(self.fail("create folder", name, ErrorKind::Device, "is a disk"))
            }
        }
    }

    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        match self.find("open folder", name)? {
            MemEntry::Dir(dir) => Ok(Arc::new(dir)),
            MemEntry::Disk { .. } => {
                Err(self.fail("open folder", name, ErrorKind::Device, "is a disk"))
            }
        }
    }

    fn remove_subdir(&self, name: &str) -> Result<()> {
        check_name("remove folder", &self.path, name)?;
        let mut entries = self.entries.lock();
        match entries.get(name) {
            None => return Err(self.not_found("remove folder", name)),
            Some(MemEntry::Dir(dir)) if dir.entries.lock().is_empty() => {}
            Some(_) => {
                return Err(self.fail(
                    "remove folder",
                    name,
                    ErrorKind::Device,
                    "is not an empty folder",
                ));
            }
        }
        entries.remove(name);
        Ok(())
    }

    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>> {
        check_name("lock", &self.path, name)?;
        let mut entries = self.entries.lock();
        let entry = entries
            .entry(name.to_owned())
            .or_insert_with(|| MemEntry::new_disk(join(&self.path, name)).1);
        match entry {
            MemEntry::Disk { lock, .. } => Ok(lock.try_lock(kind)),
            MemEntry::Dir(dir) => Ok(dir.lock.try_lock(kind)),
        }
    }
}
