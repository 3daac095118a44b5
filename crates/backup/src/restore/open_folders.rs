//! Open folders of a window, so that folders below them are opened from there: opened from the target on, nested
//! folders would take the square of their depth.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::target::{PIECE_BYTES_MAX, TargetFolder, open_beneath};
use super::window::Window;

/// Descriptors of folders, by number in the window; the oldest are closed first.
pub struct OpenFolders {
    open: HashMap<u32, OpenFolder>,
    order: VecDeque<u32>,
    max: usize,
}

#[derive(Clone)]
struct OpenFolder {
    folder: Arc<OwnedFd>,
    is_ready: bool,
}

/// The reason why a folder could not be opened.
pub struct FolderError {
    pub why: Errno,
    /// Number of the folder that failed: the wanted one or one above it. The folders between the two cannot be opened
    /// either.
    pub at: u32,
}

impl OpenFolders {
    /// Makes an empty set of at most `max` folders.
    pub fn new(max: usize) -> Self {
        Self {
            open: HashMap::new(),
            order: VecDeque::new(),
            max,
        }
    }

    /// Returns a folder that was [made ready](Self::insert_ready).
    pub fn ready(&self, number: u32) -> Option<Arc<OwnedFd>> {
        let open = self.open.get(&number).filter(|open| open.is_ready);
        open.map(|open| Arc::clone(&open.folder))
    }

    /// Adds a folder that things may be restored into.
    pub fn insert_ready(&mut self, number: u32, folder: Arc<OwnedFd>) {
        let is_ready = true;
        self.insert(number, OpenFolder { folder, is_ready });
    }

    fn insert(&mut self, number: u32, open: OpenFolder) {
        if self.open.insert(number, open).is_none() {
            self.order.push_back(number);
        }
        self.keep(self.max);
    }

    /// Closes half of the folders, and keeps no more than the rest from now on. Returns whether there were any.
    pub fn give_up_half(&mut self) -> bool {
        let had = self.order.len();
        self.max = (had / 2).max(1);
        self.keep(had / 2);
        had > 0
    }

    fn keep(&mut self, most: usize) {
        while self.order.len() > most
            && let Some(oldest) = self.order.pop_front()
        {
            self.open.remove(&oldest);
        }
    }
}

/// Opens an existing folder, starting from the nearest open one above it; on a long way some are kept open.
pub fn open(
    folders: &Mutex<OpenFolders>,
    target: &TargetFolder,
    window: &Window,
    number: u32,
) -> Result<Arc<OwnedFd>, FolderError> {
    let mut way = Vec::new();
    let nearest = {
        let folders = folders.lock();
        let above = window.way_up(number).map(|at| (at, folders.open.get(&at)));
        let mut above = above.inspect(|(at, open)| {
            if open.is_none() {
                way.push(*at);
            }
        });
        let nearest = above.find_map(|(_, open)| open);
        // The way up leaves the target out, so it is looked up by itself.
        let nearest = nearest.or_else(|| folders.open.get(&0));
        nearest.map(|open| Arc::clone(&open.folder))
    };
    let mut at = match nearest {
        Some(nearest) => nearest,
        None => {
            let root = target.open_folder(b"");
            Arc::new(root.map_err(|why| FolderError { why, at: 0 })?)
        }
    };
    while let Some(first) = way.pop() {
        let (mut last, mut piece) = (first, window.folders[first as usize].name.to_vec());
        while let Some(next) = way.last() {
            let name = &window.folders[*next as usize].name;
            if piece.len() + 1 + name.len() > PIECE_BYTES_MAX {
                break;
            }
            piece.push(b'/');
            piece.extend_from_slice(name);
            last = *next;
            way.pop();
        }
        let opened = open_beneath(at.as_fd(), &piece);
        at = Arc::new(opened.map_err(|why| FolderError { why, at: last })?);
        let (folder, is_ready) = (Arc::clone(&at), false);
        let mut folders = folders.lock();
        // Another thread may have made it ready meanwhile.
        if folders.ready(last).is_none() {
            folders.insert(last, OpenFolder { folder, is_ready });
        }
    }
    Ok(at)
}
