//! Removes everything in restored folders of the target that is not in the snapshot.
//!
//! Invariant: only folders that the snapshot has are looked into, each opened beneath the target. A name that the
//! snapshot's folder has is removed only where it is a folder here and none there. Nothing is removed where the backup
//! could not list, nor above the sources of the backup, nor from other file systems, nor from folders that the caller
//! keeps. Names of a folder come in order from both sides, and are compared step by step: neither side is in RAM as a
//! whole.

use std::os::fd::{AsFd, OwnedFd};

use onefold_store::ChunkReader;
use rustix::io::Errno;

use super::Options;
use super::remove::Remover;
use super::shut;
use super::target::TargetFolder;
use super::times::may_be_same;
use crate::folder_stack::{FolderStack, StackStep};
use crate::meta::Stat;
use crate::path::{self, join};
use crate::snapshot::Snapshot;
use crate::tree::Tree;
use crate::walk::names::{PASS_BYTES_MAX, SortedNames};
use crate::{Entry, Events, Kind, Progress, Result};

/// Removes everything from restored folders of the target that the snapshot's folders do not have; a dry run only
/// counts. Returns how many things were removed, and how many paths failed; failures are reported.
pub fn delete_others(
    snapshot: &Snapshot,
    tree: &Tree,
    options: &Options,
    target: &TargetFolder,
    reader: &mut ChunkReader,
    progress: &Progress,
    events: &dyn Events,
) -> Result<(u64, u64)> {
    let from = &options.path[..];
    let top = EnteredFolder {
        is_unlisted: is_unlisted(tree, from, reader)?,
        is_left: false,
        mode_before: None,
    };
    let mut deleting = Deleting {
        has_errors: snapshot.summary.errors > 0,
        sources: &snapshot.paths,
        from,
        target,
        remover: Remover::new(options, target, progress, events),
        events,
        stack: FolderStack::new(tree, from.to_vec(), top),
        current: None,
    };
    let done = deleting.pass(tree, reader, progress);
    deleting.shut_all_again();
    done?;
    Ok((deleting.remover.removed, deleting.remover.errors))
}

/// Whether `folder`, or one above it, could not be listed.
fn is_unlisted(tree: &Tree, folder: &[u8], reader: &mut ChunkReader) -> Result<bool> {
    let mut at = folder;
    while !at.is_empty() {
        let entry = tree.entry(at, reader)?;
        if entry.is_some_and(|entry| entry.is_unlisted()) {
            return Ok(true);
        }
        at = path::split(at).0;
    }
    Ok(false)
}

/// A folder of the snapshot that the pass is in.
#[derive(Clone, Copy)]
struct EnteredFolder {
    /// Whether this folder, or one above it, could not be listed by the backup.
    is_unlisted: bool,
    /// Whether the folder stays as it is in the target, with everything below. That was reported, here or for a folder
    /// above.
    is_left: bool,
    /// The folder's mode before its owner was let in.
    mode_before: Option<u16>,
}

struct Deleting<'a> {
    has_errors: bool,
    sources: &'a [Vec<u8>],
    from: &'a [u8],
    target: &'a TargetFolder,
    remover: Remover<'a>,
    events: &'a dyn Events,
    stack: FolderStack<'a, EnteredFolder>,
    /// Innermost folder in the target, where something may be deleted.
    current: Option<OpenTargetFolder>,
}

/// An open folder of the target.
struct OpenTargetFolder {
    dir: OwnedFd,
    device: u64,
    place: Vec<u8>,
    names: SortedNames,
}

impl Deleting<'_> {
    /// Goes through the snapshot once.
    fn pass(&mut self, tree: &Tree, reader: &mut ChunkReader, progress: &Progress) -> Result<()> {
        let mut cursor = tree.cursor_at(self.from, b"");
        let mut is_at_top = true;
        loop {
            progress.check()?;
            let next = match cursor.next(reader) {
                Ok(next) => next.filter(|(folder, _)| path::within(folder, self.from)),
                // The lost names are not known, so nothing can be said to be missing in the snapshot. The restore
                // reports which entries are lost.
                Err(error) if error.is_loss() => {
                    let what = "nothing more is deleted: what the snapshot has from here on cannot be read";
                    let here = self.stack.path_below_top();
                    self.events.warning(here, what);
                    break;
                }
                Err(error) => return Err(error),
            };
            let folder = next.as_ref().map(|(folder, _)| &folder[..]);
            if std::mem::take(&mut is_at_top) {
                match folder {
                    None => self.clear_empty(self.from),
                    Some(first) if first == self.from => self.open(self.from),
                    Some(_) => {}
                }
            }
            self.lead(folder, reader)?;
            match next {
                Some((_, entry)) => self.known(entry),
                None => break,
            }
        }
        Ok(())
    }

    /// Leads to the folder `to`, or to the end. Folders on the way that are empty in the snapshot are cleared.
    fn lead(&mut self, to: Option<&[u8]>, reader: &mut ChunkReader) -> Result<()> {
        if to == Some(self.stack.path()) {
            return Ok(());
        }
        // All names that the snapshot has in this folder have come.
        self.remove_up_to(None);
        self.current = None;
        loop {
            match self.stack.step(to, reader)? {
                StackStep::There => break,
                StackStep::Left(level) => {
                    let place = join(self.stack.path_below_top(), &level.name);
                    self.shut_again(&place, level.state);
                }
                StackStep::Past(entry) => {
                    let folder = self.below(&entry);
                    let path = join(self.stack.path(), &entry.name);
                    self.stack.enter(entry.name, folder);
                    self.clear_empty(&path);
                }
                StackStep::Into(name, entry) => {
                    let folder = match entry {
                        Some(entry) => self.below(&entry),
                        None => EnteredFolder {
                            mode_before: None,
                            ..self.stack.innermost().state
                        },
                    };
                    self.stack.enter(name, folder);
                }
            }
        }
        if let Some(to) = to {
            self.open(to);
        }
        Ok(())
    }

    /// Makes the state of a folder that lies in the innermost one.
    fn below(&self, entry: &Entry) -> EnteredFolder {
        let above = self.stack.innermost().state;
        EnteredFolder {
            is_unlisted: above.is_unlisted || entry.is_unlisted(),
            is_left: above.is_left,
            mode_before: None,
        }
    }

    /// Clears the innermost folder, which is empty in the snapshot. A listing that broke off after the folder's entry
    /// was written left no flag: it looks like an empty folder of a backup with errors.
    fn clear_empty(&mut self, path: &[u8]) {
        let state = self.stack.innermost().state;
        if self.has_errors && !state.is_unlisted {
            let what = "nothing is deleted here: it is empty in a backup that had errors, and may not have been listed";
            return self.events.warning(&path[self.from.len()..], what);
        }
        self.open(path);
        self.remove_up_to(None);
        self.current = None;
    }

    /// Opens the innermost folder in the target, if anything may be deleted there.
    fn open(&mut self, path: &[u8]) {
        let place = &path[self.from.len()..];
        if self.only_leads_to_sources(path) {
            return;
        }
        let state = self.stack.innermost().state;
        if state.is_unlisted {
            let what = "nothing is deleted here: the backup could not list this folder";
            return self.events.warning(place, what);
        }
        if state.is_left {
            return;
        }
        let opened = self.open_in_target(place).and_then(|dir| {
            let stat = Stat::of(&dir)?;
            Ok((dir, stat))
        });
        match opened {
            Ok((_, stat)) if self.remover.keeps(&stat, place) => {
                self.stack.innermost_mut().state.is_left = true;
            }
            Ok((dir, stat)) => {
                self.current = Some(OpenTargetFolder {
                    dir,
                    device: stat.device,
                    place: place.to_vec(),
                    names: SortedNames::new(PASS_BYTES_MAX),
                });
            }
            // A folder that is missing, or in whose place something will be replaced, has nothing to remove.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(Errno::XDEV) => {
                self.remover.leave_mounted(place);
                self.stack.innermost_mut().state.is_left = true;
            }
            Err(Errno::ACCESS) if self.would_be_let_into(place) => {
                self.remover.leave_shut(place);
                self.stack.innermost_mut().state.is_left = true;
            }
            Err(e) => self.remover.failed("open the folder", place, e),
        }
    }

    /// Whether this is a dry run, and a real run would open this folder to its owner.
    fn would_be_let_into(&self, place: &[u8]) -> bool {
        let (above, name) = path::split(place);
        let above = self.target.open_unmounted(above);
        self.remover.options.dry_run && above.is_ok_and(|above| shut::is_own(above, name))
    }

    /// Opens the innermost folder. Its mode comes back when the pass [leaves it](Self::shut_again).
    fn open_in_target(&mut self, place: &[u8]) -> Result<OwnedFd, Errno> {
        let is_real = !self.remover.options.dry_run && !place.is_empty();
        let dir = match self.target.open_unmounted(place) {
            Err(Errno::ACCESS) if is_real => {
                let (above, name) = path::split(place);
                let mode = shut::let_into(self.target.open_unmounted(above)?, name)?;
                self.stack.innermost_mut().state.mode_before = mode;
                self.target.open_unmounted(place)?
            }
            other => other?,
        };
        let is_kept = self.remover.options.keeps(&Stat::of(&dir)?);
        if is_real && !is_kept {
            let mode = shut::let_in(&dir)?;
            let before = &mut self.stack.innermost_mut().state.mode_before;
            *before = before.or(mode);
        }
        Ok(dir)
    }

    /// Gives a folder its own mode back, once everything in it has passed, since the restore may keep that mode.
    fn shut_again(&self, place: &[u8], folder: EnteredFolder) {
        if let Some(mode) = folder.mode_before
            && let Ok(dir) = self.target.open_unmounted(place)
        {
            shut::shut_again(&dir, mode);
        }
    }

    /// Gives all open folders their own modes back, where the pass ends early.
    fn shut_all_again(&mut self) {
        while let Some(level) = self.stack.up() {
            let place = join(self.stack.path_below_top(), &level.name);
            self.shut_again(&place, level.state);
        }
    }

    /// Whether the backup took only the way to its sources from this folder: nothing else in it was looked at.
    fn only_leads_to_sources(&self, path: &[u8]) -> bool {
        let mut sources = self.sources.iter();
        !sources.clone().any(|source| path::within(path, source))
            && sources.any(|source| path::within(source, path))
    }

    /// Takes the next entry of the innermost folder.
    fn known(&mut self, entry: Entry) {
        let is_there = self.remove_up_to(Some(&entry.name));
        if entry.is_dir() {
            self.stack.met(entry);
        } else if is_there && !entry.is_unreadable() {
            self.make_way(&entry);
        }
    }

    /// Removes a folder where the snapshot has something else, with everything in it, if things in the target are to be
    /// replaced.
    fn make_way(&mut self, entry: &Entry) {
        let Some(open) = &self.current else {
            return;
        };
        let Ok(there) = Stat::at(&open.dir, &entry.name, false) else {
            return;
        };
        let has_same_time = || may_be_same(entry.mtime, there.mtime);
        let overwrite = self.remover.options.overwrite;
        if there.kind == Kind::Dir
            && !overwrite.keeps(&there, (entry.mode, entry.size), entry.mtime, has_same_time)
        {
            let place = join(&open.place, &entry.name);
            let dir = open.dir.as_fd();
            self.remover.remove(dir, open.device, &entry.name, &place);
        }
    }

    /// Removes the names before `known`, which stays, or all remaining names. Returns whether `known` is there.
    fn remove_up_to(&mut self, known: Option<&[u8]>) -> bool {
        let mut is_there = false;
        let Some(open) = &mut self.current else {
            return is_there;
        };
        loop {
            let name = match open.names.next_up_to(&open.dir, known) {
                Ok(Some(name)) => name,
                Ok(None) => return is_there,
                Err(e) => {
                    self.remover.failed("list", &open.place, e);
                    self.current = None;
                    return is_there;
                }
            };
            if known == Some(&name[..]) {
                is_there = true;
                continue;
            }
            let place = join(&open.place, &name);
            let dir = open.dir.as_fd();
            self.remover.remove(dir, open.device, &name, &place);
        }
    }
}
