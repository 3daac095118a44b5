//! Removes a name of the target with everything below it.
//!
//! Invariant: nothing is removed from another file system than the name's own, nor from a folder that is kept; a folder
//! that holds such a folder stays, too. Failures are reported and counted, and the rest goes on.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::Options;
use super::shut;
use super::target::{REMOVE, TargetFolder, open_unmounted};
use crate::meta::Stat;
use crate::walk::names::SortedNames;
use crate::{Change, Events, Kind, Progress, path};

/// RAM for names of a folder while it is removed, in bytes; the folders that it lies in take as much each.
const NAMES_BYTES: usize = 4 << 20;

/// Removes things, or counts them in a dry run.
pub struct Remover<'a> {
    pub options: &'a Options,
    target: &'a TargetFolder,
    progress: &'a Progress,
    events: &'a dyn Events,
    /// Things that were removed.
    pub removed: u64,
    /// Paths that failed.
    pub errors: u64,
}

impl<'a> Remover<'a> {
    /// Makes a remover that has removed nothing yet.
    pub fn new(
        options: &'a Options,
        target: &'a TargetFolder,
        progress: &'a Progress,
        events: &'a dyn Events,
    ) -> Self {
        Self {
            options,
            target,
            progress,
            events,
            removed: 0,
            errors: 0,
        }
    }

    /// Removes `name` in `dir`, a folder on `device`; `place` is its path in the target.
    pub fn remove(&mut self, dir: BorrowedFd<'_>, device: u64, name: &[u8], place: &[u8]) {
        let is_gone = self.remove_all(dir, device, name, place);
        if is_gone && self.events.wants_entries() {
            self.events.entry(place, Change::Removed, 0);
        }
    }

    /// Whether the folder at `place` is one that is kept; if so, a warning says it.
    pub fn keeps(&self, stat: &Stat, place: &[u8]) -> bool {
        let is_kept = self.options.keeps(stat);
        if is_kept {
            let what = "nothing is deleted here: the repository that is restored from is here";
            self.events.warning(place, what);
        }
        is_kept
    }

    /// Warns that something is mounted at `place` and stays.
    pub fn leave_mounted(&self, place: &[u8]) {
        let what = "nothing is deleted here: it is another file system";
        self.events.warning(place, what);
    }

    /// Warns that a dry run does not look into a folder that is shut to its owner; a real run opens it.
    pub fn leave_shut(&self, place: &[u8]) {
        let what =
            "not looked into: the folder is shut, and what would be deleted in it is not counted";
        self.events.warning(place, what);
    }

    /// Reports a failure at `place`.
    pub fn failed(&mut self, op: &'static str, place: &[u8], e: Errno) {
        self.errors += 1;
        Progress::add(&self.progress.errors, 1);
        self.events.error(place, &self.target.error(op, place, e));
    }

    /// Removes a name with everything below it. Returns whether it is gone, or would be.
    fn remove_all(&mut self, dir: BorrowedFd<'_>, device: u64, name: &[u8], place: &[u8]) -> bool {
        let stat = match Stat::at(dir, name, false) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return true,
            Err(e) => {
                self.failed("stat", place, e);
                return false;
            }
        };
        if stat.kind != Kind::Dir {
            return self.remove_one(dir, name, place, AtFlags::empty());
        }
        if self.keeps(&stat, place) || !self.clear(dir, device, name, place) {
            return false;
        }
        self.remove_one(dir, name, place, AtFlags::REMOVEDIR)
    }

    /// Removes everything in a folder. Returns whether nothing is left.
    fn clear(&mut self, dir: BorrowedFd<'_>, device: u64, name: &[u8], place: &[u8]) -> bool {
        let mut opened = open_unmounted(dir, name, device);
        if !self.options.dry_run {
            // The folder is removed anyway, so it need not get its mode back.
            if matches!(opened, Err(Errno::ACCESS))
                && matches!(shut::let_into(dir, name), Ok(Some(_)))
            {
                opened = open_unmounted(dir, name, device);
            }
            let _ = opened.as_ref().map(shut::let_in);
        }
        let folder = match opened {
            Ok(folder) => folder,
            Err(Errno::XDEV) => {
                self.leave_mounted(place);
                return false;
            }
            Err(Errno::ACCESS) if self.options.dry_run && shut::is_own(dir, name) => {
                self.leave_shut(place);
                return true;
            }
            Err(e) => {
                self.failed("open the folder", place, e);
                return false;
            }
        };
        let mut names = SortedNames::new(NAMES_BYTES);
        let mut is_empty = true;
        loop {
            match names.next_up_to(&folder, None) {
                Ok(None) => return is_empty,
                Ok(Some(below)) => {
                    let place = path::join(place, &below);
                    is_empty &= self.remove_all(folder.as_fd(), device, &below, &place);
                }
                Err(e) => {
                    self.failed("list", place, e);
                    return false;
                }
            }
        }
    }

    fn remove_one(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        place: &[u8],
        flags: AtFlags,
    ) -> bool {
        if !self.options.dry_run
            && let Err(e) = rustix::fs::unlinkat(dir, name, flags)
        {
            match e {
                Errno::NOENT => return true,
                // A file that is mounted over another.
                Errno::BUSY => self.leave_mounted(place),
                e => self.failed(REMOVE, place, e),
            }
            return false;
        }
        self.removed += 1;
        Progress::add(&self.progress.deleted, 1);
        true
    }
}
