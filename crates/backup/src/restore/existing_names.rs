//! Names of files with several names that are in the target and stay there: the file's other names are linked to them.
//!
//! Where everything is written anew, the first name is written and the others are linked to it. Where things in the
//! target may stay, that would split a file: its first name may be missing, and another one there. Any name serves that
//! is there and looks as the snapshot says.

use std::os::fd::{AsFd, OwnedFd};

use onefold_store::ChunkReader;

use super::Options;
use super::apply::Applier;
use super::links::Links;
use super::target::Target;
use super::times::TimeSteps;
use crate::meta::{Stat, link_target};
use crate::path::{self, join};
use crate::tree::Tree;
use crate::{Entry, Kind, Result};

/// Names that are in the target. The snapshot is searched for them when the first file with several names comes.
pub struct ExistingNames<'a> {
    tree: &'a Tree,
    options: &'a Options,
    target: &'a Target,
    applier: Applier<'a>,
    times: TimeSteps,
    found: Option<Links>,
}

impl<'a> ExistingNames<'a> {
    /// Prepares the search.
    pub fn new(
        tree: &'a Tree,
        options: &'a Options,
        target: &'a Target,
        applier: Applier<'a>,
    ) -> Self {
        Self {
            tree,
            options,
            target,
            applier,
            times: TimeSteps::default(),
            found: None,
        }
    }

    /// Returns the path in the target of a name of the same file that is there. Errors: a temporary file failed; a leaf
    /// cannot be read, except damaged ones, which are skipped.
    pub fn find(&mut self, entry: &Entry, reader: &mut ChunkReader) -> Result<Option<Vec<u8>>> {
        let found = match self.found.take() {
            Some(found) => found,
            None => self.look_for_all(reader)?,
        };
        self.found.insert(found).meet(entry)
    }

    fn look_for_all(&self, reader: &mut ChunkReader) -> Result<Links> {
        let top = &self.options.path[..];
        let mut cursor = self.tree.cursor_at(top, b"");
        let mut found = Links::new(self.options.hard_links_bytes);
        // Folder of the last name, and its descriptor if it is there.
        let mut last: Option<(Vec<u8>, Option<OwnedFd>)> = None;
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
            let in_target = folder[top.len()..].to_vec();
            let dir = match last.take() {
                Some((at, dir)) if at == in_target => dir,
                _ => self.target.open_folder(&in_target).ok(),
            };
            let stays = dir.as_ref().is_some_and(|dir| self.stays(dir, &entry));
            if stays && found.meet(&entry)?.is_none() {
                // A name is met by the names that follow here, and by all when they are restored: twice as often as
                // there are names.
                let names = u32::try_from(entry.links).unwrap_or(u32::MAX);
                let path = join(&in_target, &entry.name);
                found.insert(&entry, path, names.saturating_mul(2))?;
            }
            last = Some((in_target, dir));
        }
    }

    /// Whether the thing in `dir` under the name of `entry` stays there, and looks as the snapshot says.
    fn stays(&self, dir: &OwnedFd, entry: &Entry) -> bool {
        let Ok(there) = Stat::at(dir, &entry.name, false) else {
            return false;
        };
        let is_owners = || {
            let expected = self.applier.uid_of(&entry.owner);
            expected.is_none_or(|expected| there.uid == expected)
        };
        let content_is_same = || match entry.kind {
            Kind::File => there.size == entry.size,
            Kind::Symlink => {
                link_target(dir, &entry.name).is_ok_and(|target| target == entry.target)
            }
            Kind::CharDevice | Kind::BlockDevice => there.rdev == entry.rdev,
            Kind::Fifo | Kind::Socket => true,
            Kind::Dir => false,
        };
        let has_same_time = || self.times.is_same(dir.as_fd(), entry.mtime, &there);
        let (overwrite, looks) = (self.options.overwrite, (entry.mode, entry.size));
        there.kind == entry.kind
            && content_is_same()
            && is_owners()
            && has_same_time()
            && overwrite.keeps(&there, looks, entry.mtime, || true)
    }
}
