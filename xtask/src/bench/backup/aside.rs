//! Restored trees of many files are put aside, not deleted one by one.
//!
//! ext4 without a journal takes no inode that was freed within the last minute, or six where its block is dirty, and
//! looks at each before it takes another (`recently_deleted` in the kernel's `fs/ext4/ialloc.c`). Whoever restores
//! behind a deletion pays for it: of 190,000 files 29 s of wall and 50 s of CPU instead of 12 and 18. So trees stay
//! where they are until the run ends or the disk is short of room; after that the next restore waits.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::rates;

/// Trees of fewer files cost nobody anything.
const FILES_MIN: usize = 10_000;
/// With less room on the disk, what was put aside is deleted.
const ROOM_BYTES: u64 = 24 << 30;
/// How long freed inodes are not taken, with a bit more.
const SHUNNED: Duration = Duration::from_secs(370);

/// What was put aside in this run.
pub struct Aside {
    folder: PathBuf,
    trees: Cell<u32>,
    deleted: Cell<Option<Instant>>,
}

impl Aside {
    /// In a folder of the benchmark's data. What an interrupted run left there is deleted.
    pub fn new(data: &Path) -> Result<Self, String> {
        let aside = Self {
            folder: data.join("aside"),
            trees: Cell::default(),
            deleted: Cell::default(),
        };
        aside.clear()?;
        Ok(aside)
    }

    /// Takes a restored tree out of the way.
    pub fn put(&self, tree: &Path) -> Result<(), String> {
        let text = |error: std::io::Error| format!("{}: {error}", tree.display());
        if rates::walk(tree, 8).1.len() < FILES_MIN {
            return std::fs::remove_dir_all(tree).map_err(text);
        }
        std::fs::create_dir_all(&self.folder).map_err(text)?;
        let number = self.trees.replace(self.trees.get() + 1);
        std::fs::rename(tree, self.folder.join(number.to_string())).map_err(text)
    }

    /// Before a restore: there is room, and nothing was deleted a moment ago.
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

impl Drop for Aside {
    fn drop(&mut self) {
        if let Err(error) = self.clear() {
            println!("{error}");
        }
    }
}
