//! The way through a snapshot's folders: the folders that lead to a cursor's place, and those that came and must still
//! be entered.
//!
//! A folder's own entry stands among its siblings; the entries in it follow when all siblings have passed; an empty
//! folder has none.
//!
//! Invariant: every folder that came is entered once and left once, or passed once, in the order of the walk. RAM is
//! bounded by the depth of the tree: for each folder on the way some subfolders to come are kept, and the snapshot
//! gives the others when it is their turn.

use std::collections::VecDeque;

use onefold_store::ChunkReader;

use crate::tree::Tree;
use crate::{Entry, Result, path};

/// Largest number of subfolders to come that are kept for a folder.
const KEPT_MAX: usize = 1024;

/// A folder on the way, with the caller's state.
pub struct Level<T> {
    /// Name of the folder; for the top, its path in the snapshot.
    pub name: Vec<u8>,
    /// State of the caller.
    pub state: T,
    to_come: VecDeque<Entry>,
    /// Name of the last subfolder that was kept, where others follow it.
    others_after: Option<Vec<u8>>,
}

/// The next step on the way.
pub enum StackStep<T> {
    /// The way has led to the wanted folder.
    There,
    /// The folder of this name, in the innermost one, must be [entered](FolderStack::enter). `None`: its entry is lost.
    Into(Vec<u8>, Option<Entry>),
    /// This folder, in the innermost one, has nothing in it.
    Past(Entry),
    /// Everything in this folder has passed.
    Left(Level<T>),
}

/// The folders from the top to the innermost.
pub struct FolderStack<'a, T> {
    tree: &'a Tree,
    /// Path of the innermost folder in the snapshot. A path for each level would take the square of the depth.
    path: Vec<u8>,
    levels: Vec<Level<T>>,
}

impl<'a, T> FolderStack<'a, T> {
    /// Begins at `top`, which is never left.
    pub fn new(tree: &'a Tree, top: Vec<u8>, state: T) -> Self {
        let path = top.clone();
        let levels = vec![Level::new(top, state)];
        Self { tree, path, levels }
    }

    /// Path of the innermost folder in the snapshot.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Path of the innermost folder below the top: empty, or beginning with `/`.
    pub fn path_below_top(&self) -> &[u8] {
        &self.path[self.levels[0].name.len()..]
    }

    /// All levels, the innermost last.
    pub fn levels_mut(&mut self) -> &mut [Level<T>] {
        &mut self.levels
    }

    /// The innermost folder.
    pub fn innermost(&self) -> &Level<T> {
        self.levels.last().expect("the top is never left")
    }

    /// The innermost folder.
    pub fn innermost_mut(&mut self) -> &mut Level<T> {
        self.levels.last_mut().expect("the top is never left")
    }

    /// Notes a folder's entry that came in the innermost folder. Entries come in order.
    pub fn met(&mut self, folder: Entry) {
        let level = self.innermost_mut();
        if level.others_after.is_some() {
            return;
        }
        match level.to_come.back() {
            Some(last) if level.to_come.len() >= KEPT_MAX => {
                level.others_after = Some(last.name.clone());
            }
            _ => level.to_come.push_back(folder),
        }
    }

    /// Makes one step on the way to the folder `to`, or to the end of the top; must be called until it is there.
    ///
    /// # Errors
    /// Errors of [`TreeCursor::next`](crate::tree::TreeCursor::next) that are no loss: losses were reported when the
    /// entries passed.
    pub fn step(&mut self, to: Option<&[u8]>, reader: &mut ChunkReader) -> Result<StackStep<T>> {
        let level = self.levels.last_mut().expect("the top is never left");
        let here = &self.path[..];
        let to = to.filter(|to| path::within(to, here));
        if to.is_some_and(|to| to.len() == here.len()) {
            return Ok(StackStep::There);
        }
        level.fetch(here, self.tree, reader)?;
        let Some(to) = to else {
            return Ok(match level.to_come.pop_front() {
                Some(entry) => StackStep::Past(entry),
                None => self.up().map_or(StackStep::There, StackStep::Left),
            });
        };
        let name = &to[here.len() + 1..];
        let name = name.split(|&b| b == b'/').next().unwrap_or(name);
        let first = level.to_come.front().map(|entry| entry.name[..].cmp(name));
        Ok(match first {
            Some(std::cmp::Ordering::Less) => {
                StackStep::Past(level.to_come.pop_front().expect("it is there"))
            }
            Some(std::cmp::Ordering::Equal) => {
                StackStep::Into(name.to_vec(), level.to_come.pop_front())
            }
            Some(std::cmp::Ordering::Greater) | None => StackStep::Into(name.to_vec(), None),
        })
    }

    /// Leaves the innermost folder, whatever else is in it; returns `None` where that is the top.
    pub fn up(&mut self) -> Option<Level<T>> {
        if self.levels.len() == 1 {
            return None;
        }
        let left = self.levels.pop()?;
        self.path.truncate(self.path.len() - left.name.len() - 1);
        Some(left)
    }

    /// Enters the folder that [`step`](Self::step) named.
    pub fn enter(&mut self, name: Vec<u8>, state: T) {
        self.path.push(b'/');
        self.path.extend_from_slice(&name);
        self.levels.push(Level::new(name, state));
    }
}

impl<T> Level<T> {
    fn new(name: Vec<u8>, state: T) -> Self {
        Self {
            name,
            state,
            to_come: VecDeque::new(),
            others_after: None,
        }
    }

    /// Reads the next subfolders to come, if there are any. Entries that cannot be read now could not be read when they
    /// passed either, and were reported then.
    fn fetch(&mut self, here: &[u8], tree: &Tree, reader: &mut ChunkReader) -> Result<()> {
        if !self.to_come.is_empty() {
            return Ok(());
        }
        let Some(after) = self.others_after.take() else {
            return Ok(());
        };
        let mut cursor = tree.cursor_at(here, &after);
        loop {
            let entry = match cursor.next(reader) {
                Ok(Some((folder, entry))) if folder == here => entry,
                Ok(_) => return Ok(()),
                Err(error) if error.is_loss() && cursor.pass_over().is_some() => continue,
                Err(error) => return Err(error),
            };
            if !entry.is_dir() || entry.name <= after {
                continue;
            }
            if let Some(last) = self.to_come.back()
                && self.to_come.len() >= KEPT_MAX
            {
                self.others_after = Some(last.name.clone());
                return Ok(());
            }
            self.to_come.push_back(entry);
        }
    }
}
