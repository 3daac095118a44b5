//! A folder on a modelled device: another folder keeps the bytes, an [`Account`] the costs that the device would have.
//!
//! Invariant: a disk keeps its number from creation to removal, through all renames, and folders within share the
//! account. Names and locks cost nothing.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Dir, DirEntry, Disk, LockGuard, LockKind, Result};

/// The account of a device: its operations so far, and the place of each disk.
pub trait Account: Send + 'static {
    /// The parameters of the device.
    type Model;
    /// The figures of the account.
    type Counts;

    /// The account of an empty device.
    fn new(model: Self::Model) -> Self;

    /// The figures so far.
    fn counts(&self) -> Self::Counts;

    /// Frees the space of disk `number`.
    fn drop_disk(&mut self, number: u64);
}

/// A folder on a modelled device. Clones share the device.
pub struct ModelledDir<A> {
    dir: Arc<dyn Dir>,
    device: Arc<DeviceModel<A>>,
    /// Prefix of the names within, so that disks of two folders differ.
    path: String,
}

struct DeviceModel<A> {
    account: Arc<Mutex<A>>,
    numbers: Mutex<Numbers>,
}

/// The numbers of disks, by name.
#[derive(Default)]
struct Numbers {
    of: HashMap<String, u64>,
    next: u64,
}

/// A disk in a modelled folder; each kind of account defines the cost of a request.
pub struct ModelledDisk<A> {
    /// The disk that keeps the bytes.
    pub(crate) disk: Arc<dyn Disk>,
    /// Number of the disk on the device.
    pub(crate) number: u64,
    /// The account of the device.
    pub(crate) account: Arc<Mutex<A>>,
}

impl<A: Account> ModelledDir<A> {
    /// A modelled folder that keeps bytes in `dir`, which must be empty, and has the account of `model`.
    pub fn new(dir: Arc<dyn Dir>, model: A::Model) -> Self {
        let device = Arc::new(DeviceModel {
            account: Arc::new(Mutex::new(A::new(model))),
            numbers: Mutex::default(),
        });
        let path = String::new();
        Self { dir, device, path }
    }

    /// The figures of the account so far.
    pub fn counts(&self) -> A::Counts {
        self.device.account.lock().counts()
    }

    /// The disk `name` of the device with its bytes in `disk`, which the folder does not hold: bytes that need not be
    /// kept need no room.
    pub fn over(&self, name: &str, disk: Arc<dyn Disk>) -> Arc<dyn Disk>
    where
        ModelledDisk<A>: Disk,
    {
        self.disk(name, disk)
    }

    fn named(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    fn disk(&self, name: &str, disk: Arc<dyn Disk>) -> Arc<dyn Disk>
    where
        ModelledDisk<A>: Disk,
    {
        let mut numbers = self.device.numbers.lock();
        let next = numbers.next;
        let number = *numbers.of.entry(self.named(name)).or_insert(next);
        numbers.next += u64::from(number == next);
        let account = Arc::clone(&self.device.account);
        Arc::new(ModelledDisk {
            disk,
            number,
            account,
        })
    }

    fn folder(&self, name: &str, dir: Arc<dyn Dir>) -> Arc<dyn Dir>
    where
        ModelledDisk<A>: Disk,
    {
        let (device, path) = (Arc::clone(&self.device), format!("{}{name}/", self.path));
        Arc::new(Self { dir, device, path })
    }

    fn removed(&self, name: &str) {
        if let Some(number) = self.device.numbers.lock().of.remove(&self.named(name)) {
            self.device.account.lock().drop_disk(number);
        }
    }

    fn renamed(&self, from: &str, to: &str) {
        if from == to {
            return;
        }
        self.removed(to);
        let mut numbers = self.device.numbers.lock();
        if let Some(number) = numbers.of.remove(&self.named(from)) {
            numbers.of.insert(self.named(to), number);
        }
    }
}

impl<A> Clone for ModelledDir<A> {
    fn clone(&self) -> Self {
        Self {
            dir: Arc::clone(&self.dir),
            device: Arc::clone(&self.device),
            path: self.path.clone(),
        }
    }
}

impl<A: Account> Dir for ModelledDir<A>
where
    ModelledDisk<A>: Disk,
{
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>> {
        Ok(self.disk(name, self.dir.open(name)?))
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>> {
        Ok(self.disk(name, self.dir.open_write(name)?))
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Disk>> {
        Ok(self.disk(name, self.dir.create(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename(from, to)?;
        self.renamed(from, to);
        Ok(())
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename_new(from, to)?;
        self.renamed(from, to);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.dir.remove(name)?;
        self.removed(name);
        Ok(())
    }

    fn list(&self) -> Result<Vec<DirEntry>> {
        self.dir.list()
    }

    fn len_of(&self, name: &str) -> Result<u64> {
        self.dir.len_of(name)
    }

    fn used_ns(&self, name: &str) -> Result<u64> {
        self.dir.used_ns(name)
    }

    fn mark_used(&self, name: &str) {
        self.dir.mark_used(name);
    }

    fn sync(&self) -> Result<()> {
        self.dir.sync()
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(self.folder(name, self.dir.subdir(name)?))
    }

    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(self.folder(name, self.dir.open_subdir(name)?))
    }

    fn remove_subdir(&self, name: &str) -> Result<()> {
        self.dir.remove_subdir(name)
    }

    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>> {
        self.dir.lock(name, kind)
    }
}
