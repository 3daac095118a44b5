//! A folder some of which may be closed, missing, or on a bad sector; mostly one that may only be read.

use std::sync::Arc;

use onefold_io::{Dir, DirEntry, Disk, Error, ErrorKind, LockGuard, LockKind, Result};
use parking_lot::Mutex;

/// Paths that fail to open, by their ends, each with the error and the number of openings before it.
#[derive(Clone, Default)]
pub struct Failing(Arc<Mutex<Vec<(String, ErrorKind, u32)>>>, Meanwhile);

/// Action to run when a folder whose path ends so has been listed, or before such a file is opened, until it returns
/// true.
type Meanwhile = Arc<Mutex<Option<(String, Box<dyn FnMut() -> bool + Send>)>>>;

impl Failing {
    pub fn set(&self, path: &str, kind: ErrorKind) {
        self.set_after(0, path, kind);
    }

    /// From the opening on that comes after so many.
    pub fn set_after(&self, opens: u32, path: &str, kind: ErrorKind) {
        self.0.lock().push((path.into(), kind, opens));
    }

    /// Does something, once, when the folder `path` has just been listed.
    pub fn once_listed(&self, path: &str, meanwhile: impl FnOnce() + Send + 'static) {
        let mut meanwhile = Some(meanwhile);
        self.until(path, move || {
            meanwhile.take().is_some_and(|meanwhile| {
                meanwhile();
                true
            })
        });
    }

    fn until(&self, path: &str, meanwhile: impl FnMut() -> bool + Send + 'static) {
        *self.1.lock() = Some((path.into(), Box::new(meanwhile)));
    }

    /// Does something whenever any folder has just been synced, until it says that it is done.
    pub fn at_syncs(&self, meanwhile: impl FnMut() -> bool + Send + 'static) {
        self.until("/.", meanwhile);
    }

    /// Does something, once, before the file `path` is opened.
    pub fn once_opened(&self, path: &str, meanwhile: impl FnOnce() + Send + 'static) {
        self.once_listed(path, meanwhile);
    }

    /// Does something, once, when the folder `path` has just been synced.
    pub fn once_synced(&self, path: &str, meanwhile: impl FnOnce() + Send + 'static) {
        self.once_listed(&format!("{path}/."), meanwhile);
    }

    fn happens(&self, path: &str) {
        let mut meanwhile = self.1.lock();
        meanwhile.take_if(|(end, happens)| path.ends_with(&**end) && happens());
    }

    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

/// See the module.
pub struct Guarded {
    inner: Arc<dyn Dir>,
    path: String,
    failing: Failing,
    is_writable: bool,
}

impl Guarded {
    pub fn over(inner: &Arc<dyn Dir>, failing: &Failing) -> Arc<dyn Dir> {
        Self::around(inner, failing, false)
    }

    /// One that may be written, too. What is removed fails no more.
    pub fn writable(inner: &Arc<dyn Dir>, failing: &Failing) -> Arc<dyn Dir> {
        Self::around(inner, failing, true)
    }

    fn around(inner: &Arc<dyn Dir>, failing: &Failing, is_writable: bool) -> Arc<dyn Dir> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            path: String::new(),
            failing: failing.clone(),
            is_writable,
        })
    }

    fn below(&self, name: &str, inner: Arc<dyn Dir>) -> Arc<dyn Dir> {
        Arc::new(Self {
            inner,
            path: self.path_of(name),
            failing: self.failing.clone(),
            is_writable: self.is_writable,
        })
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    fn look(&self, name: &str) -> Result<()> {
        self.look_at("open", name)
    }

    fn look_at(&self, op: &'static str, name: &str) -> Result<()> {
        let path = self.path_of(name);
        let mut failing = self.failing.0.lock();
        let found = failing.iter_mut().find(|(end, ..)| path.ends_with(&**end));
        match found {
            Some((_, kind, 0)) => Err(Error::new(op, path, *kind, "as asked for")),
            Some((.., opens)) => {
                *opens -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn may_write(&self, op: &'static str, name: &str) -> Result<()> {
        if self.is_writable {
            Ok(())
        } else {
            Err(Error::new(
                op,
                self.path_of(name),
                ErrorKind::Denied,
                "to be read only",
            ))
        }
    }
}

impl Dir for Guarded {
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.look(name)?;
        self.failing.happens(&self.path_of(name));
        self.inner.open(name)
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.may_write("open", name)?;
        self.look(name)?;
        self.inner.open_write(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Disk>> {
        self.may_write("create", name)?;
        self.inner.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.may_write("rename", from)?;
        self.inner.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.may_write("rename", from)?;
        self.inner.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.may_write("remove", name)?;
        let path = self.path_of(name);
        self.failing
            .0
            .lock()
            .retain(|(end, ..)| !path.ends_with(&**end));
        self.inner.remove(name)
    }

    fn list(&self) -> Result<Vec<DirEntry>> {
        // "/folder/" is one that is opened and does not list.
        self.look_at("list", "")?;
        let listed = self.inner.list();
        self.failing.happens(&self.path);
        listed
    }

    fn len_of(&self, name: &str) -> Result<u64> {
        self.inner.len_of(name)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()?;
        self.failing.happens(&self.path_of("."));
        Ok(())
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        match self.open_subdir(name) {
            Err(error) if error.kind == ErrorKind::NotFound => {
                self.may_write("create folder", name)?;
                Ok(self.below(name, self.inner.subdir(name)?))
            }
            other => other,
        }
    }

    fn open_subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        self.look(name)?;
        Ok(self.below(name, self.inner.open_subdir(name)?))
    }

    fn remove_subdir(&self, name: &str) -> Result<()> {
        self.may_write("remove folder", name)?;
        self.inner.remove_subdir(name)
    }

    fn lock(&self, name: &str, kind: LockKind) -> Result<Option<Box<dyn LockGuard>>> {
        self.may_write("lock", name)?;
        self.inner.lock(name, kind)
    }
}
