//! Reads a snapshot's entries leaf by leaf: in order from the start, or from any path.

use std::collections::VecDeque;
use std::sync::Arc;

use onefold_store::{ChunkReader, ChunkRef};

use crate::expansion::{Expansion, SeenRecipes};
use crate::leaf::{Leaf, recipe};
use crate::path::entry_order;
use crate::snapshot::{LeafRef, LeafTable, Snapshot, append_table};
use crate::wire::WireReader;
use crate::{Content, Entry, Item, Result, Slice};

/// The entries of one snapshot. Holds only the table of leaves (about 100 bytes per 1,500 entries) in RAM.
pub struct Tree {
    leaves: Vec<LeafRef>,
    is_complete: bool,
}

impl Tree {
    /// Reads the snapshot's table of leaves.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store): a chunk of the table cannot be read.
    /// [`Error::Malformed`](crate::Error::Malformed): the table means nothing.
    pub fn open(snapshot: &Snapshot, reader: &mut ChunkReader) -> Result<Self> {
        let leaves = match &snapshot.table {
            LeafTable::Inline(leaves) => leaves.clone(),
            LeafTable::Chunks(chunks) => {
                let mut leaves = Vec::new();
                for chunk in chunks {
                    append_table(&reader.read(chunk)?, &mut leaves)?;
                }
                leaves
            }
        };
        Ok(Self {
            leaves,
            is_complete: snapshot.summary.errors == 0,
        })
    }

    /// Whether the backup could read and list everything, so that no entry is flagged.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// All leaves, in order.
    pub fn leaves(&self) -> &[LeafRef] {
        &self.leaves
    }

    /// Returns the number of the leaf that holds the entry with this key, if any leaf holds it.
    pub fn leaf_of(&self, folder: &[u8], name: &[u8]) -> usize {
        let after = self.leaves.partition_point(|leaf| {
            entry_order((&leaf.folder, &leaf.name), (folder, name)).is_le()
        });
        after.saturating_sub(1)
    }

    /// Returns a cursor at the first entry whose key is not below (folder, name).
    pub fn cursor_at(&self, folder: &[u8], name: &[u8]) -> TreeCursor<'_> {
        let skip = Some((folder.to_vec(), name.to_vec()));
        TreeCursor {
            next_leaf: self.leaf_of(folder, name),
            skip,
            ..self.cursor()
        }
    }

    /// Returns a cursor at the first entry.
    pub fn cursor(&self) -> TreeCursor<'_> {
        TreeCursor {
            tree: self,
            next_leaf: 0,
            runs: VecDeque::new(),
            entries: VecDeque::new(),
            skip: None,
        }
    }

    /// Returns the entry at `path` (clean, not the root), if there is one.
    ///
    /// # Errors
    /// Errors of [`read_leaf`].
    pub fn entry(&self, path: &[u8], reader: &mut ChunkReader) -> Result<Option<Entry>> {
        let (folder, name) = crate::path::split(path);
        let mut cursor = self.cursor_at(folder, name);
        let found = cursor
            .peek(reader)?
            .is_some_and(|key| key == (folder, name));
        Ok(if found {
            cursor.next(reader)?.map(|(_, entry)| entry)
        } else {
            None
        })
    }
}

/// Reads and decodes one leaf, contents included.
///
/// # Errors
/// [`Error::Store`](crate::Error::Store): the leaf, or one of its recipe chunks, cannot be read.
/// [`Error::Malformed`](crate::Error::Malformed): the leaf means nothing, or is of another version.
pub fn read_leaf(leaf: &LeafRef, reader: &mut ChunkReader) -> Result<Leaf> {
    let bytes = reader.read(&leaf.chunk)?;
    crate::leaf::decode(&bytes, &mut |chunk| recipe::decode(&reader.read(chunk)?, 0))
}

/// A place among a snapshot's entries. Holds one leaf at a time in RAM.
pub struct TreeCursor<'a> {
    tree: &'a Tree,
    next_leaf: usize,
    runs: VecDeque<crate::leaf::FolderRun>,
    entries: VecDeque<Entry>,
    skip: Option<(Vec<u8>, Vec<u8>)>,
}

impl TreeCursor<'_> {
    /// Returns (folder, name) of the entry that [`next`](Self::next) will return.
    ///
    /// # Errors
    /// Errors of [`read_leaf`], each time until the leaf is [passed over](Self::pass_over).
    pub fn peek(&mut self, reader: &mut ChunkReader) -> Result<Option<(&[u8], &[u8])>> {
        self.load(reader)?;
        Ok(self
            .runs
            .front()
            .map(|run| (&run.folder[..], &self.entries[0].name[..])))
    }

    /// Returns the next entry with its folder.
    ///
    /// # Errors
    /// Errors of [`peek`](Self::peek).
    pub fn next(&mut self, reader: &mut ChunkReader) -> Result<Option<(Vec<u8>, Entry)>> {
        self.load(reader)?;
        Ok(self.pop())
    }

    /// Moves to the first entry whose key is not below (folder, name), and returns it if that is its key.
    ///
    /// # Errors
    /// Errors of [`peek`](Self::peek).
    pub fn advance_to(
        &mut self,
        folder: &[u8],
        name: &[u8],
        reader: &mut ChunkReader,
    ) -> Result<Option<Entry>> {
        loop {
            let order = match self.peek(reader)? {
                None => return Ok(None),
                Some(key) => entry_order(key, (folder, name)),
            };
            match order {
                std::cmp::Ordering::Less => drop(self.pop()),
                std::cmp::Ordering::Equal => return Ok(self.pop().map(|(_, entry)| entry)),
                std::cmp::Ordering::Greater => return Ok(None),
            }
        }
    }

    /// Returns the number of the next leaf, at its start, before it is read. Callers that know the leaf may skip it.
    pub fn at_leaf(&self) -> Option<usize> {
        (self.entries.is_empty() && self.skip.is_none() && self.next_leaf < self.tree.leaves.len())
            .then_some(self.next_leaf)
    }

    /// Skips the leaf that [`at_leaf`](Self::at_leaf) named.
    pub fn skip_leaf(&mut self) {
        self.next_leaf += 1;
    }

    /// Skips the leaf that could not be read, after [`next`](Self::next) or [`peek`](Self::peek) failed, and returns
    /// it.
    pub fn pass_over(&mut self) -> Option<&LeafRef> {
        let leaf = self.tree.leaves.get(self.next_leaf)?;
        self.next_leaf += 1;
        Some(leaf)
    }

    fn pop(&mut self) -> Option<(Vec<u8>, Entry)> {
        let entry = self.entries.pop_front()?;
        let run = self.runs.front_mut()?;
        run.count -= 1;
        let folder = if run.count == 0 {
            self.runs.pop_front()?.folder
        } else {
            run.folder.clone()
        };
        Some((folder, entry))
    }

    fn load(&mut self, reader: &mut ChunkReader) -> Result<()> {
        while self.entries.is_empty() && self.next_leaf < self.tree.leaves.len() {
            let leaf = read_leaf(&self.tree.leaves[self.next_leaf], reader)?;
            self.next_leaf += 1;
            (self.runs, self.entries) = (leaf.runs.into(), leaf.entries.into());
            if let Some((folder, name)) = self.skip.take() {
                while self.runs.front().is_some_and(|run| {
                    entry_order((&run.folder, &self.entries[0].name), (&folder, &name)).is_lt()
                }) {
                    drop(self.pop());
                }
                if self.entries.is_empty() {
                    self.skip = None;
                }
            }
        }
        Ok(())
    }
}

/// An item of a content, on a visit by [`visit_items`].
pub enum Visit {
    /// A recipe chunk, before it is read. The visitor returns false to skip its items.
    Recipe(ChunkRef),
    /// A chunk of the file's data, or a part of one, at this offset.
    Data(Slice, u64),
    /// A hole at this offset, of this length.
    Hole(u64, u64),
}

/// Receiver of items; it gets the reader that the visit uses.
pub type VisitItem<'a> = &'a mut dyn FnMut(Visit, &mut ChunkReader) -> Result<bool>;

/// Visits a content's recipe chunks and data in file order. `visit` decides for a recipe chunk whether to open it, and
/// for others whether to go on.
///
/// # Errors
/// Errors of `visit`; [`Error::Store`](crate::Error::Store) or [`Error::Malformed`](crate::Error::Malformed) where a
/// recipe chunk cannot be had: the visit ends there.
pub fn visit_items(
    content: &Content,
    reader: &mut ChunkReader,
    visit: VisitItem<'_>,
) -> Result<()> {
    visit_items_from(content, 0, reader, visit)
}

/// Visits items as [`visit_items`] does, but opens each recipe chunk once: for callers that only ask which chunks there
/// are.
///
/// # Errors
/// Errors of [`visit_items`].
pub fn visit_once(content: &Content, reader: &mut ChunkReader, visit: VisitItem<'_>) -> Result<()> {
    let mut seen = SeenRecipes::default();
    visit_items(content, reader, &mut |met, reader| match met {
        Visit::Recipe(chunk) => Ok(visit(met, reader)? && seen.is_new(&chunk)),
        met => visit(met, reader),
    })
}

/// Visits items as [`visit_items`] does, except those that end at or before `from`; their recipe chunks are not read.
///
/// # Errors
/// Errors of [`visit_items`].
pub fn visit_items_from(
    content: &Content,
    from: u64,
    reader: &mut ChunkReader,
    visit: VisitItem<'_>,
) -> Result<()> {
    let mut walk = ItemVisit {
        offset: 0,
        from,
        expansion: Expansion::default(),
    };
    walk.level(&content.items, content.depth, reader, visit)
        .map(drop)
}

/// State of a visit of items.
struct ItemVisit {
    offset: u64,
    /// Offset in the file: items that end at or before it are skipped.
    from: u64,
    expansion: Expansion,
}

impl ItemVisit {
    /// Visits the items of one recipe chunk, or of the entry. Returns false where the visit ends.
    fn level(
        &mut self,
        items: &[Item],
        depth: u8,
        reader: &mut ChunkReader,
        visit: VisitItem<'_>,
    ) -> Result<bool> {
        for item in items {
            let start = self.offset;
            let end = start
                .checked_add(item.span())
                .ok_or_else(|| WireReader::new("recipe", b"").fail("more than 2^64 bytes"))?;
            if self.from > 0 && end <= self.from {
                self.offset = end;
                continue;
            }
            let on = match *item {
                Item::Hole { len } => visit(Visit::Hole(start, len), reader)?,
                Item::Chunk { chunk, .. } if depth == 0 => {
                    visit(Visit::Data(Slice::whole(chunk), start), reader)?
                }
                Item::Slice(slice) => visit(Visit::Data(slice, start), reader)?,
                Item::Chunk { chunk, span } => {
                    if visit(Visit::Recipe(chunk), reader)? {
                        self.expansion.open()?;
                        let below = read_recipe(&chunk, span, depth - 1, reader)?;
                        if !self.level(&below.items, depth - 1, reader, visit)? {
                            return Ok(false);
                        }
                        continue;
                    }
                    true
                }
            };
            if !on {
                return Ok(false);
            }
            self.expansion.pass(item);
            self.expansion.confirm()?;
            self.offset = end;
        }
        Ok(true)
    }
}

/// Reads the items of a recipe chunk, which must have this depth and cover `span` bytes. Any number of entries may
/// refer to one: it is decoded once.
pub(crate) fn read_recipe(
    chunk: &ChunkRef,
    span: u64,
    depth: u8,
    reader: &mut ChunkReader,
) -> Result<Arc<Recipe>> {
    let recipe = reader.decoded(chunk, |bytes| {
        let recipe = Recipe::of(bytes);
        let heap_bytes = recipe.heap_bytes();
        (recipe, heap_bytes)
    })?;
    if let Some(failure) = &recipe.failure {
        return Err(same_failure(failure));
    }
    let fail = |why: std::fmt::Arguments<'_>| Err(WireReader::new("recipe", b"").fail(why));
    if recipe.depth != depth {
        return fail(format_args!("depth {}, expected {depth}", recipe.depth));
    }
    let sum = recipe.sum;
    if sum == Some(span) {
        Ok(recipe)
    } else {
        fail(format_args!("items cover {sum:?} bytes, expected {span}"))
    }
}

/// A decoded recipe chunk.
pub(crate) struct Recipe {
    depth: u8,
    pub items: Vec<Item>,
    /// Bytes that the items cover; `None` beyond 2^64.
    sum: Option<u64>,
    /// Error of decoding. It is kept, so that damage costs one decoding, however many entries refer to it.
    failure: Option<crate::Error>,
}

impl Recipe {
    fn of(bytes: &[u8]) -> Self {
        let depth = recipe::depth_of(bytes);
        let (items, failure) = match recipe::decode(bytes, depth) {
            Ok(items) => (items, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let mut spans = items.iter().map(Item::span);
        Self {
            depth,
            sum: spans.try_fold(0u64, u64::checked_add),
            items,
            failure,
        }
    }

    fn heap_bytes(&self) -> usize {
        self.items.capacity() * size_of::<Item>() + 256
    }
}

/// Returns a copy of the error of decoding.
fn same_failure(failure: &crate::Error) -> crate::Error {
    match failure {
        crate::Error::Malformed(error) => crate::Error::Malformed(onefold_io::Error {
            path: error.path.clone(),
            what: error.what.clone(),
            source: None,
            ..*error
        }),
        // Decoding reads nothing from the device, so there is no other kind.
        other => WireReader::new("recipe", b"").fail(other),
    }
}
