//! The folder of run files: names, numbers, which files are open, and which of them nobody needs any more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use onefold_io::{Dir, Disk, create_anew, hex_number, remove_if_there};
use parking_lot::Mutex;

use super::run_id::RunId;
use crate::Result;
use crate::log::layout::Layout;
use crate::log::seals::Seals;

/// Its name in the depot's folder.
pub const NAME: &str = "map";

/// Files that are open at once: a map of a TiB has some 1,200, and a process may have 1,024. Tests have two.
const OPEN_MAX: usize = if cfg!(test) { 2 } else { 64 };

/// Run files by number. Copies are the same folder.
#[derive(Clone)]
pub struct MapFolder {
    files: Arc<RunFiles>,
    /// Sizes of zones and chunks: what a run says is checked against them.
    pub layout: Layout,
    /// Keys that runs are sealed with, or none.
    pub seals: Seals,
}

struct RunFiles {
    dir: Arc<dyn Dir>,
    next: AtomicU64,
    /// Files that are there, and who holds them.
    there: Mutex<BTreeMap<RunId, Weak<RunFile>>>,
    open: Mutex<OpenRunFiles>,
}

/// The file of a run. It is not removed as long as somebody holds this.
pub struct RunFile {
    files: Arc<RunFiles>,
    id: RunId,
}

/// Files that were used last, open.
#[derive(Default)]
struct OpenRunFiles {
    by_id: HashMap<RunId, (Arc<dyn Disk>, u64)>,
    uses: u64,
}

impl MapFolder {
    /// The folder within a depot's. Files that are not in `listed` are left over from a crash, and are removed. Numbers
    /// are given from `next` on.
    ///
    /// # Errors
    /// The folder cannot be read or changed.
    pub fn open(
        depot: &dyn Dir,
        layout: Layout,
        next: u64,
        listed: &BTreeSet<RunId>,
    ) -> Result<Self> {
        let dir = depot.subdir(NAME)?;
        for entry in dir.list()? {
            let id = hex_number(&entry.name, 16).map(RunId);
            if id.is_none_or(|id| !listed.contains(&id)) {
                remove_if_there(&*dir, &entry.name)?;
            }
        }
        let files = RunFiles {
            dir,
            next: AtomicU64::new(next),
            there: Mutex::new(listed.iter().map(|id| (*id, Weak::new())).collect()),
            open: Mutex::default(),
        };
        Ok(Self {
            files: Arc::new(files),
            layout,
            seals: Seals::none(),
        })
    }

    /// The folder, of which runs are sealed with these keys.
    pub fn sealed_by(self, seals: &Seals) -> Self {
        Self {
            seals: seals.clone(),
            ..self
        }
    }

    /// The number after the last one that was given.
    pub fn next(&self) -> u64 {
        self.files.next.load(Ordering::Relaxed)
    }

    /// A new file, open.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(&self) -> Result<(RunId, Arc<RunFile>, Arc<dyn Disk>)> {
        let id = RunId(self.files.next.fetch_add(1, Ordering::Relaxed));
        let file = self.file(id);
        let disk = create_anew(&*self.files.dir, &file_name(id))?;
        Ok((id, file, disk))
    }

    /// A file, which is held from now on.
    pub fn file(&self, id: RunId) -> Arc<RunFile> {
        let files = Arc::clone(&self.files);
        let file = Arc::new(RunFile { files, id });
        self.files.there.lock().insert(id, Arc::downgrade(&file));
        file
    }

    /// The names of all files made so far are durable when it returns.
    ///
    /// # Errors
    /// The device failed.
    pub fn sync(&self) -> Result<()> {
        Ok(self.files.dir.sync()?)
    }

    /// Removes all files but these and those that somebody holds, who may be a reader, or a merge that goes on.
    ///
    /// # Errors
    /// The folder cannot be changed.
    pub fn keep(&self, listed: &BTreeSet<RunId>) -> Result<()> {
        let mut there = self.files.there.lock();
        let is_needed =
            |id: &RunId, file: &Weak<RunFile>| listed.contains(id) || file.strong_count() > 0;
        let needless = there.iter().filter(|(id, file)| !is_needed(id, file));
        let needless: Vec<RunId> = needless.map(|(id, _)| *id).collect();
        for id in needless {
            self.files.open.lock().by_id.remove(&id);
            remove_if_there(&*self.files.dir, &file_name(id))?;
            there.remove(&id);
        }
        Ok(())
    }
}

impl RunFile {
    /// The open file; opened where it is not among those that were used last.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn disk(&self) -> Result<Arc<dyn Disk>> {
        if let Some(disk) = self.files.open.lock().get(self.id) {
            return Ok(disk);
        }
        let disk = self.files.dir.open(&file_name(self.id))?;
        self.files.open.lock().put(self.id, &disk);
        Ok(disk)
    }
}

impl OpenRunFiles {
    fn get(&mut self, id: RunId) -> Option<Arc<dyn Disk>> {
        self.uses += 1;
        let (disk, used) = self.by_id.get_mut(&id)?;
        *used = self.uses;
        Some(Arc::clone(disk))
    }

    fn put(&mut self, id: RunId, disk: &Arc<dyn Disk>) {
        if self.by_id.len() >= OPEN_MAX {
            let oldest = self.by_id.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(id, _)| *id) {
                self.by_id.remove(&oldest);
            }
        }
        self.uses += 1;
        self.by_id.insert(id, (Arc::clone(disk), self.uses));
    }
}

/// The file's name, as in errors: the number in hexadecimal.
pub fn file_name(id: RunId) -> String {
    format!("{:016x}", id.0)
}
