//! The index's folder: names, locks, the replacement of the manifest, and the removal of files that no manifest names.
//!
//! Invariant: the manifest is read, changed and replaced under the lock `lock`, which is held for milliseconds; a
//! file that the manifest names is durable, content and name, before the manifest is; a file is removed only after a
//! durable manifest no longer names it, or, where it was made in vain, after a check that no manifest names it. Each
//! opener holds `owner-<unique>` while it lives. Files that carry its number and stand in no manifest are its work in
//! progress, and orphans once that lock can be had. Deletion runs under `lock` too and removes the manifest first
//! ([`delete`]): an opener reads on in the removed files, and its next seal begins an empty index.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use onefold_io::{
    Dir, Disk, ErrorKind, LockGuard, LockKind, hex_number, if_there, is_aside, remove_if_there,
    rename_over,
};

use super::manifest::{FileId, IndexManifest};
use super::page::FOOTER_BYTES_MAX;
use crate::lock::lock_waiting;
use crate::{Error, Result};

const MANIFEST: &str = "manifest";
const LOCK: &str = "lock";
const MERGE_LOCK: &str = "merge";
/// Milliseconds that an index being closed waits for the lock at most.
const CLOSING_WAIT_MS: u64 = 1000;

/// The index's folder: names, locks, and the manifest's replacement.
pub struct Folder {
    dir: Arc<dyn Dir>,
    unique: u64,
    next_number: AtomicU32,
    /// Number of indexes that this opener has begun in this folder.
    births: AtomicU32,
    /// Set when the index is closed: a large merge gives up, and lock waits become short.
    pub stop: AtomicBool,
    _owner: Box<dyn LockGuard>,
}

/// A file that is being written and stands in no manifest yet.
pub struct NewFile {
    /// The id under which the manifest will name the file.
    pub id: FileId,
    /// Name of the file in the folder.
    pub name: String,
    /// The open file, for writing.
    pub disk: Arc<dyn Disk>,
}

impl Folder {
    /// Opens the folder, and removes what dead openers left. Where another opener uses `unique`, the next free number
    /// is taken. [`Error::Held`] where the lock is not free within `wait_ms_max`.
    pub fn open(dir: Arc<dyn Dir>, unique: u64, wait_ms_max: Option<u64>) -> Result<Folder> {
        let is_late = |ms| wait_ms_max.is_some_and(|max| ms >= max);
        let _lock = lock(&*dir, &is_late)?;
        let (unique, owner) = own(&*dir, unique)?;
        let manifest = read_manifest(&*dir)?;
        remove_orphans(&*dir, &manifest, Some(unique))?;
        let own_files = manifest
            .logs
            .iter()
            .map(|log| log.id)
            .chain(manifest.runs.iter().map(|run| run.id));
        let next = own_files
            .filter(|id| id.unique == unique)
            .map(|id| id.number + 1)
            .max()
            .unwrap_or(0);
        Ok(Folder {
            dir,
            unique,
            next_number: AtomicU32::new(next),
            births: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            _owner: owner,
        })
    }

    /// Reads the newest manifest.
    pub fn manifest(&self) -> Result<IndexManifest> {
        read_manifest(&*self.dir)
    }

    /// Creates a new log file.
    pub fn create_log(&self) -> Result<NewFile> {
        self.create(|id| id.log_name())
    }

    /// Creates a new run file.
    pub fn create_run(&self) -> Result<NewFile> {
        self.create(|id| id.run_name())
    }

    /// Opens an existing file; `None` where it is gone.
    pub fn open_file(&self, name: &str) -> Result<Option<Arc<dyn Disk>>> {
        Ok(if_there(self.dir.open(name))?)
    }

    /// Changes the newest manifest and replaces it, durable on return. Where `change` returns `false`, nothing is
    /// replaced. New files must be synced before the call; their names are made durable by it.
    pub fn commit(
        &self,
        change: impl FnOnce(&mut IndexManifest) -> Result<bool>,
    ) -> Result<IndexManifest> {
        let is_late = |ms| ms >= CLOSING_WAIT_MS && self.stop.load(Ordering::Relaxed);
        let _lock = lock(&*self.dir, &is_late)?;
        let mut manifest = read_manifest(&*self.dir)?;
        if !change(&mut manifest)? {
            return Ok(manifest);
        }
        if manifest.generation == 0 {
            // not the number of an index that was begun here before and deleted
            let births = self.births.fetch_add(1, Ordering::Relaxed);
            manifest.born = self.unique ^ u64::from(births) << 32;
        }
        manifest.generation += 1;
        let name = format!("tmp-{:016x}", self.unique);
        let replaced = self.replace(&name, &manifest);
        if replaced.is_err() {
            remove_if_there(&*self.dir, &name).ok();
        }
        replaced.map(|()| manifest)
    }

    fn replace(&self, name: &str, manifest: &IndexManifest) -> Result<()> {
        // the new files' names become durable before the manifest's does
        let write = |disk: &Arc<dyn Disk>| {
            disk.write_at(&manifest.encode(), 0)?;
            self.dir.sync()
        };
        rename_over(&*self.dir, name, MANIFEST, write)?;
        Ok(self.dir.sync()?)
    }

    /// Removes files that the durable manifest does not name. Openers that have them open read on.
    pub fn remove(&self, names: &[String]) -> Result<()> {
        let mut names = names.iter();
        Ok(names.try_for_each(|name| remove_if_there(&*self.dir, name))?)
    }

    /// Removes those of the new files `names` that the newest manifest does not name. A commit that failed may have
    /// failed after the manifest was replaced, hence the check. A file that cannot be removed now goes when the index
    /// is next opened.
    pub fn remove_unentered(&self, names: &[String]) {
        if let Ok(manifest) = self.manifest() {
            let entered: HashSet<String> = manifest.file_names().collect();
            names
                .iter()
                .filter(|name| !entered.contains(*name))
                .for_each(|name| drop(remove_if_there(&*self.dir, name)));
        }
    }

    /// Takes the merge lock; `None` where another opener holds it.
    pub fn try_merge_lock(&self) -> Result<Option<Box<dyn LockGuard>>> {
        Ok(self.dir.lock(MERGE_LOCK, LockKind::Exclusive)?)
    }

    /// Takes the merge lock once it is free. A merge may take minutes, so the wait has no limit.
    pub fn merge_lock(&self) -> Result<Box<dyn LockGuard>> {
        lock_waiting(&*self.dir, MERGE_LOCK, &shown(MERGE_LOCK), &|_| false)
    }

    fn create(&self, name_of: impl Fn(FileId) -> String) -> Result<NewFile> {
        loop {
            let id = FileId {
                unique: self.unique,
                number: self.next_number.fetch_add(1, Ordering::Relaxed),
            };
            let name = name_of(id);
            match self.dir.create(&name) {
                Ok(disk) => return Ok(NewFile { id, name, disk }),
                Err(error) if error.kind == ErrorKind::Exists => continue,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Deletes the index in `dir`, damaged or not, while others may have it open. Needs no space. Files that living openers
/// have not entered yet stay, because they will be entered into the empty index that remains.
pub fn delete(dir: &dyn Dir) -> Result<()> {
    let _lock = lock(dir, &|_| false)?;
    // files of a damaged index are removed as those of dead openers, now or when the index is next opened
    let manifest = read_manifest(dir).unwrap_or_default();
    remove_if_there(dir, MANIFEST)?;
    dir.sync()?;
    manifest
        .file_names()
        .try_for_each(|name| remove_if_there(dir, &name))?;
    remove_orphans(dir, &IndexManifest::default(), None)?;
    Ok(dir.sync()?)
}

fn lock(dir: &dyn Dir, gives_up: &dyn Fn(u64) -> bool) -> Result<Box<dyn LockGuard>> {
    lock_waiting(dir, LOCK, &shown(LOCK), gives_up)
}

fn shown(lock: &str) -> String {
    format!("the index's lock `{lock}`")
}

fn owner_name(unique: u64) -> String {
    format!("owner-{unique:016x}")
}

fn own(dir: &dyn Dir, mut unique: u64) -> Result<(u64, Box<dyn LockGuard>)> {
    loop {
        if let Some(guard) = dir.lock(&owner_name(unique), LockKind::Exclusive)? {
            return Ok((unique, guard));
        }
        unique = unique.wrapping_add(1);
    }
}

fn read_manifest(dir: &dyn Dir) -> Result<IndexManifest> {
    let Some(disk) = if_there(dir.open(MANIFEST))? else {
        return Ok(IndexManifest::default());
    };
    let len = disk.len()?;
    if len > FOOTER_BYTES_MAX {
        return Err(Error::damaged(
            MANIFEST,
            0,
            format!("{len} bytes, expected at most {FOOTER_BYTES_MAX}"),
        ));
    }
    let mut bytes = vec![0; len as usize];
    disk.read_at(&mut bytes, 0)
        .map_err(|error| Error::from_read(error, MANIFEST))?;
    IndexManifest::decode(&bytes, MANIFEST)
}

/// Removes files that stand in no manifest and whose owner is dead, or is `own`, this opener, which has just begun. The
/// caller holds the lock.
fn remove_orphans(dir: &dyn Dir, manifest: &IndexManifest, own: Option<u64>) -> Result<()> {
    let named: HashSet<String> = manifest.file_names().collect();
    let mut by_owner: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for entry in dir
        .list()?
        .into_iter()
        .filter(|entry| !named.contains(&entry.name))
    {
        if let Some(owner) = owner_of(&entry.name) {
            by_owner.entry(owner).or_default().push(entry.name);
        }
    }
    for (owner, names) in by_owner {
        let is_own = own == Some(owner);
        let guard = if is_own {
            None
        } else {
            match dir.lock(&owner_name(owner), LockKind::Exclusive) {
                // The lock file is another user's, or no file: the owner counts as alive.
                Err(error) if matches!(error.kind, ErrorKind::Denied | ErrorKind::NotAFile) => None,
                other => other?,
            }
        };
        if !is_own && guard.is_none() {
            continue;
        }
        for name in names
            .iter()
            .filter(|name| !is_own || !name.starts_with("owner-"))
        {
            remove_if_there(dir, name)?;
        }
        if !is_own {
            remove_if_there(dir, &owner_name(owner))?;
        }
    }
    Ok(())
}

/// The owner's number in a file's name; `None` for other names and for files that were set aside.
fn owner_of(name: &str) -> Option<u64> {
    if is_aside(name) {
        return None;
    }
    let (kind, rest) = name.split_once('-')?;
    matches!(kind, "log" | "run" | "tmp" | "owner").then(|| hex_number(rest.get(..16)?, 16))?
}
