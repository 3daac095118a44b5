//! Fills windows from a snapshot: decides which entries are wanted, which folders they need, and which chunks go where.

mod folder;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use onefold_store::ChunkReader;

use self::folder::CurrentFolder;
use super::apply::Meta;
use super::chosen::has_patterns;
use super::existing_names::{ExistingNames, NameInTarget};
use super::lacking::MetadataOutcome;
use super::links::Links;
use super::target;
use super::top::StandsFor;
use super::window::{FileState, FirstName, Link, NamePlace, Special, Window};
use super::{Options, RestoreSummary};
use crate::folder_stack::{FolderStack, StackStep};
use crate::path::{self, join};
use crate::tree::{Tree, TreeCursor, Visit, visit_items_from};
use crate::{Entry, Events, Kind, Progress, Result};

/// A file whose chunks did not all fit into the window, and the bytes of it that are planned.
struct Unfinished {
    entry: Entry,
    done: u64,
}

/// Goes through the snapshot once and plans windows.
pub struct RestorePlanner<'a> {
    /// Path of the target, as the user gave it.
    target: &'a [u8],
    options: &'a Options,
    cursor: TreeCursor<'a>,
    progress: &'a Progress,
    events: &'a dyn Events,
    stack: FolderStack<'a, CurrentFolder>,
    /// The cursor's next entry, with its folder, while the way does not lead there yet.
    ahead: Option<(Vec<u8>, Entry)>,
    /// Whether the cursor has given all entries.
    is_past: bool,
    /// First names of files with several names; `None` once a temporary file for them has failed.
    links: Option<Links>,
    /// Folder of the first name that came last, shared with the next ones.
    firsts: Arc<[u8]>,
    unfinished: Option<Unfinished>,
    /// Whether the wanted folder could not be listed, and that must still be reported.
    is_unlisted: bool,
    /// Whether a single file is wanted.
    is_single_file: bool,
    /// Folder of the snapshot that the target stands for.
    pub stands_for: StandsFor,
    /// Names that are in the target, where things in the target may stay.
    pub existing_names: Option<ExistingNames<'a>>,
}

impl<'a> RestorePlanner<'a> {
    /// Makes a plan for `options`. Errors: the wanted path is not in the snapshot.
    pub fn new(
        tree: &'a Tree,
        target: &'a [u8],
        options: &'a Options,
        reader: &mut ChunkReader,
        progress: &'a Progress,
        events: &'a dyn Events,
    ) -> Result<Self> {
        let (mut is_single_file, mut is_unlisted) = (false, false);
        let mut stands_for = StandsFor::None;
        let (mut top, mut cursor) = (&options.path[..], tree.cursor());
        if !options.path.is_empty() {
            stands_for = match tree.entry(&options.path, reader) {
                Ok(Some(entry)) if entry.is_dir() => {
                    is_unlisted = entry.is_unlisted();
                    StandsFor::Folder(Box::new(Meta::of(&entry)))
                }
                Ok(Some(_)) => StandsFor::None,
                Ok(None) => return Err(crate::Error::NotInSnapshot(path::show(&options.path))),
                // The entry is lost, so its kind is not known; entries below it may be left.
                Err(error) if error.is_loss() => StandsFor::Lost,
                Err(error) => return Err(error),
            };
            is_single_file = matches!(stands_for, StandsFor::None);
            let (folder, name) = path::split(&options.path);
            cursor = if is_single_file {
                tree.cursor_at(folder, name)
            } else {
                tree.cursor_at(&options.path, b"")
            };
            if is_single_file {
                top = folder;
            }
        }
        let outermost = CurrentFolder::new(b"", None, false, None, options);
        Ok(Self {
            target,
            options,
            cursor,
            progress,
            events,
            stack: FolderStack::new(tree, top.to_vec(), outermost),
            ahead: None,
            is_past: false,
            links: Some(Links::new(options.hard_links_bytes)),
            firsts: Arc::new([]),
            unfinished: None,
            is_unlisted,
            is_single_file,
            stands_for,
            existing_names: None,
        })
    }

    /// Returns the next window; `None` when everything was planned. `last` is the state of the file that the window
    /// before could not hold whole.
    pub fn next(
        &mut self,
        last: Option<FileState>,
        reader: &mut ChunkReader,
        summary: &mut RestoreSummary,
    ) -> Result<Option<Window>> {
        let mut window = Window::new(self.options.window_bytes);
        window.folder(b"", 0, None);
        self.resume(last, &mut window, reader, summary);
        if std::mem::take(&mut self.is_unlisted) {
            self.unlisted(b"", summary);
        }
        while !window.is_full() && self.unfinished.is_none() {
            self.progress.check()?;
            self.look_ahead(reader, summary)?;
            let to = self.ahead.as_ref().map(|(folder, _)| &folder[..]);
            match self.stack.step(to, reader)? {
                StackStep::Into(name, entry) => self.enter(name, entry),
                StackStep::Past(entry) => self.pass(entry, &mut window),
                StackStep::Left(level) => {
                    let folder = level.state;
                    if folder.is_wanted && folder.number.is_none() {
                        let parent = self.number(&mut window);
                        folder.plan(&level.name, parent, &mut window);
                    }
                }
                StackStep::There => match self.ahead.take() {
                    Some((_, entry)) => self.entry(entry, &mut window, reader, summary)?,
                    None => {
                        self.progress.totals_known.store(true, Relaxed);
                        break;
                    }
                },
            }
        }
        for level in self.stack.levels_mut() {
            if let Some(number) = level.state.number {
                window.folders[number as usize].continues = true;
            }
        }
        Ok((!window.is_empty()).then_some(window))
    }

    /// Takes over the fates of folders that go on in the next window, so that folders made by this restore are known as
    /// such.
    pub fn carried_out(&mut self, window: &Window) {
        for level in self.stack.levels_mut() {
            if let Some(number) = level.state.number.take() {
                level.state.fate = *window.folders[number as usize].fate.lock();
            }
        }
    }

    /// Reads the next entry into `ahead`, if there is one.
    fn look_ahead(&mut self, reader: &mut ChunkReader, summary: &mut RestoreSummary) -> Result<()> {
        while self.ahead.is_none() && !self.is_past {
            match self.cursor.next(reader) {
                Ok(Some((folder, entry))) if self.is_below(&folder, &entry) => {
                    self.ahead = Some((folder, entry));
                }
                Ok(_) => self.is_past = true,
                Err(error) => self.lost_leaf(error, summary)?,
            }
        }
        Ok(())
    }

    /// Reports a leaf that cannot be read: its entries are lost, and the rest goes on.
    fn lost_leaf(&mut self, error: crate::Error, summary: &mut RestoreSummary) -> Result<()> {
        let Some(leaf) = self.cursor.pass_over() else {
            return Err(error);
        };
        summary.errors += 1;
        summary.lost_parts += 1;
        Progress::add(&self.progress.errors, 1);
        // A leaf may hold entries of many folders: the first one names it in the report.
        self.events.error(&join(&leaf.folder, &leaf.name), &error);
        Ok(())
    }

    /// Whether the last file of the last window goes on in the next.
    pub fn continues(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Whether everything is planned, or counted.
    pub fn knows_all(&self) -> bool {
        self.progress.totals_known.load(Relaxed)
    }

    /// Returns the folder of the snapshot that the target stands for.
    pub fn top(&self) -> &'a [u8] {
        let path = &self.options.path[..];
        if !self.is_single_file {
            return path;
        }
        path::split(path).0
    }

    /// Whether the wanted path is no folder.
    pub fn is_single_file(&self) -> bool {
        self.is_single_file
    }

    fn is_below(&self, folder: &[u8], entry: &Entry) -> bool {
        let asked = &self.options.path[..];
        if self.is_single_file {
            (folder, &entry.name[..]) == path::split(asked)
        } else {
            path::within(folder, asked)
        }
    }

    /// Returns the path in the target of `name` in the innermost folder.
    fn in_target(&self, name: &[u8]) -> Vec<u8> {
        join(self.stack.path_below_top(), name)
    }

    /// Enters a folder. A folder whose entry is lost is made all the same, with the metadata of a new folder.
    fn enter(&mut self, name: Vec<u8>, entry: Option<Entry>) {
        let is_wanted = entry.is_some() && self.is_wanted(&name, true);
        let meta = entry.as_ref().map(Meta::of);
        let path = has_patterns(self.options).then(|| self.in_target(&name));
        let path = path.unwrap_or_default();
        let above = match self.stack.path_below_top() {
            b"" => None,
            _ => Some(&self.stack.innermost().state),
        };
        let folder = CurrentFolder::new(&path, meta, is_wanted, above, self.options);
        self.stack.enter(name, folder);
    }

    /// Plans a folder with nothing in it.
    fn pass(&mut self, entry: Entry, window: &mut Window) {
        if self.is_wanted(&entry.name, true) {
            let parent = self.number(window);
            let number = window.folder(&entry.name, parent, Some(Meta::of(&entry)));
            window.folders[number as usize].is_asked_for = true;
        }
    }

    /// Returns the number of the innermost folder in the window; that folder and those above are wanted from now on.
    fn number(&mut self, window: &mut Window) -> u32 {
        let levels = self.stack.levels_mut();
        let known = levels
            .iter()
            .rposition(|level| level.state.number.is_some());
        // The target has the first number.
        let mut parent = known.and_then(|at| levels[at].state.number).unwrap_or(0);
        for level in &mut levels[known.unwrap_or(0) + 1..] {
            let folder = &mut level.state;
            folder.is_wanted = true;
            parent = folder.plan(&level.name, parent, window);
            folder.number = Some(parent);
        }
        parent
    }

    /// Whether `name` in the innermost folder is wanted.
    fn is_wanted(&self, name: &[u8], is_dir: bool) -> bool {
        let choice = self.stack.innermost().state.choice;
        !has_patterns(self.options) || choice.takes(&self.in_target(name), is_dir, self.options)
    }

    fn entry(
        &mut self,
        entry: Entry,
        window: &mut Window,
        reader: &mut ChunkReader,
        summary: &mut RestoreSummary,
    ) -> Result<()> {
        let wanted = self.is_wanted(&entry.name, entry.is_dir());
        if let Some(error) = entry.damage().filter(|_| wanted) {
            self.lost_entry(&entry, error, summary);
            if !entry.is_dir() {
                return Ok(());
            }
        }
        if entry.is_dir() {
            summary.dirs += u64::from(wanted);
            if wanted && entry.is_unlisted() {
                self.unlisted(&self.in_target(&entry.name), summary);
            }
            self.stack.met(entry);
            return Ok(());
        }
        if !wanted {
            return Ok(());
        }
        if entry.is_unreadable() {
            let what = "could not be read when it was backed up: nothing to restore";
            self.events.warning(&self.in_target(&entry.name), what);
            summary.unread += 1;
            return Ok(());
        }
        let folder = self.number(window);
        if entry.kind != Kind::File {
            summary.others += 1;
            let first = match self.place_of(&entry, reader) {
                NamePlace::Further(first) => Some(first),
                NamePlace::First | NamePlace::Stays => None,
            };
            window.special(Special {
                folder,
                entry,
                first,
                metadata_outcome: MetadataOutcome::default(),
            });
            return Ok(());
        }
        summary.files += 1;
        summary.bytes += entry.size;
        Progress::add(&self.progress.files_total, 1);
        Progress::add(&self.progress.bytes_total, entry.size);
        let first = match self.place_of(&entry, reader) {
            NamePlace::First => None,
            NamePlace::Further(first) => Some(Some(first)),
            NamePlace::Stays => Some(None),
        };
        if let Some(first) = first {
            window.link(Link {
                folder,
                first,
                entry,
                metadata_outcome: MetadataOutcome::default(),
            });
            return Ok(());
        }
        let file = window.file(folder, &entry);
        self.chunks(file, entry, 0, window, reader, summary);
        Ok(())
    }

    /// Reports an entry that is damaged itself: a file is lost, and a folder loses its metadata.
    fn lost_entry(&self, entry: &Entry, error: crate::Error, summary: &mut RestoreSummary) {
        let path = self.in_target(&entry.name);
        summary.errors += 1;
        summary.lost += 1;
        if entry.kind == Kind::File {
            summary.failed += 1;
            summary.failed_bytes += entry.size;
        }
        Progress::add(&self.progress.errors, 1);
        let error = target::lost(self.target, &path, error);
        self.events.error(&path, &error);
    }

    fn unlisted(&self, folder: &[u8], summary: &mut RestoreSummary) {
        let what = "could not be listed when it was backed up: what was in it is missing";
        self.events.warning(folder, what);
        summary.unread += 1;
    }

    /// Returns the place of a name among the file's names. Without room for a temporary file further names become
    /// copies: nothing else is lost.
    fn place_of(&mut self, entry: &Entry, reader: &mut ChunkReader) -> NamePlace {
        if entry.links < 2 {
            return NamePlace::First;
        }
        let path = self.in_target(&entry.name);
        let there = self.existing_names.as_mut();
        let there = there.map(|there| there.find(entry, &path, reader));
        let first = match there.transpose() {
            Ok(Some(NameInTarget::Stays)) => return NamePlace::Stays,
            Ok(Some(NameInTarget::HasOther(other))) => Ok(Some((other, true))),
            Ok(None | Some(NameInTarget::None)) => match &mut self.links {
                Some(links) => {
                    let first = links.first_name(entry, path);
                    first.map(|first| first.map(|first| (first, false)))
                }
                None => Ok(None),
            },
            Err(e) => {
                self.existing_names = None;
                Err(e)
            }
        };
        match first {
            Ok(None) => NamePlace::First,
            Ok(Some((first, was_there))) => NamePlace::Further(self.shared(&first, was_there)),
            Err(e) => {
                let what = format!(
                    "from here on, hard links are restored as files of their own: {e}; TMPDIR names a folder with more room"
                );
                self.events.warning(b"", &what);
                self.links = None;
                NamePlace::First
            }
        }
    }

    /// Shares the folder's path with the name before: further names of one folder often have their first ones in one,
    /// too.
    fn shared(&mut self, first: &[u8], was_there: bool) -> FirstName {
        let (folder, name) = path::split(first);
        if *self.firsts != *folder {
            self.firsts = folder.into();
        }
        FirstName {
            folder: Arc::clone(&self.firsts),
            name: name.into(),
            was_there,
        }
    }

    /// Adds the file's chunks from offset `done` on, as many as the window takes.
    fn chunks(
        &mut self,
        file: u32,
        entry: Entry,
        done: u64,
        window: &mut Window,
        reader: &mut ChunkReader,
        summary: &mut RestoreSummary,
    ) {
        // The part before `done` may have had holes.
        let (mut end, mut has_holes) = (done, done > 0);
        let mut stopped = None;
        let visited = visit_items_from(&entry.content, done, reader, &mut |visit, _| {
            match visit {
                Visit::Recipe(_) => {}
                Visit::Hole(..) => has_holes = true,
                Visit::Data(slice, offset) => {
                    if window.is_full() && entry.content.depth > 0 {
                        stopped = Some(offset);
                        return Ok(false);
                    }
                    window.chunk(file, &slice, offset);
                    end = offset + u64::from(slice.len);
                }
            }
            Ok(true)
        });
        if let Err(error) = visited {
            // A recipe that cannot be read costs its file.
            let lost = &mut window.files[file as usize];
            let state = lost.state.get_mut();
            *state = FileState::Failed(state.made());
            summary.errors += 1;
            summary.lost += u64::from(error.is_loss());
            summary.failed += 1;
            summary.failed_bytes += entry.size;
            Progress::add(&self.progress.errors, 1);
            let lost = &window.files[file as usize];
            let path = window.path_of(lost);
            let error = target::lost(self.target, &path, error);
            self.events.error(&path, &error);
            return;
        }
        window.files[file as usize].set_size = has_holes || end < entry.size;
        if let Some(done) = stopped {
            window.file_continues(file);
            self.unfinished = Some(Unfinished { entry, done });
        }
    }

    /// Goes on with the file that the window before could not hold whole.
    fn resume(
        &mut self,
        last: Option<FileState>,
        window: &mut Window,
        reader: &mut ChunkReader,
        summary: &mut RestoreSummary,
    ) {
        let Some(Unfinished { entry, done }) = self.unfinished.take() else {
            return;
        };
        // A file that stays, or has failed, is not continued.
        if let Some(FileState::Skipped | FileState::Failed(_)) = last {
            let kept = u64::from(last == Some(FileState::Skipped));
            Progress::add(&self.progress.files_done, kept);
            Progress::add(&self.progress.bytes_done, kept * entry.size);
            return;
        }
        let folder = self.number(window);
        let file = window.file(folder, &entry);
        *window.files[file as usize].state.get_mut() = match last {
            Some(FileState::Made(made) | FileState::Resumed(made)) => FileState::Resumed(made),
            other => other.unwrap_or(FileState::Planned),
        };
        self.chunks(file, entry, done, window, reader, summary);
    }
}
