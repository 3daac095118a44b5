//! Recipes: the items of a file's content, in a leaf or in recipe chunks of their own. FORMAT.md, "Recipe".
//!
//! Up to [`LEAF_ITEMS_MAX`] items stand in the leaf. More are cut into recipe chunks, at items whose fingerprint says
//! so, so that a change in the middle of a large file changes one recipe chunk. Where the list of recipe chunks is too
//! long, it is cut again. A leaf stays small however large its files are.

use std::collections::HashMap;

use onefold_chunk::Fingerprint;
use onefold_store::{ChunkRef, ContainerId};

use crate::wire::{WireReader, put};
use crate::{Content, Item, Result, Slice};

/// Version of the recipe format that is written.
pub const VERSION: u8 = 1;
/// Largest number of items of a content without recipe chunks.
pub const LEAF_ITEMS_MAX: usize = 64;
/// Least items of a recipe chunk, except the last one of its layer.
const CHUNK_ITEMS_MIN: usize = 256;
/// Largest number of items of a recipe chunk that is written.
const CHUNK_ITEMS_MAX: usize = 4096;
/// Beyond the minimum, one in this many items ends a recipe chunk: about 1,000 items, 40 KiB.
const CHUNK_ITEMS_STEP: u64 = 768;
/// Largest number of items of a recipe chunk that is read: a few bytes could claim many holes.
const CHUNK_ITEMS_READ_MAX: usize = 1 << 16;
/// Mark before a slice: it reads as a hole of no bytes, which does not exist.
const SLICE: &[u8] = &[0, 0];
const NOTHING: &str = "an item that covers nothing";
/// Largest number of layers of recipe chunks that a reader follows: 256^8 items are enough for anything.
pub const DEPTH_MAX: u8 = 8;

/// Encodes a recipe chunk whose items have this depth.
pub fn encode(items: &[Item], depth: u8) -> Vec<u8> {
    let mut containers = Containers::default();
    let (mut shapes, mut fingerprints) = (Vec::new(), Vec::new());
    for item in items {
        put_item(item, depth, &mut containers, &mut shapes, &mut fingerprints);
    }
    let mut out = vec![VERSION, depth];
    put(&mut out, items.len() as u64);
    containers.put(&mut out);
    put(&mut out, shapes.len() as u64);
    out.extend_from_slice(&shapes);
    out.extend_from_slice(&fingerprints);
    out
}

/// Decodes the items of a recipe chunk, which must have this depth.
///
/// # Errors
/// [`Error::Malformed`](crate::Error::Malformed), with the offset: another depth, too many items, an item that covers
/// nothing or whose container is not listed, bytes behind the last item; another version.
pub fn decode(bytes: &[u8], depth: u8) -> Result<Vec<Item>> {
    let mut reader = WireReader::new("recipe", bytes);
    reader.version(VERSION)?;
    let found = reader.u8()?;
    if found != depth {
        return Err(reader.fail(format_args!("depth {found}, expected {depth}")));
    }
    let count = reader.count()?;
    if count > CHUNK_ITEMS_READ_MAX {
        return Err(reader.fail(format_args!(
            "{count} items, at most {CHUNK_ITEMS_READ_MAX} can be"
        )));
    }
    let containers = Containers::read(&mut reader)?;
    let mut shapes = reader.column("recipe")?;
    let items = (0..count)
        .map(|_| read_item(&mut shapes, &mut reader, depth, &containers))
        .collect::<Result<_>>()?;
    shapes.end()?;
    reader.end()?;
    Ok(items)
}

/// Returns the depth that a recipe chunk claims for its items; 0 where the bytes end before it.
pub(crate) fn depth_of(bytes: &[u8]) -> u8 {
    bytes.get(1).copied().unwrap_or(0)
}

/// Stores the bytes of a recipe chunk, and returns its reference.
pub type Store<'a> = &'a mut dyn FnMut(Vec<u8>) -> Result<ChunkRef>;

/// Least items of a recipe chunk for small files.
const GROUP_ITEMS_MIN: usize = 16;
/// Largest number of items of a recipe chunk for small files.
const GROUP_ITEMS_MAX: usize = 512;
/// Beyond the minimum, one in this many items ends a recipe chunk for small files: a mean of 64 items, about 2.3 KB. A
/// chunk costs about 120 bytes in leaf, descriptor and index; larger ones are shared less.
const GROUP_ITEMS_STEP: u64 = 48;

/// Cuts a leaf's items into groups, each a recipe chunk. Cuts depend only on the items since the last cut.
pub fn groups(items: &[Item]) -> Vec<&[Item]> {
    let mut groups = Vec::new();
    let mut start = 0;
    for (i, item) in items.iter().enumerate() {
        let len = i + 1 - start;
        if len >= GROUP_ITEMS_MAX || len >= GROUP_ITEMS_MIN && ends_chunk(item, GROUP_ITEMS_STEP) {
            groups.push(&items[start..=i]);
            start = i + 1;
        }
    }
    if start < items.len() {
        groups.push(&items[start..]);
    }
    groups
}

/// Turns a file's items into its content: stores recipe chunks through `store` as they fill, so that RAM stays bounded
/// for any file.
#[derive(Default)]
pub struct Builder {
    layers: Vec<Vec<Item>>,
}

impl Builder {
    /// Adds the next item of the file; adjoining holes become one.
    ///
    /// # Errors
    /// Errors of `store`; the builder must not be used after one.
    pub fn push(&mut self, item: Item, store: Store<'_>) -> Result<()> {
        if self.layers.is_empty() {
            self.layers.push(Vec::new());
        }
        match (self.layers[0].last_mut(), &item) {
            (_, item) if item.span() == 0 => return Ok(()),
            (Some(Item::Hole { len }), Item::Hole { len: more }) => {
                *len += more;
                return Ok(());
            }
            _ => {}
        }
        self.push_at(0, item, store)
    }

    fn push_at(&mut self, depth: usize, item: Item, store: Store<'_>) -> Result<()> {
        if self.layers.len() == depth {
            self.layers.push(Vec::new());
        }
        let layer = &mut self.layers[depth];
        layer.push(item);
        let ends = layer.len() >= CHUNK_ITEMS_MAX
            || layer.len() >= CHUNK_ITEMS_MIN && ends_chunk(&item, CHUNK_ITEMS_STEP);
        if ends {
            self.flush(depth, store)
        } else {
            Ok(())
        }
    }

    fn flush(&mut self, depth: usize, store: Store<'_>) -> Result<()> {
        let items = std::mem::take(&mut self.layers[depth]);
        let span = items.iter().map(Item::span).sum();
        let chunk = store(encode(&items, depth as u8))?;
        self.push_at(depth + 1, Item::Chunk { chunk, span }, store)
    }

    /// Returns the content of the file, and empties the builder for the next one.
    ///
    /// # Errors
    /// Errors of `store`; the builder must not be used after one.
    pub fn finish(&mut self, store: Store<'_>) -> Result<Content> {
        let mut depth = 0;
        while depth < self.layers.len() {
            let is_top = depth + 1 == self.layers.len();
            if !self.layers[depth].is_empty()
                && (!is_top || self.layers[depth].len() > LEAF_ITEMS_MAX)
            {
                self.flush(depth, store)?;
            }
            depth += 1;
        }
        let top = self.layers.last().cloned();
        let depth = self.layers.len().saturating_sub(1) as u8;
        // Keep the memory of the first layer for the next file.
        self.layers.truncate(1);
        self.layers.iter_mut().for_each(Vec::clear);
        Ok(Content {
            depth,
            items: top.unwrap_or_default(),
            digest: None,
        })
    }
}

fn ends_chunk(item: &Item, step: u64) -> bool {
    match item {
        // All slices of a chunk have its fingerprint, so they do not end a recipe chunk.
        Item::Hole { .. } | Item::Slice(_) => false,
        Item::Chunk { chunk, .. } => chunk.fingerprint.prefix() < u64::MAX / step,
    }
}

/// Containers that a leaf or recipe chunk refers to, numbered from 1 in order of first use; 0 is a hole.
#[derive(Default)]
pub struct Containers {
    numbers: HashMap<ContainerId, u64>,
    ids: Vec<ContainerId>,
}

impl Containers {
    pub(crate) fn number(&mut self, id: ContainerId) -> u64 {
        *self.numbers.entry(id).or_insert_with(|| {
            self.ids.push(id);
            self.ids.len() as u64
        })
    }

    /// Appends the table: the count, then eight bytes for each container.
    pub fn put(&self, out: &mut Vec<u8>) {
        put(out, self.ids.len() as u64);
        self.ids
            .iter()
            .for_each(|id| out.extend_from_slice(&id.0.to_le_bytes()));
    }

    /// Reads the table that [`put`](Self::put) wrote.
    pub(crate) fn read(reader: &mut WireReader<'_>) -> Result<Vec<ContainerId>> {
        let count = reader.count()?;
        (0..count)
            .map(|_| Ok(ContainerId(reader.u64_le()?)))
            .collect()
    }
}

/// Appends the items of a content of depth > 0, which stand in the leaf itself.
pub(crate) fn put_nodes(
    content: &Content,
    containers: &mut Containers,
    shapes: &mut Vec<u8>,
    fingerprints: &mut Vec<u8>,
) {
    for item in &content.items {
        put_item(item, content.depth, containers, shapes, fingerprints);
    }
}

/// Reads `count` items of depth > 0.
pub(crate) fn read_nodes(
    count: u64,
    depth: u8,
    containers: &[ContainerId],
    shapes: &mut WireReader<'_>,
    fingerprints: &mut WireReader<'_>,
) -> Result<Vec<Item>> {
    if count > shapes.left() as u64 || depth > DEPTH_MAX {
        return Err(shapes.fail(format_args!(
            "{count} items at depth {depth}, {} bytes left",
            shapes.left()
        )));
    }
    (0..count)
        .map(|_| read_item(shapes, fingerprints, depth, containers))
        .collect()
}

fn put_item(
    item: &Item,
    depth: u8,
    containers: &mut Containers,
    shapes: &mut Vec<u8>,
    fingerprints: &mut Vec<u8>,
) {
    match item {
        Item::Hole { .. } => shapes.push(0),
        Item::Chunk { chunk, .. } => {
            put(shapes, containers.number(chunk.container));
            fingerprints.extend_from_slice(&chunk.fingerprint.0);
            if depth > 0 {
                put(shapes, u64::from(chunk.len));
            }
        }
        Item::Slice(slice) => {
            shapes.extend_from_slice(SLICE);
            put(shapes, containers.number(slice.chunk.container));
            fingerprints.extend_from_slice(&slice.chunk.fingerprint.0);
            put(shapes, slice.chunk.len.into());
            put(shapes, slice.skip.into());
        }
    }
    put(shapes, item.span());
}

fn read_item(
    shapes: &mut WireReader<'_>,
    fingerprints: &mut WireReader<'_>,
    depth: u8,
    containers: &[ContainerId],
) -> Result<Item> {
    let number: usize = shapes.small()?;
    if number == 0 {
        return match shapes.varint()? {
            0 if depth == 0 => read_slice(shapes, fingerprints, containers),
            0 => Err(shapes.fail(NOTHING)),
            len => Ok(Item::Hole { len }),
        };
    }
    let container = container(number, containers, shapes)?;
    let fingerprint = Fingerprint(fingerprints.array()?);
    let chunk_len = if depth > 0 {
        Some(shapes.small()?)
    } else {
        None
    };
    let span = read_span(shapes)?;
    let len = match chunk_len {
        Some(len) => len,
        None => {
            u32::try_from(span).map_err(|_| shapes.fail(format_args!("a chunk of {span} bytes")))?
        }
    };
    if len == 0 {
        return Err(shapes.fail("a chunk of no bytes"));
    }
    Ok(Item::Chunk {
        chunk: ChunkRef {
            fingerprint,
            container,
            len,
        },
        span,
    })
}

/// Reads the rest of a slice, behind [`SLICE`].
fn read_slice(
    shapes: &mut WireReader<'_>,
    fingerprints: &mut WireReader<'_>,
    containers: &[ContainerId],
) -> Result<Item> {
    let container = container(shapes.small()?, containers, shapes)?;
    let fingerprint = Fingerprint(fingerprints.array()?);
    let (len, skip): (u32, u32) = (shapes.small()?, shapes.small()?);
    let span = read_span(shapes)?;
    let end = span.checked_add(skip.into());
    if span >= u64::from(len) || end.is_none_or(|end| end > u64::from(len)) {
        return Err(shapes.fail(format_args!(
            "{span} bytes from {skip} on as a part of a chunk of {len}"
        )));
    }
    let chunk = ChunkRef {
        fingerprint,
        container,
        len,
    };
    Ok(Item::Slice(Slice {
        chunk,
        skip,
        len: span as u32,
    }))
}

fn container(
    number: usize,
    containers: &[ContainerId],
    shapes: &WireReader<'_>,
) -> Result<ContainerId> {
    let found = number.checked_sub(1).and_then(|at| containers.get(at));
    found
        .copied()
        .ok_or_else(|| shapes.fail(format_args!("container {number} of {}", containers.len())))
}

/// Reads the bytes that an item covers. Zero is an error: any number of empty items would fit into any file, and recipe
/// chunks of them, layer upon layer, have no end.
fn read_span(shapes: &mut WireReader<'_>) -> Result<u64> {
    match shapes.varint()? {
        0 => Err(shapes.fail(NOTHING)),
        span => Ok(span),
    }
}
