//! The folder of run files: names, numbers, and which of them nobody needs any more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_io::{Dir, Disk, create_anew, hex_number, remove_if_there};
use parking_lot::Mutex;

use super::run_page::RunId;
use crate::Result;
use crate::log::layout::Layout;

/// Its name in the depot's folder.
pub const NAME: &str = "map";

/// Run files by number.
pub struct MapFolder {
    dir: Arc<dyn Dir>,
    /// Sizes of zones and chunks: what a run says is checked against them.
    pub layout: Layout,
    next: AtomicU64,
    /// Files that are there.
    there: Mutex<BTreeSet<RunId>>,
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
        Ok(Self {
            dir,
            layout,
            next: AtomicU64::new(next),
            there: Mutex::new(listed.clone()),
        })
    }

    /// The number after the last one that was given.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// A new file.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(&self) -> Result<(RunId, Arc<dyn Disk>)> {
        let id = RunId(self.next.fetch_add(1, Ordering::Relaxed));
        let disk = create_anew(&*self.dir, &file_name(id))?;
        self.there.lock().insert(id);
        Ok((id, disk))
    }

    /// A file that is there.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn disk(&self, id: RunId) -> Result<Arc<dyn Disk>> {
        Ok(self.dir.open(&file_name(id))?)
    }

    /// The names of all files made so far are durable when it returns.
    ///
    /// # Errors
    /// The device failed.
    pub fn sync(&self) -> Result<()> {
        Ok(self.dir.sync()?)
    }

    /// Removes all files but these. Runs that readers still hold stay readable.
    ///
    /// # Errors
    /// The folder cannot be changed.
    pub fn keep(&self, listed: &BTreeSet<RunId>) -> Result<()> {
        let mut there = self.there.lock();
        for id in there.difference(listed) {
            remove_if_there(&*self.dir, &file_name(*id))?;
        }
        there.retain(|id| listed.contains(id));
        Ok(())
    }
}

/// The file's name, as in errors: the number in hexadecimal.
pub fn file_name(id: RunId) -> String {
    format!("{:016x}", id.0)
}
