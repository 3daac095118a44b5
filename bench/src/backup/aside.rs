//! Restored trees of many files are set aside, not deleted one by one.
//!
//! ext4 without a journal takes no inode that was freed within the last minute, or six where its block is dirty, and
//! looks at each before it takes another (`recently_deleted` in the kernel's `fs/ext4/ialloc.c`). A restore soon after
//! a deletion pays for it: 190,000 files take 29 s of wall and 50 s of CPU instead of 12 and 18. Trees therefore stay
//! where they are until the run ends or the disk is short of room; after that the next restore waits.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::rates;

/// Smallest number of files in a tree that is set aside.
const FILES_MIN: usize = 10_000;
/// With less room on the disk, in bytes, the trees set aside are deleted.
const ROOM_BYTES: u64 = 24 << 30;
/// The time for which freed inodes are not taken, and a bit more.
const SHUNNED: Duration = Duration::from_secs(370);

/// The trees that were set aside in this run.
pub struct AsideTrees {
    folder: PathBuf,
    trees: Cell<u32>,
    deleted: Cell<Option<Instant>>,
}

impl AsideTrees {
    /// Uses a folder of the benchmark's data; trees left there by an interrupted run are deleted.
    pub fn new(data: &Path) -> Result<Self, String> {
        let aside = Self {
            folder: data.join("aside"),
            trees: Cell::default(),
            deleted: Cell::default(),
        };
        aside.clear()?;
        Ok(aside)
    }

    /// Sets a restored tree aside.
    pub fn put(&self, tree: &Path) -> Result<(), String> {
        let text = |error: std::io::Error| format!("{}: {error}", tree.display());
        if rates::walk(tree, 8).1.len() < FILES_MIN {
            return std::fs::remove_dir_all(tree).map_err(text);
        }
        std::fs::create_dir_all(&self.folder).map_err(text)?;
        let number = self.trees.replace(self.trees.get() + 1);
        std::fs::rename(tree, self.folder.join(number.to_string())).map_err(text)
    }

    /// Makes sure before a restore that there is room, and that nothing was deleted shortly before.
    pub fn make_ready(&self) -> Result<(), String> {
        let data = self.folder.parent().unwrap_or(&self.folder);
        let about = rustix::fs::statvfs(data).map_err(|error| error.to_string())?;
        if about.f_bavail * about.f_frsize < ROOM_BYTES {
            self.clear()?;
        }
        let since = self.deleted.get().map(|deleted| deleted.elapsed());
        let left = since.and_then(|since| SHUNNED.checked_sub(since));
        if let Some(left) = left {
            println!("waiting {} s: many files were deleted", left.as_secs());
            std::thread::sleep(left);
        }
        Ok(())
    }

    fn clear(&self) -> Result<(), String> {
        if self.folder.exists() {
            std::fs::remove_dir_all(&self.folder)
                .map_err(|error| format!("{}: {error}", self.folder.display()))?;
            self.deleted.set(Some(Instant::now()));
        }
        Ok(())
    }
}

impl Drop for AsideTrees {
    fn drop(&mut self) {
        if let Err(error) = self.clear() {
            println!("{error}");
        }
    }
}
