//! What snapshots keep alive, and what is hurt when chunks are lost.

use onefold_store::{ChunkReader, ChunkRef, RootId, Roots};

use crate::leaf::{Leaf, decode_bare, recipe};
use crate::snapshot::{LeafRef, Snapshot, Table, decode_table};
use crate::tree::{Tree, Visit, visit_items};
use crate::{Entry, Error, Item, Result, path};

/// Tells the store what a snapshot refers to: its table, leaves, recipe chunks and data chunks. A leaf or recipe chunk that an earlier snapshot
/// has too is not gone into again.
#[derive(Clone, Copy, Default, Debug)]
pub struct SnapshotRoots;

impl Roots for SnapshotRoots {
    fn for_each_ref(
        &self,
        _id: &RootId,
        root: &[u8],
        reader: &mut ChunkReader,
        seen: &mut dyn FnMut(&ChunkRef) -> bool,
        visit: &mut dyn FnMut(&ChunkRef) -> onefold_store::Result<()>,
    ) -> onefold_store::Result<()> {
        for_each_ref(root, reader, seen, visit).map_err(into_store)
    }
}

fn for_each_ref(
    root: &[u8],
    reader: &mut ChunkReader,
    seen: &mut dyn FnMut(&ChunkRef) -> bool,
    visit: &mut dyn FnMut(&ChunkRef) -> onefold_store::Result<()>,
) -> Result<()> {
    let snapshot = Snapshot::decode(root)?;
    if let Table::Chunks(chunks) = &snapshot.table {
        for chunk in chunks {
            visit(chunk)?;
        }
    }
    let tree = Tree::open(&snapshot, reader)?;
    for leaf in tree.leaves() {
        visit(&leaf.chunk)?;
        if seen(&leaf.chunk) {
            continue;
        }
        let (decoded, _) = decode_bare(&reader.read(&leaf.chunk)?)?;
        for recipe in &decoded.recipes {
            visit(&recipe.chunk)?;
            if !seen(&recipe.chunk) {
                let items = recipe::decode(&reader.read(&recipe.chunk)?, 0)?;
                items
                    .iter()
                    .filter_map(Item::chunk)
                    .try_for_each(&mut *visit)?;
            }
        }
        for entry in &decoded.entries {
            visit_items(&entry.content, reader, &mut |met, _| match met {
                Visit::Hole(..) => Ok(true),
                Visit::Data(chunk, _) => Ok(visit(&chunk).map(|()| true)?),
                Visit::Recipe(chunk) => Ok(visit(&chunk).map(|()| !seen(&chunk))?),
            })?;
        }
    }
    Ok(())
}

fn into_store(error: Error) -> onefold_store::Error {
    match error {
        Error::Store(error) => error,
        Error::Malformed(error) => onefold_store::Error::Io(error),
        other => onefold_store::Error::Caller(Box::new(other)),
    }
}

/// What of a snapshot is hurt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hurt {
    /// Chunks of this file are lost.
    File(Vec<u8>),
    /// The entries from this path on are lost, up to the next path that is known (none: to the end).
    Entries(Vec<u8>, Option<Vec<u8>>),
    /// Nothing of the snapshot can be found any more: its table of leaves is lost.
    All,
}

/// Tells which files of a snapshot are hurt, where `is_lost` says so of a chunk. Leaves and recipe chunks that cannot be read are lost.
pub fn hurt(
    snapshot: &Snapshot,
    reader: &mut ChunkReader,
    is_lost: &mut dyn FnMut(&ChunkRef) -> bool,
    tell: &mut dyn FnMut(Hurt),
) -> Result<()> {
    if let Table::Chunks(chunks) = &snapshot.table {
        let readable = |chunk| {
            reader
                .read(chunk)
                .map_err(Error::from)
                .and_then(|bytes| decode_table(&bytes))
                .is_ok()
        };
        if !chunks.iter().all(readable) {
            tell(Hurt::All);
            return Ok(());
        }
    }
    let tree = Tree::open(snapshot, reader)?;
    for (i, leaf) in tree.leaves().iter().enumerate() {
        let bare = if is_lost(&leaf.chunk) {
            None
        } else {
            read_bare(leaf, reader)
        };
        let Some((bare, counts)) = bare else {
            let next = tree
                .leaves()
                .get(i + 1)
                .map(|next| path::join(&next.folder, &next.name));
            tell(Hurt::Entries(path::join(&leaf.folder, &leaf.name), next));
            continue;
        };
        let lost = lost_items(&bare, reader, is_lost);
        let mut at = 0;
        for ((folder, entry), count) in bare.iter().zip(counts) {
            let own = at..at + count;
            at = own.end;
            let first = lost.partition_point(|item| *item < own.start);
            if lost.get(first).is_some_and(|item| own.contains(item))
                || is_hurt(entry, reader, is_lost)
            {
                tell(Hurt::File(path::join(folder, &entry.name)));
            }
        }
    }
    Ok(())
}

/// A leaf without contents; `None` where it cannot be read.
pub(crate) fn read_bare(leaf: &LeafRef, reader: &mut ChunkReader) -> Option<(Leaf, Vec<u64>)> {
    decode_bare(&reader.read(&leaf.chunk).ok()?).ok()
}

/// The numbers of a leaf's items that are lost, sorted.
fn lost_items(
    leaf: &Leaf,
    reader: &mut ChunkReader,
    is_lost: &mut dyn FnMut(&ChunkRef) -> bool,
) -> Vec<u64> {
    let mut lost = Vec::new();
    let mut at = 0;
    for recipe in &leaf.recipes {
        let read = if is_lost(&recipe.chunk) {
            None
        } else {
            reader.read(&recipe.chunk).ok()
        };
        let items = read.and_then(|bytes| recipe::decode(&bytes, 0).ok());
        for i in 0..u64::from(recipe.items) {
            let item = items.as_ref().and_then(|items| items.get(i as usize));
            let is_whole = item.is_some_and(|item| !item.chunk().is_some_and(&mut *is_lost));
            if !is_whole {
                lost.push(at + i);
            }
        }
        at += u64::from(recipe.items);
    }
    lost
}

/// Whether a content that stands in the leaf itself is hurt.
fn is_hurt(
    entry: &Entry,
    reader: &mut ChunkReader,
    is_lost: &mut dyn FnMut(&ChunkRef) -> bool,
) -> bool {
    let mut lost = false;
    let visited = visit_items(&entry.content, reader, &mut |met, _| {
        if let Visit::Recipe(chunk) | Visit::Data(chunk, _) = met {
            lost |= is_lost(&chunk);
        }
        Ok(!lost)
    });
    lost || visited.is_err()
}
