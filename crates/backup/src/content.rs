//! Contents by their data alone.
//!
//! A recipe chunk names the containers of what it holds, so its fingerprint changes when a sweep moves a chunk: the
//! same data stands under other recipe chunks, cut at other places where recipe chunks have recipe chunks.

use onefold_chunk::Fingerprint;
use onefold_store::ChunkReader;

use crate::tree::{Visit, read_recipe, visit_items};
use crate::{Content, Item, Result};

/// A name's bytes are hashed when they are so many.
const PART_BYTES: usize = 64 << 10;

/// Whether both have the same chunks and holes in the same order. Recipe chunks that both have are passed over unread,
/// and nothing is read behind the first difference. RAM: of each a recipe chunk a layer.
///
/// # Errors
/// A recipe chunk that only one has cannot be read ([`Error::Store`](crate::Error::Store)), or means nothing
/// ([`Error::Malformed`](crate::Error::Malformed)).
pub fn is_same(a: &Content, b: &Content, reader: &mut ChunkReader) -> Result<bool> {
    let (mut a, mut b) = (Ahead::new(a), Ahead::new(b));
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
        if i >= j {
            a.open(reader)?;
        }
        if j >= i {
            b.open(reader)?;
        }
    }
}

/// A hash of the data's fingerprints: the same for contents that [`is_same`] calls so, wherever their chunks lie. Reads
/// all recipe chunks, one a layer at a time.
///
/// # Errors
/// A recipe chunk cannot be read ([`Error::Store`](crate::Error::Store)), or means nothing
/// ([`Error::Malformed`](crate::Error::Malformed)).
pub fn name(content: &Content, reader: &mut ChunkReader) -> Result<u64> {
    hash(content, reader, true)
}

/// A hash of the content as it stands in its entry; reads nothing. Contents of one such name have one [`name`].
///
/// # Errors
/// [`Error::Malformed`](crate::Error::Malformed): the items cover more than 2^64 bytes.
pub fn top_name(content: &Content, reader: &mut ChunkReader) -> Result<u64> {
    hash(content, reader, false)
}

fn hash(content: &Content, reader: &mut ChunkReader, goes_below: bool) -> Result<u64> {
    let mut part = Vec::new();
    visit_items(content, reader, &mut |visit, _| {
        match visit {
            Visit::Recipe(_) if goes_below => {}
            Visit::Recipe(chunk) => {
                part.extend_from_slice(&chunk.fingerprint.0);
                return Ok(false);
            }
            Visit::Data(slice, _) => {
                part.extend_from_slice(&slice.chunk.fingerprint.0);
                if !slice.is_whole() {
                    part.extend([slice.skip, slice.len].map(u32::to_le_bytes).concat());
                }
            }
            Visit::Hole(_, len) => part.extend_from_slice(&len.to_le_bytes()),
        }
        if part.len() >= PART_BYTES {
            part = Fingerprint::of(&part).0.to_vec();
        }
        Ok(true)
    })?;
    Ok(Fingerprint::of(&part).prefix())
}

/// What is equal in two items that hold the same; of holes the layer does not count.
fn name_of_item((depth, item): (u8, Item)) -> (u8, Option<(Fingerprint, u32)>, u64) {
    let skip = match item {
        Item::Slice(slice) => slice.skip,
        _ => 0,
    };
    let chunk = item.chunk().map(|chunk| (chunk.fingerprint, skip));
    (depth, chunk, item.span())
}

/// A content's items to come, each at its depth: of the recipe chunks that were opened, what they hold.
pub(crate) struct Ahead {
    layers: Vec<(u8, std::vec::IntoIter<Item>)>,
}

impl Ahead {
    pub fn new(content: &Content) -> Self {
        Self {
            layers: vec![(content.depth, content.items.clone().into_iter())],
        }
    }

    /// The next item; data and holes have depth 0.
    pub fn peek(&mut self) -> Option<(u8, Item)> {
        while let Some((depth, items)) = self.layers.last() {
            if let Some(item) = items.as_slice().first() {
                return Some((item.chunk().map_or(0, |_| *depth), *item));
            }
            self.layers.pop();
        }
        None
    }

    /// Takes the item that [`peek`](Self::peek) gave.
    pub fn pass(&mut self) -> Option<Item> {
        self.layers.last_mut()?.1.next()
    }

    /// Puts what the next item, a recipe chunk, holds in its place.
    pub fn open(&mut self, reader: &mut ChunkReader) -> Result<()> {
        let depth = self.layers.last().map_or(0, |(depth, _)| *depth);
        if let Some(Item::Chunk { chunk, span }) = self.pass() {
            let below = read_recipe(&chunk, span, depth - 1, reader)?;
            self.layers.push((depth - 1, below.into_iter()));
        }
        Ok(())
    }
}
