//! Fills windows from a snapshot: which entries are wanted, which folders they need, which chunks go where.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use onefold_store::ChunkReader;

use super::apply::Meta;
use super::links::Links;
use super::window::{Link, Special, State, Window};
use super::{Options, Summary};
use crate::path::{self, join};
use crate::tree::{Cursor, Tree, Visit, visit_items_from};
use crate::{Entry, Events, Flags, Kind, Progress, Result};

/// A folder whose content is not passed yet.
struct Pending {
    path: Vec<u8>,
    meta: Meta,
    /// It is wanted for itself, or something in it was.
    wanted: bool,
    /// Its number in the current window.
    number: Option<u32>,
}

/// A file whose chunks did not fit into the window.
struct Unfinished {
    folder: Vec<u8>,
    entry: Entry,
    done: u64,
}

/// Goes through the snapshot once.
pub struct Planner<'a> {
    options: &'a Options,
    cursor: Cursor<'a>,
    progress: &'a Progress,
    events: &'a dyn Events,
    /// By [`order_key`].
    pending: BTreeMap<Vec<u8>, Pending>,
    folder: Vec<u8>,
    folder_wanted: bool,
    folder_excluded: bool,
    /// `None` once a temporary file for them has failed.
    links: Option<Links>,
    unfinished: Option<Unfinished>,
    started: bool,
    /// The folder that is asked for could not be listed; that is still to be told.
    is_unlisted: bool,
    /// One file is asked for, and this is its folder.
    single: Option<Vec<u8>>,
}

/// Byte order of these keys is the order of folders in the walk.
fn order_key(path: &[u8]) -> Vec<u8> {
    path.iter()
        .map(|&b| if b == b'/' { 0 } else { b })
        .collect()
}

impl<'a> Planner<'a> {
    /// Plans what `options` ask for. Errors: the path that is asked for is not in the snapshot.
    pub fn new(
        tree: &'a Tree,
        options: &'a Options,
        reader: &mut ChunkReader,
        progress: &'a Progress,
        events: &'a dyn Events,
    ) -> Result<Self> {
        let (mut single, mut is_unlisted) = (None, false);
        let mut cursor = tree.cursor();
        if !options.path.is_empty() {
            let (kind, flags) = match tree.entry(&options.path, reader) {
                Ok(Some(entry)) => (entry.kind, entry.flags),
                Ok(None) => return Err(crate::Error::NotInSnapshot(path::show(&options.path))),
                // What it was is lost; of a folder more may be left.
                Err(error) if error.is_loss() => (Kind::Dir, Flags::default()),
                Err(error) => return Err(error),
            };
            is_unlisted = flags.has(Flags::UNLISTED);
            let (folder, name) = path::split(&options.path);
            match kind {
                Kind::Dir => cursor = tree.cursor_at(&options.path, b""),
                _ => {
                    single = Some(folder.to_vec());
                    cursor = tree.cursor_at(folder, name);
                }
            }
        }
        Ok(Self {
            options,
            cursor,
            progress,
            events,
            pending: BTreeMap::new(),
            folder: Vec::new(),
            folder_wanted: false,
            folder_excluded: false,
            links: Some(Links::new(options.hard_links_bytes)),
            unfinished: None,
            started: false,
            is_unlisted,
            single,
        })
    }

    /// The next window; `None` when everything was planned. `last` is how far the file is that the window before could not hold whole.
    pub fn next(
        &mut self,
        last: Option<State>,
        reader: &mut ChunkReader,
        summary: &mut Summary,
    ) -> Result<Option<Window>> {
        let mut window = Window::new(self.options.window_bytes);
        window.folder(Vec::new(), 0, None);
        self.resume(last, &mut window, reader, summary);
        if std::mem::take(&mut self.is_unlisted) {
            self.unlisted(&self.options.path, summary);
        }
        while !window.is_full() && self.unfinished.is_none() {
            self.progress.check()?;
            let (folder, entry) = match self.cursor.next(reader) {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(error) => {
                    self.lost_leaf(error, summary)?;
                    continue;
                }
            };
            if !self.is_below(&folder, &entry) {
                break;
            }
            if !self.started || folder != self.folder {
                self.enter(folder, &mut window);
            }
            self.entry(entry, &mut window, reader, summary)?;
        }
        if !window.is_full() && self.unfinished.is_none() {
            self.leave_all(&mut window);
            self.progress.totals_known.store(true, Relaxed);
        }
        for pending in self.pending.values_mut() {
            if let Some(number) = pending.number.take() {
                window.folders[number as usize].continues = true;
            }
        }
        let is_empty = window.folders.len() == 1
            && window.files.is_empty()
            && window.specials.is_empty()
            && window.links.is_empty();
        Ok((!is_empty).then_some(window))
    }

    /// A leaf that cannot be read costs its entries; the rest goes on.
    fn lost_leaf(&mut self, error: crate::Error, summary: &mut Summary) -> Result<()> {
        let Some(leaf) = self.cursor.pass_over() else {
            return Err(error);
        };
        summary.errors += 1;
        summary.lost += u64::from(error.is_loss());
        Progress::add(&self.progress.errors, 1);
        // It may hold entries of many folders: it is named by its first.
        self.events.error(&join(&leaf.folder, &leaf.name), &error);
        Ok(())
    }

    /// Whether the last file of the last window goes on in the next.
    pub fn continues(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Whether what is asked for is no folder.
    pub fn is_single_file(&self) -> bool {
        self.single.is_some()
    }

    fn is_below(&self, folder: &[u8], entry: &Entry) -> bool {
        match &self.single {
            Some(only) => folder == only && entry.name == path::split(&self.options.path).1,
            None => path::within(folder, &self.options.path),
        }
    }

    /// A path of the snapshot, as it is in the target.
    fn in_target(&self, path: &[u8]) -> Vec<u8> {
        let above = self
            .single
            .as_ref()
            .map_or(self.options.path.len(), |folder| folder.len());
        path[above..].to_vec()
    }

    fn enter(&mut self, folder: Vec<u8>, window: &mut Window) {
        self.started = true;
        let below = self.pending.split_off(&order_key(&folder));
        let before = std::mem::replace(&mut self.pending, below);
        for (key, pending) in before {
            if path::within(&folder, &pending.path) {
                self.pending.insert(key, pending);
            } else {
                self.leave(pending, window);
            }
        }
        let options = self.options;
        self.folder_wanted = options.include.is_empty() || options.include.covers(&folder, true);
        self.folder_excluded = options.exclude.covers(&folder, true);
        self.folder = folder;
    }

    fn leave_all(&mut self, window: &mut Window) {
        for (_, pending) in std::mem::take(&mut self.pending) {
            self.leave(pending, window);
        }
    }

    /// Everything in a folder is planned: it gets its metadata at the end of this window.
    fn leave(&mut self, pending: Pending, window: &mut Window) {
        if pending.wanted && pending.number.is_none() {
            let parent = self.number(path::split(&pending.path).0, window);
            window.folder(self.in_target(&pending.path), parent, Some(pending.meta));
        }
    }

    /// The number of a folder in the window; it and those above are wanted from now on.
    fn number(&mut self, folder: &[u8], window: &mut Window) -> u32 {
        if self.in_target(folder).is_empty() {
            return 0;
        }
        let key = order_key(folder);
        if let Some(number) = self.pending.get(&key).and_then(|pending| pending.number) {
            return number;
        }
        let parent = self.number(path::split(folder).0, window);
        let path = self.in_target(folder);
        match self.pending.get_mut(&key) {
            Some(pending) => {
                let number = window.folder(path, parent, Some(pending.meta.clone()));
                (pending.wanted, pending.number) = (true, Some(number));
                number
            }
            // A snapshot whose folder has no entry of its own: it is made, and looks as new folders do.
            None => window.folder(path, parent, None),
        }
    }

    fn is_wanted(&self, path: &[u8], is_dir: bool) -> bool {
        let excluded =
            self.folder_excluded || self.options.exclude.decide(path, is_dir) == Some(true);
        !excluded && (self.folder_wanted || self.options.include.decide(path, is_dir) == Some(true))
    }

    fn entry(
        &mut self,
        entry: Entry,
        window: &mut Window,
        reader: &mut ChunkReader,
        summary: &mut Summary,
    ) -> Result<()> {
        let path = join(&self.folder, &entry.name);
        let wanted = self.is_wanted(&path, entry.is_dir());
        if entry.is_dir() {
            summary.dirs += u64::from(wanted);
            if wanted && entry.flags.has(Flags::UNLISTED) {
                self.unlisted(&path, summary);
            }
            self.pending.insert(
                order_key(&path),
                Pending {
                    meta: Meta::of(&entry),
                    path,
                    wanted,
                    number: None,
                },
            );
            return Ok(());
        }
        if !wanted {
            return Ok(());
        }
        if entry.is_unreadable() {
            let what = "could not be read when it was backed up: nothing to restore";
            self.events.warning(&self.in_target(&path), what);
            summary.unread += 1;
            return Ok(());
        }
        let folder = self.number(&self.folder.clone(), window);
        if entry.kind != Kind::File {
            summary.others += 1;
            let first = self.first_name(&entry, self.in_target(&path));
            window.special(Special {
                folder,
                entry,
                first,
            });
            return Ok(());
        }
        summary.files += 1;
        summary.bytes += entry.size;
        Progress::add(&self.progress.files_total, 1);
        Progress::add(&self.progress.bytes_total, entry.size);
        let here = self.in_target(&path);
        if let Some(first) = self.first_name(&entry, here) {
            window.link(Link {
                folder,
                first,
                entry,
                is_copy: AtomicBool::new(false),
            });
            return Ok(());
        }
        let file = window.file(folder, &entry);
        self.chunks(file, entry, 0, window, reader, summary);
        Ok(())
    }

    fn unlisted(&self, folder: &[u8], summary: &mut Summary) {
        let what = "could not be listed when it was backed up: what was in it is missing";
        self.events.warning(&self.in_target(folder), what);
        summary.unread += 1;
    }

    /// Without room for a temporary file further names become copies: more is not lost.
    fn first_name(&mut self, entry: &Entry, path: Vec<u8>) -> Option<Vec<u8>> {
        match self.links.as_mut()?.first_name(entry, path) {
            Ok(first) => first,
            Err(e) => {
                let what = format!(
                    "from here on, hard links are restored as files of their own: {e}; TMPDIR names a folder with more room"
                );
                self.events.warning(b"", &what);
                self.links = None;
                None
            }
        }
    }

    /// Adds the file's chunks from `done` bytes on, as many as the window takes.
    fn chunks(
        &mut self,
        file: u32,
        entry: Entry,
        done: u64,
        window: &mut Window,
        reader: &mut ChunkReader,
        summary: &mut Summary,
    ) {
        // What came before may have had holes.
        let (mut end, mut has_holes) = (done, done > 0);
        let mut stopped = None;
        let visited = visit_items_from(&entry.content, done, reader, &mut |visit, _| {
            match visit {
                Visit::Recipe(_) => {}
                Visit::Hole(..) => has_holes = true,
                Visit::Data(chunk, offset) => {
                    if window.is_full() && entry.content.depth > 0 {
                        stopped = Some(offset);
                        return Ok(false);
                    }
                    window.chunk(file, &chunk, offset);
                    end = offset + u64::from(chunk.len);
                }
            }
            Ok(true)
        });
        if let Err(error) = visited {
            // A recipe that cannot be read costs its file.
            let lost = &mut window.files[file as usize];
            *lost.state.get_mut() = State::Failed;
            summary.errors += 1;
            summary.lost += u64::from(error.is_loss());
            summary.failed += 1;
            summary.left_bytes += entry.size;
            Progress::add(&self.progress.errors, 1);
            let folder = &window.folders[lost.folder as usize].path;
            self.events.error(&join(folder, &lost.name), &error);
            return;
        }
        window.files[file as usize].set_size = has_holes || end < entry.size;
        if let Some(done) = stopped {
            window.file_continues(file);
            self.unfinished = Some(Unfinished {
                folder: self.folder.clone(),
                entry,
                done,
            });
        }
    }

    /// Goes on with the file that the window before could not hold whole.
    fn resume(
        &mut self,
        last: Option<State>,
        window: &mut Window,
        reader: &mut ChunkReader,
        summary: &mut Summary,
    ) {
        let Some(Unfinished {
            folder,
            entry,
            done,
        }) = self.unfinished.take()
        else {
            return;
        };
        // Nothing more is done for what stays, or has failed.
        if let Some(State::Skipped | State::Failed) = last {
            let kept = u64::from(last == Some(State::Skipped));
            Progress::add(&self.progress.files_done, kept);
            Progress::add(&self.progress.bytes_done, kept * entry.size);
            return;
        }
        let folder = self.number(&folder, window);
        let file = window.file(folder, &entry);
        *window.files[file as usize].state.get_mut() = match last {
            Some(State::Made | State::Resumed) => State::Resumed,
            other => other.unwrap_or(State::Planned),
        };
        self.chunks(file, entry, done, window, reader, summary);
    }
}
