//! The state after a power cut: the durable state, and some of the pending changes.
//!
//! Folders: either a journal in order, of which the first changes survive, or changes that survive independently of
//! each other, but in order for each name. Contents: each pending write survives, is lost, or is torn at sectors of 512
//! bytes, independently of the others, which covers reordering. The length may survive without the bytes, which then
//! are zeros or, rarely, garbage. A rename may survive without the content of the renamed disk.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use super::core::{Core, FileNode, FileOp, FolderChange, Ino, Names, ROOT, SimChild, SimTree};
use crate::{pages::SparseBytes, random::Random};

const SECTOR_BYTES: u64 = 512;

/// The kind of a power cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Luck {
    /// No pending change survives.
    None,
    /// All changes survive, as when the process alone dies.
    All,
    /// Folders are journalled in order.
    Journal,
    /// Changes of folders survive independently.
    Independent,
}

/// The state after a power cut, all of it durable. Seed 0: no pending change survives. Seed 1: all do. Other seeds: at
/// random.
pub(super) fn image(core: &Core, seed: u64) -> Core {
    let mut rng = Random::of_stream(seed, u64::MAX);
    let luck = match seed {
        0 => Luck::None,
        1 => Luck::All,
        _ if rng.one_in(2) => Luck::Journal,
        _ => Luck::Independent,
    };
    let mut tree = core.durable.clone();
    for change in surviving_changes(&core.pending, luck, &mut rng) {
        tree.apply(change);
    }
    let mut live = SimTree::default();
    let mut files = BTreeMap::new();
    let mut folders = vec![ROOT];
    while let Some(dir) = folders.pop() {
        let names = tree.names(dir).cloned().unwrap_or_default();
        for child in names.values() {
            match *child {
                SimChild::Dir(ino) => folders.push(ino),
                SimChild::Disk(ino) => {
                    let pages = core
                        .file(ino)
                        .map(|file| surviving_bytes(file, luck, seed, ino));
                    files.insert(ino, Arc::new(FileNode::settled(pages.unwrap_or_default())));
                }
            }
        }
        live.insert(dir, Names::clone(&names));
    }
    Core {
        durable: live.clone(),
        live,
        pending: Arc::default(),
        files: Arc::new(files),
        next_ino: core.next_ino,
    }
}

fn surviving_changes<'a>(
    pending: &'a [FolderChange],
    luck: Luck,
    rng: &mut Random,
) -> Vec<&'a FolderChange> {
    let first = match luck {
        Luck::None => 0,
        Luck::All => pending.len(),
        Luck::Journal => rng.below(pending.len() as u64 + 1) as usize,
        Luck::Independent => return independent_changes(pending, rng),
    };
    pending.iter().take(first).collect()
}

/// A random subset of changes; once a change of a name is lost, so are the later ones of that name.
fn independent_changes<'a>(pending: &'a [FolderChange], rng: &mut Random) -> Vec<&'a FolderChange> {
    let mut lost: HashSet<(Ino, &str)> = HashSet::new();
    let mut kept = Vec::new();
    for change in pending {
        let hindered = change.names().any(|name| lost.contains(&name));
        if hindered || rng.one_in(2) {
            lost.extend(change.names());
        } else {
            kept.push(change);
        }
    }
    kept
}

fn surviving_bytes(file: &FileNode, luck: Luck, seed: u64, ino: Ino) -> SparseBytes {
    let mut rng = Random::of_stream(seed, ino);
    let mut pages = file.durable.clone();
    // Often all writes of a file share one fate: flushed whole or not at all.
    let fate_of_all = match (luck, rng.below(4)) {
        (Luck::None, _) => Some(Fate::Lost),
        (Luck::All, _) => Some(Fate::Kept),
        (_, 0) => Some(Fate::Lost),
        (_, 1) => Some(Fate::Kept),
        _ => None,
    };
    for pending in &file.pending {
        match fate_of_all.unwrap_or_else(|| Fate::at_random(&mut rng)) {
            Fate::Kept => pending.op.apply(&mut pages),
            Fate::Torn => tear(&pending.op, &mut pages, &mut rng),
            Fate::Lost => {
                if fate_of_all.is_none() && rng.one_in(4) {
                    grow_without_bytes(&pending.op, &mut pages, &mut rng);
                }
            }
        }
    }
    pages
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Torn,
    Lost,
}

impl Fate {
    fn at_random(rng: &mut Random) -> Self {
        match rng.below(4) {
            0 | 1 => Self::Kept,
            2 => Self::Torn,
            _ => Self::Lost,
        }
    }
}

/// Applies some of a write's sectors: the first ones, or any.
fn tear(op: &FileOp, pages: &mut SparseBytes, rng: &mut Random) {
    let FileOp::Write { offset, data } = op else {
        return; // changes of length are atomic: lost
    };
    if rng.one_in(3) {
        grow_without_bytes(op, pages, rng);
    }
    let sectors: Vec<_> = sectors(*offset, data.len()).collect();
    let first = rng.below(sectors.len() as u64 + 1) as usize;
    let in_order = rng.one_in(2);
    for (i, range) in sectors.into_iter().enumerate() {
        if if in_order { i < first } else { rng.one_in(2) } {
            pages.write(&data[range.clone()], offset + range.start as u64);
        }
    }
}

/// Applies the length of a write but not its bytes: zeros, or garbage from the device.
fn grow_without_bytes(op: &FileOp, pages: &mut SparseBytes, rng: &mut Random) {
    let FileOp::Write { offset, data } = op else {
        return;
    };
    let (before, end) = (pages.len(), offset + data.len() as u64);
    if end <= before {
        return;
    }
    pages.set_len(end);
    if rng.one_in(4) {
        let start = before.max(*offset);
        let garbage: Vec<u8> = (start..end).map(|_| rng.next() as u8).collect();
        pages.write(&garbage, start);
    }
}

/// The parts of `len` bytes at `offset` that lie in one sector each, as ranges within the bytes.
fn sectors(offset: u64, len: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let left = SECTOR_BYTES - (offset + start as u64) % SECTOR_BYTES;
        let end = len.min(start + left as usize);
        let range = start..end;
        start = end;
        (!range.is_empty()).then_some(range)
    })
}
