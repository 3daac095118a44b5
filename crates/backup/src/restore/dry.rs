//! A dry run of a window: nothing is touched, but the target is looked at as the real run would.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::leading::Leading;
use super::open_folders::{OpenFolders, open};
use super::shut;
use super::target::TargetFolder;
use super::temporary::CurrentName;
use super::times::may_be_same;
use super::window::{FileState, FolderFate, Made, Window, WindowFolder};
use super::{Options, RestoreSummary, UNREAD_ATTRIBUTES};
use crate::meta::Stat;
use crate::open_files::folders_max;
use crate::walk::names::SortedNames;
use crate::{Change, Events, Kind, Time};

/// Counts the things of the window that would stay as they are in the target, and reports what each thing would become.
/// Files that would be made are marked as made, and files that would stay as skipped; a file that an earlier window has
/// begun is not reported again. Without a target, nothing is there yet.
pub fn look(
    window: &Window,
    target: Option<&TargetFolder>,
    options: &Options,
    leading: &Leading<'_>,
    events: &dyn Events,
    summary: &mut RestoreSummary,
) {
    let mut look = DryRun {
        window,
        target,
        options,
        leading,
        events,
        summary,
        last: None,
        folders: Mutex::new(OpenFolders::new(folders_max())),
    };
    look.at_folders();
    for file in &window.files {
        let mut state = file.state.lock();
        if *state == FileState::Planned {
            let what = (Kind::File, file.size);
            *state = look.at(
                (file.folder, &file.name),
                what,
                file.meta.mode,
                file.meta.mtime,
            );
            if matches!(*state, FileState::Made(_)) {
                look.attributes(file.meta.knows_xattrs, || window.path_of(file));
            }
        }
    }
    let specials = window.specials.iter();
    let specials = specials.map(|one| (one.folder, &one.entry, one.first.is_some()));
    let links = window.links.iter();
    let links = links.map(|one| (one.folder, &one.entry, true));
    for (folder, entry, is_further) in specials.chain(links) {
        let state = look.at(
            (folder, &entry.name),
            (entry.kind, entry.size),
            entry.mode,
            entry.mtime,
        );
        // A further name has the attributes of the first.
        if matches!(state, FileState::Made(_)) && !is_further {
            let path = || window.path_in(folder, &entry.name);
            look.attributes(entry.knows_xattrs(), path);
        }
    }
}

/// Reports something that would be restored without its attributes, if the snapshot does not know them.
pub fn attributes(
    knows_xattrs: bool,
    options: &Options,
    events: &dyn Events,
    summary: &mut RestoreSummary,
    path: impl FnOnce() -> Vec<u8>,
) {
    if options.xattrs.misses(knows_xattrs) {
        summary.unread_attributes += 1;
        events.warning(&path(), UNREAD_ATTRIBUTES);
    }
}

/// State of a file that would be made.
const MADE: Made = Made {
    inode: 0,
    place: CurrentName::Own,
};

/// The thing in the target where a folder of the snapshot is to be.
#[derive(Clone)]
enum There {
    /// A folder.
    Folder(Arc<OwnedFd>),
    /// A folder that a real run would open to its owner, and that a dry run does not look into.
    Shut(Stat),
    /// Nothing, or something that will be replaced.
    Nothing,
    /// Something that stays, here or in place of a folder above.
    Stays,
    /// Something that cannot be looked at.
    Fails(Errno),
}

struct DryRun<'a> {
    window: &'a Window,
    target: Option<&'a TargetFolder>,
    options: &'a Options,
    leading: &'a Leading<'a>,
    events: &'a dyn Events,
    summary: &'a mut RestoreSummary,
    /// Number of the folder that was looked at last, and the result.
    last: Option<(u32, There)>,
    folders: Mutex<OpenFolders>,
}

impl DryRun<'_> {
    fn at_folders(&mut self) {
        for (number, folder) in self.window.folders.iter().enumerate().rev() {
            let Some(meta) = folder.meta.as_ref().filter(|_| !folder.continues) else {
                continue;
            };
            let fate = match self.there(number as u32) {
                There::Folder(dir) => Stat::of(&*dir).map(|there| self.fate(folder, &there)),
                There::Shut(there) => Ok(self.fate(folder, &there)),
                There::Nothing => Ok(FolderFate::Described),
                There::Stays => Err(Errno::EXIST),
                There::Fails(e) => Err(e),
            };
            let error = match fate {
                Ok(fate) => {
                    self.at_folder(number as u32, meta.knows_xattrs, fate);
                    continue;
                }
                Err(e) => e,
            };
            self.summary.failed_dirs += u64::from(folder.is_asked_for);
            let is_outermost =
                error != Errno::EXIST || !matches!(self.there(folder.parent), There::Stays);
            if is_outermost {
                let path = self.window.path(number as u32);
                let there = match self.there(folder.parent) {
                    There::Folder(above) => Stat::at(&*above, &folder.name, false).ok(),
                    _ => None,
                };
                let why = self.leading.explain(error, there.as_ref(), &path);
                self.fails("create the folder", &path, why);
            }
        }
    }

    fn fate(&self, folder: &WindowFolder, there: &Stat) -> FolderFate {
        let has_same_time = |mtime| may_be_same(mtime, there.mtime);
        FolderFate::of(folder, there, self.options.overwrite, has_same_time)
    }

    fn at_folder(&mut self, number: u32, knows_xattrs: bool, fate: FolderFate) {
        let (folder, path) = (
            &self.window.folders[number as usize],
            self.window.path(number),
        );
        let is_kept = fate == FolderFate::Kept;
        if !is_kept {
            self.attributes(knows_xattrs, || path.clone());
        } else if folder.is_asked_for {
            self.summary.skipped_dirs += 1;
        } else {
            return;
        }
        if self.events.wants_entries() {
            let change = if is_kept {
                Change::Unchanged
            } else {
                Change::New
            };
            self.events.entry(&path, change, 0);
        }
    }

    /// Reports and counts what becomes of something in a folder.
    fn at(
        &mut self,
        (folder, name): (u32, &[u8]),
        what: (Kind, u64),
        mode: u16,
        mtime: Time,
    ) -> FileState {
        let path = self.window.path_in(folder, name);
        let known = self.last.take().filter(|(last, _)| *last == folder);
        let (_, there) = known.unwrap_or_else(|| (folder, self.there(folder)));
        self.last = Some((folder, there.clone()));
        let dir = match there {
            There::Stays => {
                self.stays(what);
                return FileState::Skipped;
            }
            There::Fails(e) => {
                self.fails("create", &path, e);
                return self.failed(what);
            }
            There::Nothing | There::Shut(_) => None,
            There::Folder(dir) => Some(dir),
        };
        let is_kept =
            |dir: &Arc<OwnedFd>| Stat::of(dir).is_ok_and(|there| self.options.keeps(&there));
        if dir.as_ref().is_some_and(is_kept) {
            let what_is_there =
                "nothing would be restored here: the repository that is restored from is here";
            self.events.warning(&path, what_is_there);
            self.summary.errors += 1;
            return self.failed(what);
        }
        let there = dir.and_then(|dir| Stat::at(&*dir, name, false).ok());
        let change = there.map_or(Change::New, |there| {
            let has_same_time = || may_be_same(mtime, there.mtime);
            let overwrite = self.options.overwrite;
            if overwrite.keeps(&there, (mode, what.1), mtime, has_same_time) {
                Change::Unchanged
            } else {
                Change::Modified
            }
        });
        let is_dir = there.is_some_and(|there| there.kind == Kind::Dir);
        if is_dir && change == Change::Modified && self.is_in_the_way(&path) {
            self.fails("create", &path, Errno::NOTEMPTY);
            return self.failed(what);
        }
        if self.events.wants_entries() {
            self.events.entry(&path, change, what.1);
        }
        if change != Change::Unchanged {
            return FileState::Made(MADE);
        }
        self.stays(what);
        FileState::Skipped
    }

    fn attributes(&mut self, knows_xattrs: bool, path: impl FnOnce() -> Vec<u8>) {
        attributes(knows_xattrs, self.options, self.events, self.summary, path);
    }

    /// Looks at the target where a folder of the window is to be.
    fn there(&self, number: u32) -> There {
        let Some(target) = self.target else {
            return There::Nothing;
        };
        // Number of the missing or shut folder that lies in `at`.
        let mut below = None;
        let mut at = number;
        loop {
            let failed = match (open(&self.folders, target, self.window, at), below) {
                (Ok(dir), None) => return There::Folder(dir),
                (Ok(above), Some((below, Errno::ACCESS))) => {
                    return self.shut(below, below == number, &above);
                }
                (Ok(above), Some((below, _))) => return self.instead_of(below, &above),
                (Err(failed), _) => failed,
            };
            match failed.why {
                Errno::NOENT => return There::Nothing,
                why @ (Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) if failed.at != 0 => {
                    below = Some((failed.at, why));
                    at = self.window.folders[failed.at as usize].parent;
                }
                why => return There::Fails(why),
            }
        }
    }

    /// Looks at a shut folder in `above`: it is the wanted one (`is_it`), or the wanted one lies in it.
    fn shut(&self, number: u32, is_it: bool, above: &OwnedFd) -> There {
        let name = &self.window.folders[number as usize].name;
        match Stat::at(above, name, false) {
            _ if !shut::is_own(above, name) => There::Fails(Errno::ACCESS),
            Ok(there) if is_it => There::Shut(there),
            _ => There::Nothing,
        }
    }

    /// Looks at something in `above` that stands in place of a folder and is none.
    fn instead_of(&self, number: u32, above: &OwnedFd) -> There {
        let folder = &self.window.folders[number as usize];
        let there = match Stat::at(above, &folder.name, false) {
            Ok(there) => there,
            Err(Errno::NOENT) => return There::Nothing,
            Err(e) => return There::Fails(e),
        };
        let path = || self.window.path(number);
        if self.leading.keeps(above, &folder.name, &there, path) {
            return There::Stays;
        }
        let mtime = folder.meta.as_ref().map(|meta| meta.mtime);
        let is_same = |mtime| may_be_same(mtime, there.mtime);
        let overwrite = self.options.overwrite;
        if overwrite.keeps_for_folder(&there, mtime, is_same) {
            There::Stays
        } else {
            There::Nothing
        }
    }

    /// Whether a folder that stands in place of something else has anything in it and is not emptied by --delete.
    fn is_in_the_way(&self, path: &[u8]) -> bool {
        let opened = self.target.map(|target| target.open_folder(path));
        let Some(Ok(dir)) = opened.filter(|_| !self.options.delete) else {
            return false;
        };
        let first = SortedNames::new(4096).next_up_to(&dir, None);
        matches!(first, Ok(Some(_)))
    }

    fn stays(&mut self, (kind, size): (Kind, u64)) {
        if kind == Kind::File {
            self.summary.skipped += 1;
            self.summary.skipped_bytes += size;
        } else {
            self.summary.skipped_others += 1;
        }
    }

    fn fails(&mut self, op: &'static str, path: &[u8], e: impl Into<std::io::Error>) {
        self.summary.errors += 1;
        let error = self.target.map(|target| target.error(op, path, e));
        if let Some(error) = error {
            self.events.error(path, &error);
        }
    }

    fn failed(&mut self, (kind, size): (Kind, u64)) -> FileState {
        match kind {
            Kind::File => {
                self.summary.failed += 1;
                self.summary.failed_bytes += size;
            }
            _ => self.summary.failed_others += 1,
        }
        FileState::Failed(None)
    }
}
