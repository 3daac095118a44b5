//! A folder in memory: for tests, and wherever something wants a `Dir` that leaves no trace.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Dir, DirEntry, Disk, Error, ErrorKind, LockGuard, LockKind, Result};

/// A disk in memory. Clones of the `Arc` share it.
#[derive(Default)]
pub struct MemDisk {
    bytes: Mutex<Vec<u8>>,
}

impl Disk for MemDisk {
    fn len(&self) -> Result<u64> {
        Ok(self.bytes.lock().len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let bytes = self.bytes.lock();
        let from = usize::try_from(offset)
            .ok()
            .and_then(|from| bytes.get(from..))
            .and_then(|rest| rest.get(..buf.len()));
        match from {
            Some(found) => buf.copy_from_slice(found),
            None => return Err(short(offset, buf.len(), bytes.len())),
        }
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut bytes = self.bytes.lock();
        let end = offset as usize + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(data);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.bytes.lock().resize(len as usize, 0);
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
}

fn short(offset: u64, wanted: usize, len: usize) -> Error {
    let what = format!("{wanted} bytes wanted, the disk ends at {len}");
    Error {
        op: "read",
        path: "memory".into(),
        offset: Some(offset),
        kind: ErrorKind::Short,
        what,
        source: None,
    }
}

/// A folder in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemDir {
    inner: Arc<Mutex<Folder>>,
}

#[derive(Default)]
struct Folder {
    disks: BTreeMap<String, Arc<MemDisk>>,
    folders: BTreeMap<String, MemDir>,
    locks: HashMap<String, Arc<Mutex<Holders>>>,
}

#[derive(Default)]
struct Holders {
    shared: usize,
    exclusive: bool,
}

impl MemDir {
    /// An empty folder.
    pub fn new() -> Self {
        Self::default()
    }
}

fn named(op: &'static str, name: &str, kind: ErrorKind, what: &str) -> Error {
    Error {
        op,
        path: name.into(),
        offset: None,
        kind,
        what: what.into(),
        source: None,
    }
}

fn missing(op: &'static str, name: &str) -> Error {
    named(op, name, ErrorKind::NotFound, "no such file")
}

impl Dir for MemDir {
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>> {
        match self.inner.lock().disks.get(name) {
            Some(disk) => Ok(Arc::clone(disk) as Arc<dyn Disk>),
            None => Err(missing("open", name)),
        }
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.open(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Disk>> {
        let mut folder = self.inner.lock();
        if folder.disks.contains_key(name) || folder.folders.contains_key(name) {
            return Err(named(
                "create",
                name,
                ErrorKind::Exists,
                "the name is taken",
            ));
        }
        let disk = Arc::new(MemDisk::default());
        folder.disks.insert(name.into(), Arc::clone(&disk));
        Ok(disk)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut folder = self.inner.lock();
        let disk = folder
            .disks
            .remove(from)
            .ok_or_else(|| missing("rename", from))?;
        folder.disks.insert(to.into(), disk);
        Ok(())
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        if self.inner.lock().disks.contains_key(to) {
            return Err(named("rename", to, ErrorKind::Exists, "the name is taken"));
        }
        self.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner
            .lock()
            .disks
            .remove(name)
            .map(drop)
            .ok_or_else(|| missing("remove", name))
    }

    fn list(&self) -> Result<Vec<DirEntry>> {
        let folder = self.inner.lock();
        let disks = folder.disks.iter().map(|(name, disk)| DirEntry {
            name: name.clone(),
            len: disk.bytes.lock().len() as u64,
            is_dir: false,
        });
        let folders = folder.folders.keys().map(|name| DirEntry {
            name: name.clone(),
            len: 0,
            is_dir: true,
        });
        let mut entries: Vec<_> = disks.chain(folders).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Arc::new(
            self.inner
                .lock()
                .folders
                .entry(name.into())
                .or_default()
                .clone(),
        ))
    }

    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        match self.inner.lock().folders.get(name) {
            Some(folder) => Ok(Arc::new(folder.clone())),
            None => Err(missing("open", name)),
        }
    }

    fn remove_subdir(&self, name: &str) -> Result<()> {
        let mut folder = self.inner.lock();
        let sub = folder
            .folders
            .get(name)
            .ok_or_else(|| missing("remove", name))?;
        let empty = {
            let sub = sub.inner.lock();
            sub.disks.is_empty() && sub.folders.is_empty()
        };
        if !empty {
            return Err(named(
                "remove",
                name,
                ErrorKind::Device,
                "the folder is not empty",
            ));
        }
        folder.folders.remove(name);
        Ok(())
    }

    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>> {
        let mut folder = self.inner.lock();
        folder.disks.entry(name.into()).or_default();
        let holders = Arc::clone(folder.locks.entry(name.into()).or_default());
        let mut held = holders.lock();
        if held.exclusive || kind == LockKind::Exclusive && held.shared > 0 {
            return Ok(None);
        }
        match kind {
            LockKind::Shared => held.shared += 1,
            LockKind::Exclusive => held.exclusive = true,
        }
        drop(held);
        Ok(Some(Box::new(MemLock { holders, kind })))
    }
}

struct MemLock {
    holders: Arc<Mutex<Holders>>,
    kind: LockKind,
}

impl LockGuard for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        let mut held = self.holders.lock();
        match self.kind {
            LockKind::Shared => held.shared -= 1,
            LockKind::Exclusive => held.exclusive = false,
        }
    }
}
