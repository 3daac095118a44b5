//! Names of files with several names that are in the target and stay there: the file's other names are linked to them.
//!
//! Where everything is written anew, the first name is written and the others are linked to it. Where things in the
//! target may stay, that would split a file: its first name may be missing, and another one there.
//!
//! Invariant: a missing name is linked to a name that is there only if that one is the snapshot's file: its metadata
//! is compared, and its content once a file, when a name is missing. Otherwise the missing name is written anew, and
//! the file's further missing names are linked to it.

use std::os::fd::{AsFd, OwnedFd};

use onefold_store::{ChunkReader, Session};
use rustix::fs::{Mode, OFlags};

use super::Options;
use super::apply::Applier;
use super::compare::{Callbacks, Comparing, has_metadata, open_file};
use super::links::Links;
use super::target::TargetFolder;
use super::times::TimeSteps;
use crate::meta::Stat;
use crate::path::{self, join};
use crate::tree::Tree;
use crate::{Entry, Error, Kind, Progress, Result};

/// Names that are in the target. The snapshot is searched for them when the first file with several names comes.
pub struct ExistingNames<'a> {
    tree: &'a Tree,
    options: &'a Options,
    target: &'a TargetFolder,
    applier: Applier<'a>,
    session: &'a Session,
    progress: &'a Progress,
    times: TimeSteps,
    found: Option<Links>,
    last: LastFolder,
}

/// Finding in the target about one name of a file with several names.
pub enum NameInTarget {
    /// Something stays under the name itself.
    Stays,
    /// The name is missing, or replaced, and the file has another name, at this path in the target.
    HasOther(Vec<u8>),
    /// No name of the file that it could be linked to.
    None,
}

/// Folder of the name that was looked at last, and its descriptor if it is there.
#[derive(Default)]
struct LastFolder(Option<(Vec<u8>, Option<OwnedFd>)>);

impl LastFolder {
    fn open(&mut self, target: &TargetFolder, path: &[u8]) -> Option<&OwnedFd> {
        if self.0.as_ref().is_none_or(|(last, _)| last != path) {
            self.0 = Some((path.to_vec(), target.open_folder(path).ok()));
        }
        self.0.as_ref().and_then(|(_, dir)| dir.as_ref())
    }
}

impl<'a> ExistingNames<'a> {
    /// Prepares the search.
    pub fn new(
        tree: &'a Tree,
        options: &'a Options,
        target: &'a TargetFolder,
        applier: Applier<'a>,
        (session, progress): (&'a Session, &'a Progress),
    ) -> Self {
        Self {
            tree,
            options,
            target,
            applier,
            session,
            progress,
            times: TimeSteps::default(),
            found: None,
            last: LastFolder::default(),
        }
    }

    /// Returns what the target has for the name of `entry`, which goes to `path`. Errors: a temporary file failed; a
    /// leaf cannot be read, except damaged ones, which are skipped.
    pub fn find(
        &mut self,
        entry: &Entry,
        path: &[u8],
        reader: &mut ChunkReader,
    ) -> Result<NameInTarget> {
        let mut found = match self.found.take() {
            Some(found) => found,
            None => self.look_for_all(reader)?,
        };
        let name = self.find_in(&mut found, entry, path, reader)?;
        self.found = Some(found);
        Ok(name)
    }

    fn find_in(
        &mut self,
        found: &mut Links,
        entry: &Entry,
        path: &[u8],
        reader: &mut ChunkReader,
    ) -> Result<NameInTarget> {
        let (folder, name) = path::split(path);
        let mut last = std::mem::take(&mut self.last);
        let dir = last.open(self.target, folder);
        let there = dir.and_then(|dir| Some((dir, Stat::at(dir, name, false).ok()?)));
        let stays = there.is_some_and(|(dir, there)| self.stays(dir, entry, &there));
        self.last = last;
        if stays {
            return Ok(NameInTarget::Stays);
        }
        let Some(other) = found.meet(entry)? else {
            return Ok(NameInTarget::None);
        };
        if !other.is_compared {
            if !self.has_content(entry, &other.path, reader) {
                found.forget(entry)?;
                return Ok(NameInTarget::None);
            }
            found.insert_compared(entry, &other.path)?;
        }
        Ok(NameInTarget::HasOther(other.path))
    }

    /// Searches the snapshot for names that are there with the snapshot's metadata.
    fn look_for_all(&self, reader: &mut ChunkReader) -> Result<Links> {
        let top = &self.options.path[..];
        let mut cursor = self.tree.cursor_at(top, b"");
        let mut found = Links::new(self.options.hard_links_bytes);
        let mut last = LastFolder::default();
        loop {
            let (folder, entry) = match cursor.next(reader) {
                Ok(Some(next)) => next,
                Ok(None) => return Ok(found),
                Err(error) if error.is_loss() && cursor.pass_over().is_some() => continue,
                Err(error) => return Err(error),
            };
            if !path::within(&folder, top) {
                return Ok(found);
            }
            if entry.is_dir() || entry.links < 2 || entry.is_unreadable() {
                continue;
            }
            let in_target = &folder[top.len()..];
            let dir = last.open(self.target, in_target);
            let serves = dir.is_some_and(|dir| self.serves(dir, &entry));
            if serves && found.meet(&entry)?.is_none() {
                // A name is met by the names that follow here, and by all when they are restored: twice as often as
                // there are names.
                let names = u32::try_from(entry.links).unwrap_or(u32::MAX);
                let path = join(in_target, &entry.name);
                found.insert(&entry, path, names.saturating_mul(2))?;
            }
        }
    }

    /// Whether the thing in `dir` under the name of `entry` stays there, and is the snapshot's by its metadata.
    fn serves(&self, dir: &OwnedFd, entry: &Entry) -> bool {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(fd) = rustix::fs::openat(dir, &entry.name[..], flags, Mode::empty()) else {
            return false;
        };
        let has_metadata =
            |there: &Stat| has_metadata((dir, &fd, there), entry, self.applier, &self.times);
        Stat::of(&fd).is_ok_and(|there| self.stays(dir, entry, &there) && has_metadata(&there))
    }

    /// Whether `there`, in `dir` under the name of `entry`, stays, as the user asked.
    fn stays(&self, dir: &OwnedFd, entry: &Entry, there: &Stat) -> bool {
        let looks = (entry.mode, entry.size);
        let has_same_time = || self.times.is_same(dir.as_fd(), entry.mtime, there);
        let overwrite = self.options.overwrite;
        overwrite.keeps(there, looks, entry.mtime, has_same_time)
    }

    /// Whether the file at `path` in the target has the content of `entry`. What cannot be read does not.
    fn has_content(&self, entry: &Entry, path: &[u8], reader: &mut ChunkReader) -> bool {
        if entry.kind != Kind::File {
            return true;
        }
        let (folder, name) = path::split(path);
        let dir = self.target.open_folder(folder).ok();
        let Some(opened) = dir.and_then(|dir| open_file(&dir, name, entry.size).ok()) else {
            return false;
        };
        let callbacks = Callbacks {
            step: &|_| self.progress.check(),
            failed: &|e| Error::io("read", path, e),
        };
        let mut comparing = Comparing::new(self.session, &opened);
        comparing.compare_all(entry, reader, &callbacks).is_ok()
    }
}
