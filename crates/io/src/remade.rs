//! A folder that is created again at each access if it was deleted.
//!
//! For caches that are worth nothing to others: people who make room may delete them at any time, while processes use
//! them. Open files of the deleted folder stay open, without a name.

use std::path::PathBuf;
use std::sync::Arc;

use crate::{Dir, DirEntry, Disk, FileDir, GroupAccess, LockGuard, LockKind, Result};

/// The folder `name` in another one, created at each access if it is missing.
pub struct RemadeDir {
    make: Box<dyn Fn() -> Result<Arc<dyn Dir>> + Send + Sync>,
}

impl RemadeDir {
    /// The folder `name` in `parent`, which is created by the first access.
    pub fn new(parent: Arc<dyn Dir>, name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            make: Box::new(move || parent.subdir(&name)),
        }
    }

    /// The folder `name` below `path`, which is created, too. The group of `path` gets the access `group` to what is
    /// created in it. If the folder cannot be created, each access that needs it fails with that error.
    pub fn below(path: PathBuf, name: impl Into<String>, group: GroupAccess) -> Self {
        let name = name.into();
        Self {
            make: Box::new(move || FileDir::create(&path)?.shared(group).subdir(&name)),
        }
    }

    fn dir(&self) -> Result<Arc<dyn Dir>> {
        (self.make)()
    }
}

impl Dir for RemadeDir {
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.dir()?.open(name)
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.dir()?.open_write(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.dir()?.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.dir()?.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.dir()?.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.dir()?.remove(name)
    }

    fn list(&self) -> Result<Vec<DirEntry>> {
        self.dir()?.list()
    }

    fn len_of(&self, name: &str) -> Result<u64> {
        self.dir()?.len_of(name)
    }

    fn used_ns(&self, name: &str) -> Result<u64> {
        self.dir()?.used_ns(name)
    }

    fn mark_used(&self, name: &str) {
        if let Ok(dir) = self.dir() {
            dir.mark_used(name);
        }
    }

    fn sync(&self) -> Result<()> {
        self.dir()?.sync()
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        self.dir()?.subdir(name)
    }

    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        self.dir()?.open_subdir(name)
    }

    fn remove_subdir(&self, name: &str) -> Result<()> {
        self.dir()?.remove_subdir(name)
    }

    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>> {
        self.dir()?.lock(name, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDir;

    #[test]
    fn a_folder_that_was_deleted_is_there_again() {
        let parent: Arc<dyn Dir> = Arc::new(MemDir::new());
        let folder = RemadeDir::new(Arc::clone(&parent), "own");
        folder.subdir("index").unwrap();
        folder.create("file").unwrap();
        assert_eq!(folder.list().unwrap().len(), 2);
        let own = parent.open_subdir("own").unwrap();
        own.remove("file").unwrap();
        own.remove_subdir("index").unwrap();
        parent.remove_subdir("own").unwrap();
        assert!(folder.list().unwrap().is_empty());
        folder.subdir("index").unwrap();
        assert!(
            parent
                .open_subdir("own")
                .unwrap()
                .open_subdir("index")
                .is_ok()
        );
    }
}
