//! Unchanged files whose chunks a sweep or a repair has moved: they are not read again, but refer to the new places of
//! the chunks.
//!
//! Invariant: a new snapshot refers to chunks that are there and that its session may refer to. Where a chunk
//! is found nowhere, the file is read.

use onefold_store::{ChunkReader, ChunkRef, Session};

use crate::leaf::recipe::{Builder, Store};
use crate::tree::{Visit, visit_items, visit_once};
use crate::{Content, Item, Result, Slice};

/// Result of looking for the chunks of an unchanged file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkLookup {
    /// All chunks are where the content says, after the content was updated where needed.
    There,
    /// All chunks are there, but some recipe chunks name old places.
    Moved,
    /// Some cannot be found.
    Missing,
}

/// Looks for all chunks that `content` refers to. Items of a content without recipe chunks are updated to the new
/// places.
pub fn look(session: &Session, reader: &mut ChunkReader, content: &mut Content) -> ChunkLookup {
    if content.depth == 0 {
        return if content.items.iter_mut().all(|item| relocate(session, item)) {
            ChunkLookup::There
        } else {
            ChunkLookup::Missing
        };
    }
    let mut chunks = ChunkLookup::There;
    let visited = visit_once(content, reader, &mut |visit, _| {
        if let Visit::Recipe(chunk) | Visit::Data(Slice { chunk, .. }, _) = visit
            && !session.holds(&chunk)
        {
            chunks = match session.relocate(&chunk) {
                Some(_) => ChunkLookup::Moved,
                None => ChunkLookup::Missing,
            };
        }
        Ok(chunks != ChunkLookup::Missing)
    });
    match visited {
        Ok(()) => chunks,
        Err(_) => ChunkLookup::Missing,
    }
}

/// Updates the item to where its chunk is now; returns `false` where the chunk is found nowhere.
pub fn relocate(session: &Session, item: &mut Item) -> bool {
    let chunk: &mut ChunkRef = match item {
        Item::Hole { .. } => return true,
        Item::Chunk { chunk, .. } | Item::Slice(Slice { chunk, .. }) => chunk,
    };
    if !session.holds(chunk) {
        match session.relocate(chunk) {
            Some(moved) => *chunk = moved,
            None => return false,
        }
    }
    true
}

/// Writes the recipe chunks of a content anew, with the current places of its chunks.
///
/// # Errors
/// A recipe chunk cannot be read, or those of `store`.
pub fn write(session: &Session, content: &Content, store: Store<'_>) -> Result<Content> {
    let mut reader = session.small_reader()?;
    let mut recipe = Builder::default();
    visit_items(content, &mut reader, &mut |visit, _| {
        let mut item = match visit {
            Visit::Recipe(_) => return Ok(true),
            Visit::Data(slice, _) => slice.into(),
            Visit::Hole(_, len) => Item::Hole { len },
        };
        // A chunk that left the index after the search is followed by the reader of the snapshot.
        relocate(session, &mut item);
        recipe.push(item, store)?;
        Ok(true)
    })?;
    Ok(Content {
        digest: content.digest,
        ..recipe.finish(store)?
    })
}
