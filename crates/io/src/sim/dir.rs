//! Folders of a simulated device.

use std::sync::Arc;

use parking_lot::MutexGuard;

use super::{
    SharedDevice, SimDir, SimDisk,
    core::{FolderChange, FolderChangeKind, Ino, Names, SimChild},
};
use crate::{
    Dir, DirEntry, Disk, Error, ErrorKind, LockGuard, LockKind, Result,
    name::{check_name, join},
};

impl SimDir {
    /// The locked device; fails if it has crashed or `name` is not valid.
    fn alive(&self, op: &'static str, name: &str) -> Result<MutexGuard<'_, SharedDevice>> {
        check_name(op, &self.path, name)?;
        let device = self.device.lock();
        device.alive(op, &join(&self.path, name))?;
        Ok(device)
    }

    fn names<'a>(&self, op: &'static str, device: &'a SharedDevice) -> Result<&'a Names> {
        let gone = || {
            Error::new(
                op,
                &*self.path,
                ErrorKind::NotFound,
                "the folder was removed",
            )
        };
        device.core.live.names(self.ino).ok_or_else(gone)
    }

    fn child(
        &self,
        op: &'static str,
        device: &SharedDevice,
        name: &str,
    ) -> Result<Option<SimChild>> {
        Ok(self.names(op, device)?.get(name).copied())
    }

    fn disk(&self, op: &'static str, device: &SharedDevice, name: &str) -> Result<Ino> {
        match self.child(op, device, name)? {
            Some(SimChild::Disk(ino)) => Ok(ino),
            Some(SimChild::Dir(_)) => Err(self.fail(op, name, ErrorKind::NotAFile, "is a folder")),
            None => Err(self.not_found(op, name)),
        }
    }

    fn open_disk(&self, name: &str, writable: bool) -> Result<Arc<dyn Disk>> {
        let mut device = self.alive("open", name)?;
        let ino = self.disk("open", &device, name)?;
        Ok(SimDisk::open(
            &self.device,
            &mut device,
            ino,
            join(&self.path, name),
            writable,
        ))
    }

    /// Adds a disk or folder under a name that must be free.
    fn add(
        &self,
        op: &'static str,
        device: &mut SharedDevice,
        name: &str,
        child: fn(Ino) -> SimChild,
    ) -> Result<Ino> {
        let path = join(&self.path, name);
        device.space(op, &path, 0)?;
        device.change_folder(op, &path, |core| {
            let ino = core.new_ino();
            let kind = FolderChangeKind::Add {
                name: name.to_owned(),
            };
            core.change_dir(FolderChange {
                dir: self.ino,
                child: child(ino),
                kind,
            });
            ino
        })
    }

    fn remove_child(
        &self,
        op: &'static str,
        device: &mut SharedDevice,
        name: &str,
        child: SimChild,
    ) -> Result<()> {
        let kind = FolderChangeKind::Remove {
            name: name.to_owned(),
        };
        let change = FolderChange {
            dir: self.ino,
            child,
            kind,
        };
        device.change_folder(op, &join(&self.path, name), |core| core.change_dir(change))
    }

    fn do_rename(&self, from: &str, to: &str, replace: bool) -> Result<()> {
        check_name("rename", &self.path, to)?;
        let mut device = self.alive("rename", from)?;
        let child = self.child("rename", &device, from)?;
        let child = child.ok_or_else(|| self.not_found("rename", from))?;
        let fail = |kind, what| Err(self.fail("rename", to, kind, what));
        match (child, self.child("rename", &device, to)?) {
            (_, None) => {}
            (_, Some(_)) if !replace => return fail(ErrorKind::Exists, "the name is taken"),
            (SimChild::Disk(_), Some(SimChild::Disk(_))) => {}
            (SimChild::Disk(_), Some(SimChild::Dir(_))) => {
                return fail(ErrorKind::NotAFile, "a folder is in the way");
            }
            (SimChild::Dir(_), Some(_)) => {
                return fail(ErrorKind::Device, "something is in the way");
            }
        }
        let kind = FolderChangeKind::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
        };
        let change = FolderChange {
            dir: self.ino,
            child,
            kind,
        };
        device.change_folder("rename", &join(&self.path, from), |core| {
            core.change_dir(change)
        })
    }

    fn folder(&self, ino: Ino, name: &str) -> Arc<dyn Dir> {
        Arc::new(Self {
            device: Arc::clone(&self.device),
            ino,
            path: join(&self.path, name).into(),
        })
    }

    fn fail(&self, op: &'static str, name: &str, kind: ErrorKind, what: &str) -> Error {
        Error::new(op, join(&self.path, name), kind, what)
    }

    fn not_found(&self, op: &'static str, name: &str) -> Error {
        self.fail(op, name, ErrorKind::NotFound, "no such disk or folder")
    }
}

impl Dir for SimDir {
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.open_disk(name, false)
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.open_disk(name, true)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Disk>> {
        let mut device = self.alive("create", name)?;
        if self.child("create", &device, name)?.is_some() {
            return Err(self.fail("create", name, ErrorKind::Exists, "the name is taken"));
        }
        let ino = self.add("create", &mut device, name, SimChild::Disk)?;
        Ok(SimDisk::open(
            &self.device,
            &mut device,
            ino,
            join(&self.path, name),
            true,
        ))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.do_rename(from, to, true)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.do_rename(from, to, false)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut device = self.alive("remove", name)?;
        let child = SimChild::Disk(self.disk("remove", &device, name)?);
        self.remove_child("remove", &mut device, name, child)
    }

    fn list(&self) -> Result<Vec<DirEntry>> {
        let mut device = self.device.lock();
        device.alive("list", &self.path)?;
        device.look_into_folder("list", &self.path)?;
        let row = |(name, child): (&String, &SimChild)| DirEntry {
            name: name.clone(),
            is_dir: matches!(child, SimChild::Dir(_)),
        };
        Ok(self.names("list", &device)?.iter().map(row).collect())
    }

    fn len_of(&self, name: &str) -> Result<u64> {
        let device = self.alive("look at", name)?;
        let ino = self.disk("look at", &device, name)?;
        Ok(device.core.file(ino).map_or(0, |file| file.live.len()))
    }

    fn sync(&self) -> Result<()> {
        let mut device = self.device.lock();
        device.alive("sync folder", &self.path)?;
        device.point("sync folder", &self.path)?;
        device.look_into_folder("sync folder", &self.path)?;
        device.core.sync_dir(self.ino);
        device.collect();
        Ok(())
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        let mut device = self.alive("create folder", name)?;
        match self.child("create folder", &device, name)? {
            Some(SimChild::Dir(ino)) => Ok(self.folder(ino, name)),
            Some(SimChild::Disk(_)) => {
                Err(self.fail("create folder", name, ErrorKind::Device, "is a disk"))
            }
            None => {
                let ino = self.add("create folder", &mut device, name, SimChild::Dir)?;
                Ok(self.folder(ino, name))
            }
        }
    }

    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        let device = self.alive("open folder", name)?;
        match self.child("open folder", &device, name)? {
            Some(SimChild::Dir(ino)) => Ok(self.folder(ino, name)),
            Some(SimChild::Disk(_)) => {
                Err(self.fail("open folder", name, ErrorKind::Device, "is a disk"))
            }
            None => Err(self.not_found("open folder", name)),
        }
    }

    fn remove_subdir(&self, name: &str) -> Result<()> {
        let mut device = self.alive("remove folder", name)?;
        let child = self.child("remove folder", &device, name)?;
        let child = match child {
            None => return Err(self.not_found("remove folder", name)),
            Some(SimChild::Dir(ino)) if device.core.live.names(ino).is_none_or(Names::is_empty) => {
                SimChild::Dir(ino)
            }
            Some(_) => {
                return Err(self.fail(
                    "remove folder",
                    name,
                    ErrorKind::Device,
                    "is not an empty folder",
                ));
            }
        };
        self.remove_child("remove folder", &mut device, name, child)
    }

    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>> {
        let mut device = self.alive("lock", name)?;
        let ino = match self.child("lock", &device, name)? {
            Some(SimChild::Disk(ino) | SimChild::Dir(ino)) => ino,
            None => self.add("lock", &mut device, name, SimChild::Disk)?,
        };
        Ok(device.locks.entry(ino).or_default().try_lock(kind))
    }
}
