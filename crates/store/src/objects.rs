//! Object storage: immutable objects under names, and its implementation in a local folder.
//!
//! An object is there whole or not at all, at every moment and after every crash.

mod beginning;
pub mod local_cache;
pub mod simulated;
mod twice;
mod unfinished;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use onefold_io::{Dir, Disk, ErrorKind, ReadAt, if_there, remove_if_there, rename_in_place};
use onefold_keys::Entropy;
use parking_lot::Mutex;

use crate::{Error, Result};
pub(crate) use twice::{read_twice_at_most, unless_damaged};

/// Beginning of the names of all unfinished objects; they are never listed.
pub const TEMPORARY_PREFIX: &str = "tmp-";

/// No object but a container is longer, in bytes: the sweep's list would name 16 million containers. What is longer is
/// damage (a file system that lost a length, a hole of terabytes), for which nothing is allocated.
pub const OBJECT_BYTES_MAX: u64 = 128 << 20;
pub(crate) const CONTAINERS: &str = "containers/";

/// Immutable objects under slash-separated names. Synchronous: when `put` returns, the object is durable.
pub trait ObjectStore: Send + Sync {
    /// Stores `parts`, one after the other, as the object `name`, in place of what stood there.
    ///
    /// # Errors
    /// Failures of the device, no space among them: what stood there before stands there then, or the new object does.
    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()>;

    /// Stores `parts`, one after the other, as the object `name` where that name is free.
    ///
    /// # Errors
    /// One of kind [`ErrorKind::Exists`] where it is not; failures of the device.
    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<()>;

    /// Does the same with a long part and a tail, and gives the long part back: a store that needs bytes of its own,
    /// since it sends them from other threads, need not copy them.
    ///
    /// # Errors
    /// Those of [`Self::put_if_absent`].
    fn put_long_if_absent(&self, name: &str, long: Vec<u8>, tail: &[u8]) -> (Vec<u8>, Result<()>) {
        let done = self.put_if_absent(name, &[&long, tail]);
        (long, done)
    }

    /// The whole object.
    ///
    /// # Errors
    /// One of kind [`ErrorKind::NotFound`]; [`Error::Damaged`] where it is none of the containers and longer than
    /// [`OBJECT_BYTES_MAX`]; failures of the device.
    fn get(&self, name: &str) -> Result<Vec<u8>>;

    /// The object's bytes from `offset` on into `buf`, whole.
    ///
    /// # Errors
    /// Kind [`ErrorKind::NotFound`], or [`ErrorKind::Short`] where the object ends before; failures of the device.
    fn get_range(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// The object's last bytes, at most `bytes_max` of them, and its whole length in bytes. One request where requests
    /// are dear.
    ///
    /// # Errors
    /// Kind [`ErrorKind::NotFound`]; failures of the device.
    fn get_tail(&self, name: &str, bytes_max: usize) -> Result<(Vec<u8>, u64)> {
        let len = self.len(name)?;
        let mut tail = vec![0; len.min(bytes_max as u64) as usize];
        self.get_range(name, len - tail.len() as u64, &mut tail)?;
        Ok((tail, len))
    }

    /// Several ranges of one object, each whole, in any order.
    ///
    /// # Errors
    /// Those of [`get_range`](Self::get_range), of any of them: no buffer's content is known then.
    fn get_ranges(&self, name: &str, ranges: &mut [ReadAt<'_>]) -> Result<()> {
        let mut ranges = ranges.iter_mut();
        ranges.try_for_each(|range| self.get_range(name, range.offset, range.buf))
    }

    /// Makes the next reading of the object come from the device, not from RAM, as far as the system lets that be said.
    fn forget_cached(&self, name: &str);

    /// The object's length in bytes.
    ///
    /// # Errors
    /// One of kind [`ErrorKind::NotFound`]; failures of the device.
    fn len(&self, name: &str) -> Result<u64>;

    /// Names below the folder `prefix`, in order of name.
    ///
    /// # Errors
    /// One of kind [`ErrorKind::NotFound`] where the folder is missing; failures of the device.
    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.list_past(prefix, &mut Err)
    }

    /// Names below the folder `prefix`, in order of name, as far as they can be listed: `failed` hears why a folder
    /// within cannot be, and says whether to go on without it.
    ///
    /// # Errors
    /// One of kind [`ErrorKind::NotFound`] where the folder is missing; what `failed` returns.
    fn list_past(
        &self,
        prefix: &str,
        failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<String>>;

    /// Names below the folder `prefix`, in order of name, with lengths in bytes, 0 where one cannot be had; `failed` as
    /// in [`list_past`](Self::list_past). Dearer than names alone: each object is looked at.
    ///
    /// # Errors
    /// Those of [`list_past`](Self::list_past).
    fn lengths_past(
        &self,
        prefix: &str,
        failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<(String, u64)>>;

    /// Names below the folder `prefix`, with the seconds since each object was put, by the store's own clock; `None`
    /// where nobody knows.
    ///
    /// # Errors
    /// Those of [`list`](Self::list).
    fn ages(&self, prefix: &str) -> Result<Vec<(String, Option<u64>)>> {
        let listed = self.list(prefix)?.into_iter();
        Ok(listed.map(|name| (name, None)).collect())
    }

    /// Removes an object; one that is not there is no error. Durable when it returns.
    ///
    /// # Errors
    /// Failures of the device: the object is there then, or goes with the next crash, or is gone.
    fn delete(&self, name: &str) -> Result<()>;

    /// Makes it durable that these objects are there, for who found them and did not put them: whoever did may have
    /// died before that.
    ///
    /// # Errors
    /// Failures of the device: none of them is known to be durable. An object that is not there is no error.
    fn keep(&self, names: &[String]) -> Result<()>;

    /// Removes objects; one that is not there is no error. Durable when it returns.
    ///
    /// # Errors
    /// Those of [`delete`](Self::delete), of any of them: the others are there or not.
    fn delete_all(&self, names: &[String]) -> Result<()> {
        names.iter().try_for_each(|name| self.delete(name))
    }

    /// Gives the object `from` the name `to`, which is free, in the same folder. Durable when it returns. A crash may
    /// leave both names.
    ///
    /// # Errors
    /// Kind [`ErrorKind::NotFound`] where there is no `from`, or [`ErrorKind::Exists`] where `to` is taken; failures of
    /// the device.
    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        let bytes = self.get(from)?;
        self.put_if_absent(to, &[&bytes])?;
        self.delete(from)
    }

    /// Whether the folder was made, and is there.
    ///
    /// # Errors
    /// Failures of the device: it may be there or not.
    fn has_folder(&self, folder: &str) -> Result<bool>;

    /// Makes a folder, durably, in which objects will be listed; one that is there stays as it is.
    ///
    /// # Errors
    /// Failures of the device.
    fn make_folder(&self, folder: &str) -> Result<()>;

    /// Returns the names of objects that were begun and are not finished, by processes that live or have died. Empty
    /// where an object is put at once.
    ///
    /// # Errors
    /// Failures of the device.
    fn unfinished(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Removes unfinished objects that [`unfinished`](Self::unfinished) has named. The caller knows that no living
    /// process has begun them. Objects that are finished by now stay.
    ///
    /// # Errors
    /// Failures of the device.
    fn clear_unfinished(&self, _unfinished: &[String]) -> Result<()> {
        Ok(())
    }

    /// The objects that are there where a repository is to be made: all of them of one whose making was interrupted.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] where there is anything else; failures of the device.
    fn left_over(&self) -> Result<Vec<String>>;
}

/// Objects as files of a local folder.
pub struct LocalObjects {
    root: Arc<dyn Dir>,
    entropy: Entropy,
    /// Folders that are there durably, as this process knows.
    durable: Mutex<HashSet<String>>,
}

impl LocalObjects {
    /// Objects below `root`; `entropy` names unfinished ones.
    pub fn new(root: Arc<dyn Dir>, entropy: Entropy) -> Self {
        Self {
            root,
            entropy,
            durable: Mutex::default(),
        }
    }

    /// An object's disk. Damaged where something else stands in its place.
    fn open(&self, name: &str) -> Result<Arc<dyn Disk>> {
        let (dir, last) = self.place(name)?;
        match dir.open(last) {
            Err(error) if error.kind == ErrorKind::NotAFile => {
                Err(Error::damaged(name, None, error.what))
            }
            other => Ok(other?),
        }
    }

    /// The folder of `name` and the name in it.
    fn place<'a>(&self, name: &'a str) -> Result<(Arc<dyn Dir>, &'a str)> {
        let mut dir = Arc::clone(&self.root);
        let mut rest = name;
        while let Some((folder, below)) = rest.split_once('/') {
            dir = dir.open_subdir(folder)?;
            rest = below;
        }
        Ok((dir, rest))
    }

    /// The same; folders that are missing are made. All are there durably: whoever made one may have died before that.
    fn make_place<'a>(&self, name: &'a str) -> Result<(Arc<dyn Dir>, &'a str)> {
        let mut dir = Arc::clone(&self.root);
        let mut at = 0;
        while let Some(len) = name[at..].find('/') {
            let (path, folder) = (&name[..at + len], &name[at..at + len]);
            let is_durable = self.durable.lock().contains(path);
            dir = match dir.open_subdir(folder) {
                Ok(sub) if is_durable => sub,
                Err(error) if error.kind != ErrorKind::NotFound => return Err(error.into()),
                _ => {
                    let sub = dir.subdir(folder)?;
                    self.keep_folders(&*dir, &name[..at])?;
                    sub
                }
            };
            at += len + 1;
        }
        Ok((dir, &name[at..]))
    }

    /// Makes the folders of `dir` durable; its path ends in a slash, or is empty.
    fn keep_folders(&self, dir: &dyn Dir, path: &str) -> Result<()> {
        let there = dir.list()?.into_iter().filter(|entry| entry.is_dir);
        dir.sync()?;
        let paths = there.map(|folder| format!("{path}{}", folder.name));
        self.durable.lock().extend(paths);
        Ok(())
    }

    /// Temporary name, all bytes, sync, `rename` to the name, sync of the folder. What fails leaves nothing behind but,
    /// where even the removal fails, a temporary file, which the sweep clears.
    fn write(
        &self,
        name: &str,
        parts: &[&[u8]],
        rename: impl Fn(&dyn Dir, &str, &str) -> onefold_io::Result<()>,
    ) -> Result<()> {
        let (dir, last) = self.make_place(name)?;
        let temporary = format!("{TEMPORARY_PREFIX}{:016x}", self.entropy.try_u64()?);
        let disk = dir.create(&temporary)?;
        let written = fill(&*disk, parts).and_then(|()| rename(&*dir, &temporary, last));
        if let Err(error) = written {
            let _ = dir.remove(&temporary);
            return Err(error.into());
        }
        Ok(dir.sync()?)
    }
}

fn fill(disk: &dyn Disk, parts: &[&[u8]]) -> onefold_io::Result<()> {
    let mut offset = 0;
    for part in parts {
        disk.write_at(part, offset)?;
        offset += part.len() as u64;
    }
    disk.sync()
}

impl ObjectStore for LocalObjects {
    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.write(name, parts, rename_in_place)
    }

    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.write(name, parts, |dir, from, to| dir.rename_new(from, to))
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        let disk = self.open(name)?;
        let stored_bytes = disk.len()?;
        if stored_bytes > OBJECT_BYTES_MAX && !name.starts_with(CONTAINERS) {
            let what = format!("{stored_bytes} bytes, at most {OBJECT_BYTES_MAX} can be");
            return Err(Error::damaged(name, Some(OBJECT_BYTES_MAX), what));
        }
        let mut bytes = vec![0; stored_bytes as usize];
        disk.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn get_range(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        Ok(self.open(name)?.read_at(buf, offset)?)
    }

    fn forget_cached(&self, name: &str) {
        if let Ok(disk) = self.open(name) {
            disk.forget_cached();
        }
    }

    fn len(&self, name: &str) -> Result<u64> {
        Ok(self.open(name)?.len()?)
    }

    fn list_past(
        &self,
        prefix: &str,
        failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let folder = self.root.open_subdir(prefix)?;
        let mut push = |_: &dyn Dir, _: &str, name| names.push(name);
        each_below(&*folder, prefix, folders_in(prefix), &mut push, failed)?;
        Ok(names)
    }

    fn lengths_past(
        &self,
        prefix: &str,
        failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        let mut look = |dir: &dyn Dir, last: &str, name| match dir.len_of(last) {
            // Deleted since it was listed.
            Err(error) if error.kind == ErrorKind::NotFound => {}
            // The object is there all the same: opening it tells the reason.
            len => found.push((name, len.unwrap_or(0))),
        };
        let folder = self.root.open_subdir(prefix)?;
        each_below(&*folder, prefix, folders_in(prefix), &mut look, failed)?;
        Ok(found)
    }

    fn delete(&self, name: &str) -> Result<()> {
        let removed = self.place(name).and_then(|(dir, last)| {
            remove_if_there(&*dir, last)?;
            Ok(dir.sync()?)
        });
        match removed {
            Err(error) if error.is_not_found() => Ok(()),
            other => other,
        }
    }

    fn keep(&self, names: &[String]) -> Result<()> {
        let mut folders = BTreeSet::new();
        for name in names {
            folders.extend(name.match_indices('/').map(|(at, _)| &name[..=at]));
        }
        for folder in folders {
            match self.place(folder) {
                Ok((dir, _)) => dir.sync()?,
                // And with it what was in it.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn get_ranges(&self, name: &str, ranges: &mut [ReadAt<'_>]) -> Result<()> {
        Ok(self.open(name)?.read_many_at(ranges)?)
    }

    fn delete_all(&self, names: &[String]) -> Result<()> {
        let mut folders = BTreeMap::new();
        for name in names {
            let (folder, last) = name.split_at(name.rfind('/').map_or(0, |slash| slash + 1));
            folders.entry(folder).or_insert_with(Vec::new).push(last);
        }
        for (folder, names) in folders {
            let dir = match self.place(folder) {
                Err(error) if error.is_not_found() => continue,
                found => found?.0,
            };
            names
                .iter()
                .try_for_each(|name| remove_if_there(&*dir, name))?;
            dir.sync()?;
        }
        Ok(())
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        let (dir, last) = self.place(from)?;
        let (_, new) = to.rsplit_once('/').unwrap_or(("", to));
        dir.rename_new(last, new)?;
        Ok(dir.sync()?)
    }

    fn has_folder(&self, folder: &str) -> Result<bool> {
        Ok(if_there(self.root.open_subdir(folder))?.is_some())
    }

    fn make_folder(&self, folder: &str) -> Result<()> {
        self.root.subdir(folder)?;
        Ok(self.root.sync()?)
    }

    fn unfinished(&self) -> Result<Vec<String>> {
        unfinished::list(&*self.root)
    }

    fn clear_unfinished(&self, unfinished: &[String]) -> Result<()> {
        for name in unfinished {
            let (dir, last) = self.place(name)?;
            remove_if_there(&*dir, last)?;
        }
        Ok(())
    }

    fn left_over(&self) -> Result<Vec<String>> {
        beginning::left_over(&*self.root)
    }
}

/// Number of folders between this one and its objects.
fn folders_in(prefix: &str) -> usize {
    usize::from(CONTAINERS.strip_suffix('/') == Some(prefix))
}

/// Calls `found` for each object that is `folders` folders below `dir`, whose path is `path`, with the folder that it
/// is in, its name there, and its whole name. A thing in the place of an object is reported, whatever it is: opening it
/// tells the reason, while a missing object would tell nobody.
fn each_below(
    dir: &dyn Dir,
    path: &str,
    folders: usize,
    found: &mut dyn FnMut(&dyn Dir, &str, String),
    failed: &mut dyn FnMut(Error) -> Result<()>,
) -> Result<()> {
    for entry in dir.list()? {
        let name = format!("{path}/{}", entry.name);
        if entry.is_dir && folders > 0 {
            let below = dir.open_subdir(&entry.name).map_err(Error::from);
            let listed =
                below.and_then(|below| each_below(&*below, &name, folders - 1, found, failed));
            listed.or_else(&mut *failed)?;
        } else if !entry.name.starts_with(TEMPORARY_PREFIX) {
            found(dir, &entry.name, name);
        }
    }
    Ok(())
}
