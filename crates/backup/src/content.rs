//! Compares and names contents by their data alone.
//!
//! A recipe chunk names the containers of its chunks, so its fingerprint changes when a sweep moves a chunk: the same
//! data may stand under other recipe chunks, and be cut at other places where recipe chunks hold recipe chunks.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_store::{ChunkReader, ChunkRef};

use crate::expansion::{Expansion, Repetition};
use crate::tree::{Recipe, read_recipe};
use crate::{Content, Item, Result};

/// Bytes that are collected for a name before they are hashed.
const PART_BYTES: usize = 64 << 10;

/// Whether both contents have the same chunks and holes in the same order. Recipe chunks that both have are not read,
/// and nothing is read behind the first difference. RAM: for each content a recipe chunk per layer. Contents with
/// extreme repetition count as different unless they have the same recipe chunks.
///
/// # Errors
/// A recipe chunk that only one has cannot be read ([`Error::Store`](crate::Error::Store)), or means nothing
/// ([`Error::Malformed`](crate::Error::Malformed)).
pub fn is_same(a: &Content, b: &Content, reader: &mut ChunkReader) -> Result<bool> {
    let (mut a, mut b) = (ContentCursor::new(a), ContentCursor::new(b));
    let mut repetition = Repetition::default();
    loop {
        let (x, y) = (a.peek(), b.peek());
        if x.map(name_of_item) == y.map(name_of_item) {
            if x.is_none() {
                return Ok(true);
            }
            a.pass();
            b.pass();
            continue;
        }
        let (Some((i, _)), Some((j, _))) = (x, y) else {
            return Ok(false);
        };
        if i.max(j) == 0 {
            return Ok(false);
        }
        for (side, is_due) in [(&mut a, i >= j), (&mut b, j >= i)] {
            if is_due && !side.open_counted(reader, &mut repetition)? {
                return Ok(false);
            }
        }
    }
}

/// Returns a hash of the data's fingerprints: the same for contents that [`is_same`] calls the same, wherever their
/// chunks lie. Reads all recipe chunks, holding one per layer. A content with extreme repetition gets its [`top_name`].
///
/// # Errors
/// A recipe chunk cannot be read ([`Error::Store`](crate::Error::Store)), or means nothing
/// ([`Error::Malformed`](crate::Error::Malformed)).
pub fn name(content: &Content, reader: &mut ChunkReader) -> Result<u64> {
    let mut ahead = ContentCursor::new(content);
    let (mut hash, mut repetition) = (Hash::default(), Repetition::default());
    while let Some((depth, item)) = ahead.peek() {
        match item {
            Item::Chunk { .. } if depth > 0 => {
                if !ahead.open_counted(reader, &mut repetition)? {
                    return Ok(top_name(content));
                }
            }
            _ => {
                ahead.pass();
                hash.add(depth, &item);
            }
        }
    }
    Ok(hash.finish())
}

/// Returns a hash of the content as it stands in its entry; reads nothing. Contents with the same hash have the same
/// [`name`].
pub fn top_name(content: &Content) -> u64 {
    let mut hash = Hash::default();
    for item in &content.items {
        hash.add(content.depth, item);
    }
    hash.finish()
}

/// Hash of a content's items, in order.
#[derive(Default)]
struct Hash {
    part: Vec<u8>,
}

impl Hash {
    fn add(&mut self, depth: u8, item: &Item) {
        let part = &mut self.part;
        match item {
            Item::Chunk { chunk, .. } => part.extend_from_slice(&chunk.fingerprint.0),
            Item::Slice(slice) => {
                part.extend_from_slice(&slice.chunk.fingerprint.0);
                part.extend([slice.skip, slice.len].map(u32::to_le_bytes).concat());
            }
            Item::Hole { len } => part.extend_from_slice(&len.to_le_bytes()),
        }
        // Recipe chunks are not part of the data, so a hash is only taken behind data or a hole.
        if depth == 0 && part.len() >= PART_BYTES {
            *part = Fingerprint::of(part).0.to_vec();
        }
    }

    fn finish(&self) -> u64 {
        Fingerprint::of(&self.part).prefix()
    }
}

/// Returns the properties that are equal in two items with the same data; for holes the layer does not count.
fn name_of_item((depth, item): (u8, Item)) -> (u8, Option<(Fingerprint, u32)>, u64) {
    let skip = match item {
        Item::Slice(slice) => slice.skip,
        _ => 0,
    };
    let chunk = item.chunk().map(|chunk| (chunk.fingerprint, skip));
    (depth, chunk, item.span())
}

/// Items of a content that are still to come, each with its depth; opened recipe chunks are replaced by their items.
pub(crate) struct ContentCursor {
    layers: Vec<Layer>,
    expansion: Expansion,
}

/// Items of one depth, and how many of them have passed.
struct Layer {
    depth: u8,
    items: Items,
    passed: usize,
}

/// Items of an entry, or those of a recipe chunk, which are shared.
enum Items {
    Own(Vec<Item>),
    Of(Arc<Recipe>),
}

impl Layer {
    fn new(depth: u8, items: Items) -> Self {
        Self {
            depth,
            items,
            passed: 0,
        }
    }

    fn first(&self) -> Option<Item> {
        let items = match &self.items {
            Items::Own(items) => items,
            Items::Of(recipe) => &recipe.items,
        };
        items.get(self.passed).copied()
    }
}

impl ContentCursor {
    pub fn new(content: &Content) -> Self {
        Self {
            layers: vec![Layer::new(content.depth, Items::Own(content.items.clone()))],
            expansion: Expansion::default(),
        }
    }

    /// Returns the next item; data and holes have depth 0.
    pub fn peek(&mut self) -> Option<(u8, Item)> {
        while let Some(layer) = self.layers.last() {
            if let Some(item) = layer.first() {
                return Some((item.chunk().map_or(0, |_| layer.depth), item));
            }
            self.layers.pop();
        }
        None
    }

    /// Takes the item that [`peek`](Self::peek) returned.
    pub fn pass(&mut self) -> Option<Item> {
        let layer = self.layers.last_mut()?;
        let item = layer.first()?;
        layer.passed += 1;
        self.expansion.pass(&item);
        Some(item)
    }

    /// Replaces the next item, a recipe chunk, by its items.
    pub fn open(&mut self, reader: &mut ChunkReader) -> Result<()> {
        self.open_next(reader).map(drop)
    }

    /// Replaces the next item as [`open`](Self::open) does. Returns false where the content has extreme repetition.
    fn open_counted(
        &mut self,
        reader: &mut ChunkReader,
        repetition: &mut Repetition,
    ) -> Result<bool> {
        let opened = self.open_next(reader)?;
        Ok(opened.is_none_or(|(chunk, items)| repetition.meet(&chunk, items)))
    }

    /// Replaces the next item by its items. Returns the recipe chunk, and how many items it has.
    fn open_next(&mut self, reader: &mut ChunkReader) -> Result<Option<(ChunkRef, usize)>> {
        let Some(layer) = self.layers.last_mut() else {
            return Ok(None);
        };
        let next = layer.first();
        layer.passed += 1;
        let (depth, Some(Item::Chunk { chunk, span })) = (layer.depth, next) else {
            return Ok(None);
        };
        self.expansion.open()?;
        let below = read_recipe(&chunk, span, depth - 1, reader)?;
        let items = below.items.len();
        self.layers.push(Layer::new(depth - 1, Items::Of(below)));
        Ok(Some((chunk, items)))
    }
}
