//! The state of a simulated device: names and contents as users see them, the durable ones, and the changes between
//! them.
//!
//! Invariant: `durable` plus all pending changes in their order is `live`. Files are known by number, so that a
//! removed file stays readable through its handles, and a removal that a crash undoes finds its file again. All data is
//! copied on write: a clone costs some counters, whatever its size.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::pages::SparseBytes;

/// The number of a disk or folder; never used twice.
pub(super) type Ino = u64;

/// The outermost folder.
pub(super) const ROOT: Ino = 0;

/// The disk or folder that a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SimChild {
    Disk(Ino),
    Dir(Ino),
}

pub(super) type Names = BTreeMap<String, SimChild>;

/// Folders by number. A folder that is in no other folder cannot be reached.
#[derive(Clone, Default)]
pub(super) struct SimTree(Arc<BTreeMap<Ino, Arc<Names>>>);

/// A change in one folder.
#[derive(Clone, Debug)]
pub(super) struct FolderChange {
    pub dir: Ino,
    pub child: SimChild,
    pub kind: FolderChangeKind,
}

#[derive(Clone, Debug)]
pub(super) enum FolderChangeKind {
    Add { name: String },
    Rename { from: String, to: String },
    Remove { name: String },
}

impl FolderChange {
    /// The names that the change touches, with their folders.
    pub fn names(&self) -> impl Iterator<Item = (Ino, &str)> {
        let (first, second) = match &self.kind {
            FolderChangeKind::Add { name } | FolderChangeKind::Remove { name } => (name, None),
            FolderChangeKind::Rename { from, to } => (from, Some(to)),
        };
        std::iter::once(first)
            .chain(second)
            .map(|name| (self.dir, name.as_str()))
    }
}

impl SimTree {
    pub fn names(&self, dir: Ino) -> Option<&Names> {
        self.0.get(&dir).map(Arc::as_ref)
    }

    pub fn insert(&mut self, dir: Ino, names: Names) {
        Arc::make_mut(&mut self.0).insert(dir, Arc::new(names));
    }

    pub fn apply(&mut self, change: &FolderChange) {
        let dirs = Arc::make_mut(&mut self.0);
        let names = Arc::make_mut(dirs.entry(change.dir).or_default());
        match &change.kind {
            FolderChangeKind::Add { name } => {
                names.insert(name.clone(), change.child);
                if let SimChild::Dir(ino) = change.child {
                    dirs.entry(ino).or_default();
                }
            }
            FolderChangeKind::Rename { from, to } => {
                if names.get(from) == Some(&change.child) {
                    names.remove(from);
                }
                names.insert(to.clone(), change.child);
            }
            FolderChangeKind::Remove { name } => {
                if names.get(name) == Some(&change.child) {
                    names.remove(name);
                }
                if let SimChild::Dir(ino) = change.child {
                    dirs.remove(&ino);
                }
            }
        }
    }

    fn disks(&self) -> impl Iterator<Item = Ino> {
        let children = self.0.values().flat_map(|names| names.values());
        children.filter_map(|child| match child {
            SimChild::Disk(ino) => Some(*ino),
            SimChild::Dir(_) => None,
        })
    }
}

/// The content of a disk.
#[derive(Clone, Default)]
pub(super) struct FileNode {
    pub live: SparseBytes,
    pub durable: SparseBytes,
    pub pending: Vec<PendingOp>,
}

/// A change of content since the last sync.
#[derive(Clone)]
pub(super) struct PendingOp {
    pub op: FileOp,
    /// A sync failed since: the system takes the change for written, so no later sync makes it durable.
    pub forgotten: bool,
}

#[derive(Clone)]
pub(super) enum FileOp {
    Write { offset: u64, data: Arc<[u8]> },
    SetLen(u64),
    Discard { offset: u64, len: u64 },
}

impl FileOp {
    pub fn apply(&self, pages: &mut SparseBytes) {
        match self {
            Self::Write { offset, data } => pages.write(data, *offset),
            Self::SetLen(len) => pages.set_len(*len),
            Self::Discard { offset, len } => pages.punch(*offset, *len),
        }
    }
}

impl FileNode {
    /// A disk whose bytes are all durable.
    pub fn settled(pages: SparseBytes) -> Self {
        Self {
            live: pages.clone(),
            durable: pages,
            pending: Vec::new(),
        }
    }

    fn change(&mut self, op: FileOp) {
        op.apply(&mut self.live);
        self.pending.push(PendingOp {
            op,
            forgotten: false,
        });
    }

    fn sync(&mut self) {
        if self.pending.iter().all(|pending| !pending.forgotten) {
            self.durable = self.live.clone();
            self.pending.clear();
            return;
        }
        for pending in self.pending.iter().filter(|pending| !pending.forgotten) {
            pending.op.apply(&mut self.durable);
        }
        self.pending.retain(|pending| pending.forgotten);
    }
}

/// The complete state of the device.
#[derive(Clone)]
pub(super) struct Core {
    pub live: SimTree,
    pub durable: SimTree,
    pub pending: Arc<Vec<FolderChange>>,
    pub files: Arc<BTreeMap<Ino, Arc<FileNode>>>,
    pub next_ino: Ino,
}

impl Core {
    /// An empty folder.
    pub fn new() -> Self {
        let mut tree = SimTree::default();
        tree.insert(ROOT, Names::new());
        Self {
            live: tree.clone(),
            durable: tree,
            pending: Arc::default(),
            files: Arc::default(),
            next_ino: ROOT + 1,
        }
    }

    pub fn new_ino(&mut self) -> Ino {
        self.next_ino += 1;
        self.next_ino - 1
    }

    /// Changes a folder as users see it, not durably.
    pub fn change_dir(&mut self, change: FolderChange) {
        if let (SimChild::Disk(ino), FolderChangeKind::Add { .. }) = (change.child, &change.kind) {
            Arc::make_mut(&mut self.files).insert(ino, Arc::default());
        }
        self.live.apply(&change);
        Arc::make_mut(&mut self.pending).push(change);
    }

    pub fn sync_dir(&mut self, dir: Ino) {
        let durable = &mut self.durable;
        Arc::make_mut(&mut self.pending).retain(|change| {
            if change.dir == dir {
                durable.apply(change);
            }
            change.dir != dir
        });
    }

    pub fn file(&self, ino: Ino) -> Option<&FileNode> {
        self.files.get(&ino).map(Arc::as_ref)
    }

    pub fn file_mut(&mut self, ino: Ino) -> &mut FileNode {
        Arc::make_mut(Arc::make_mut(&mut self.files).entry(ino).or_default())
    }

    /// Changes a disk as users see it, not durably.
    pub fn change_file(&mut self, ino: Ino, op: FileOp) {
        self.file_mut(ino).change(op);
    }

    pub fn sync_file(&mut self, ino: Ino) {
        if self.file(ino).is_some_and(|file| !file.pending.is_empty()) {
            self.file_mut(ino).sync();
        }
    }

    /// Marks the pending changes of a disk whose sync failed.
    pub fn forget_file(&mut self, ino: Ino) {
        for pending in &mut self.file_mut(ino).pending {
            pending.forgotten = true;
        }
    }

    /// The sum of the lengths of all disks that have a name.
    pub fn used_bytes(&self) -> u64 {
        self.live
            .disks()
            .filter_map(|ino| self.file(ino))
            .map(|file| file.live.len())
            .sum()
    }

    /// Drops the content of disks that no name and no handle leads to, now or after a crash.
    pub fn collect(&mut self, open: impl Fn(Ino) -> bool) {
        let mut named: BTreeSet<Ino> = self.live.disks().chain(self.durable.disks()).collect();
        named.extend(self.pending.iter().filter_map(|change| match change.child {
            SimChild::Disk(ino) => Some(ino),
            SimChild::Dir(_) => None,
        }));
        Arc::make_mut(&mut self.files).retain(|ino, _| named.contains(ino) || open(*ino));
    }
}
