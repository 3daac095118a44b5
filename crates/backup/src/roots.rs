//! Tells the store which chunks snapshots keep alive, and finds the files that lost chunks hurt.

use onefold_store::{ChunkReader, ChunkRef, RootId, Roots, Seen};

use crate::leaf::{Leaf, RecipeRef, decode_bare, recipe};
use crate::snapshot::{LeafRef, LeafTable, Snapshot};
use crate::tree::{Tree, Visit, visit_items, visit_once};
use crate::wire::WireReader;
use crate::{Entry, Error, Item, Result, Slice, path};

/// Tells the store the references of a snapshot: its table, leaves, recipe chunks and data chunks. A leaf or recipe
/// chunk that an earlier snapshot has too is not opened again.
#[derive(Clone, Copy, Default, Debug)]
pub struct SnapshotRoots;

impl Roots for SnapshotRoots {
    fn for_each_ref(
        &self,
        _id: &RootId,
        root: &[u8],
        reader: &mut ChunkReader,
        seen: &mut Seen,
        visit: &mut dyn FnMut(&ChunkRef) -> onefold_store::Result<()>,
    ) -> onefold_store::Result<()> {
        for_each_ref(root, reader, seen, visit).map_err(into_store)
    }
}

fn for_each_ref(
    root: &[u8],
    reader: &mut ChunkReader,
    seen: &mut Seen,
    visit: &mut dyn FnMut(&ChunkRef) -> onefold_store::Result<()>,
) -> Result<()> {
    let snapshot = Snapshot::decode(root)?;
    if let LeafTable::Chunks(chunks) = &snapshot.table {
        for chunk in chunks {
            visit(chunk)?;
        }
    }
    let tree = Tree::open(&snapshot, reader)?;
    let mut lost = None;
    for leaf in tree.leaves() {
        visit(&leaf.chunk)?;
        if seen.before(&leaf.chunk) {
            continue;
        }
        let mut gone_into = vec![leaf.chunk];
        match refs_of_leaf(leaf, reader, (seen, &mut gone_into), visit) {
            Ok(()) => {}
            Err(error) if error.is_loss() => {
                // Forget them: another snapshot that has them must report the loss, too.
                gone_into.iter().for_each(|chunk| seen.forget(chunk));
                lost.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    lost.map_or(Ok(()), Err)
}

/// Visits all references of one leaf; where something of the leaf is lost, as many as can be had.
fn refs_of_leaf(
    leaf: &LeafRef,
    reader: &mut ChunkReader,
    (seen, gone_into): (&mut Seen, &mut Vec<ChunkRef>),
    visit: &mut dyn FnMut(&ChunkRef) -> onefold_store::Result<()>,
) -> Result<()> {
    let (decoded, _) = read_bare(leaf, reader)?;
    let mut is_new = |chunk: &ChunkRef| {
        let is_new = !seen.before(chunk);
        gone_into.extend(is_new.then_some(*chunk));
        is_new
    };
    let mut lost = None;
    for recipe in &decoded.recipes {
        visit(&recipe.chunk)?;
        if !is_new(&recipe.chunk) {
            continue;
        }
        match reader
            .read(&recipe.chunk)
            .map_err(Error::from)
            .and_then(|bytes| recipe::decode(&bytes, 0))
        {
            Ok(items) => items
                .iter()
                .filter_map(Item::chunk)
                .try_for_each(&mut *visit)?,
            Err(error) if error.is_loss() => drop(lost.get_or_insert(error)),
            Err(error) => return Err(error),
        }
    }
    for entry in &decoded.entries {
        if let Some(error) = entry.damage() {
            lost.get_or_insert(error);
        }
        let visited = visit_items(&entry.content, reader, &mut |met, _| match met {
            Visit::Hole(..) => Ok(true),
            Visit::Data(slice, _) => Ok(visit(&slice.chunk).map(|()| true)?),
            Visit::Recipe(chunk) => Ok(visit(&chunk).map(|()| is_new(&chunk))?),
        });
        match visited {
            Err(error) if error.is_loss() => drop(lost.get_or_insert(error)),
            other => other?,
        }
    }
    lost.map_or(Ok(()), Err)
}

fn into_store(error: Error) -> onefold_store::Error {
    match error {
        Error::Store(error) => error,
        Error::Malformed(error) => onefold_store::Error::Io(error),
        other => onefold_store::Error::Caller(Box::new(other)),
    }
}

/// A part of a snapshot that is hurt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hurt {
    /// Chunks of this file are lost.
    File(Vec<u8>),
    /// Entries from the first path up to the second, which is known; `None`: to the end.
    Entries(Vec<u8>, Option<Vec<u8>>),
    /// The whole snapshot: its table of leaves is lost, or all leaves are.
    All,
}

/// Calls `tell` with the hurt parts of a snapshot, where `is_lost` says which chunks are lost. Leaves and recipe chunks
/// that cannot be had ([`Error::is_loss`]) are lost, too.
///
/// # Errors
/// Errors that keep this from looking, and so say nothing about the stored chunks.
pub fn hurt(
    snapshot: &Snapshot,
    reader: &mut ChunkReader,
    is_lost: &mut dyn FnMut(&ChunkRef) -> bool,
    tell: &mut dyn FnMut(Hurt),
) -> Result<()> {
    hurt_where(snapshot, reader, (is_lost, Error::is_loss), tell)
}

/// Finds hurt parts as [`hurt`] does; a failed read counts as a loss where the second function of `lost` says so. Other
/// errors are returned.
pub(crate) fn hurt_where(
    snapshot: &Snapshot,
    reader: &mut ChunkReader,
    (is_lost, counts): LossTests<'_>,
    tell: &mut dyn FnMut(Hurt),
) -> Result<()> {
    let Some(tree) = unless_lost(Tree::open(snapshot, reader), counts)? else {
        tell(Hurt::All);
        return Ok(());
    };
    // Lost leaves before the first readable one: with no readable one, all of the snapshot is lost.
    let mut lost_so_far = Some(Vec::new());
    for (i, leaf) in tree.leaves().iter().enumerate() {
        let bare = if is_lost(&leaf.chunk) {
            None
        } else {
            unless_lost(read_bare(leaf, reader), counts)?
        };
        let Some((bare, counted)) = bare else {
            let next = tree
                .leaves()
                .get(i + 1)
                .map(|next| path::join(&next.folder, &next.name));
            let entries = Hurt::Entries(path::join(&leaf.folder, &leaf.name), next);
            match &mut lost_so_far {
                Some(lost) => lost.push(entries),
                None => tell(entries),
            }
            continue;
        };
        let before = lost_so_far.take().into_iter().flatten();
        before.for_each(&mut *tell);
        let lost = lost_items(&bare, reader, (is_lost, counts))?;
        let mut at = 0;
        for ((folder, entry), count) in bare.iter().zip(counted) {
            let own = at..at + count;
            at = own.end;
            let first = lost.partition_point(|item| *item < own.start);
            if entry.damage().is_some_and(|error| counts(&error))
                || lost.get(first).is_some_and(|item| own.contains(item))
                || is_hurt(entry, reader, (is_lost, counts))?
            {
                tell(Hurt::File(path::join(folder, &entry.name)));
            }
        }
    }
    if lost_so_far.is_some_and(|lost| !lost.is_empty()) {
        tell(Hurt::All);
    }
    Ok(())
}

/// Returns the result of a read; `None` where the error counts as a loss.
fn unless_lost<T>(read: Result<T>, counts: fn(&Error) -> bool) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if counts(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a leaf without contents; returns also how many items of its recipe chunks each entry has.
pub(crate) fn read_bare(leaf: &LeafRef, reader: &mut ChunkReader) -> Result<(Leaf, Vec<u64>)> {
    decode_bare(&reader.read(&leaf.chunk)?)
}

/// Reads the items of a leaf's recipe chunk.
pub(crate) fn read_items(recipe: &RecipeRef, reader: &mut ChunkReader) -> Result<Vec<Item>> {
    let items = recipe::decode(&reader.read(&recipe.chunk)?, 0)?;
    if items.len() == recipe.items as usize {
        Ok(items)
    } else {
        Err(WireReader::new("recipe", &[]).fail(format_args!(
            "{} items, expected {}",
            items.len(),
            recipe.items
        )))
    }
}

type LossTests<'a> = (&'a mut dyn FnMut(&ChunkRef) -> bool, fn(&Error) -> bool);

/// Returns the numbers of a leaf's lost items, sorted.
fn lost_items(
    leaf: &Leaf,
    reader: &mut ChunkReader,
    (is_lost, counts): LossTests<'_>,
) -> Result<Vec<u64>> {
    let mut lost = Vec::new();
    let mut at = 0;
    for recipe in &leaf.recipes {
        let items = if is_lost(&recipe.chunk) {
            None
        } else {
            unless_lost(read_items(recipe, reader), counts)?
        };
        for i in 0..u64::from(recipe.items) {
            let item = items.as_ref().and_then(|items| items.get(i as usize));
            let is_whole = item.is_some_and(|item| !item.chunk().is_some_and(&mut *is_lost));
            if !is_whole {
                lost.push(at + i);
            }
        }
        at += u64::from(recipe.items);
    }
    Ok(lost)
}

/// Whether a content that stands in the leaf itself is hurt.
fn is_hurt(
    entry: &Entry,
    reader: &mut ChunkReader,
    (is_lost, counts): LossTests<'_>,
) -> Result<bool> {
    let mut lost = false;
    let visited = visit_once(&entry.content, reader, &mut |met, _| {
        if let Visit::Recipe(chunk) | Visit::Data(Slice { chunk, .. }, _) = met {
            lost |= is_lost(&chunk);
        }
        Ok(!lost)
    });
    Ok(unless_lost(visited, counts)?.is_none() || lost)
}
