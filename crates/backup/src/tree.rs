//! A snapshot's entries, read leaf by leaf: in order from the start, or from any path.

use std::collections::VecDeque;

use onefold_store::{ChunkReader, ChunkRef};

use crate::expansion::{Expansion, Once};
use crate::leaf::{Leaf, recipe};
use crate::path::entry_order;
use crate::snapshot::{LeafRef, Snapshot, Table, append_table};
use crate::{Content, Entry, Item, Result, Slice};

/// The entries of one snapshot. Holds the table of leaves (about 100 bytes per 1,500 entries) and nothing else.
pub struct Tree {
    leaves: Vec<LeafRef>,
    is_complete: bool,
}

impl Tree {
    /// Reads the snapshot's table of leaves.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store): a chunk of it cannot be read.
    /// [`Error::Malformed`](crate::Error::Malformed): it means nothing.
    pub fn open(snapshot: &Snapshot, reader: &mut ChunkReader) -> Result<Self> {
        let leaves = match &snapshot.table {
            Table::Inline(leaves) => leaves.clone(),
            Table::Chunks(chunks) => {
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

    /// Whether its backup could read and list everything, so that no entry is flagged.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// All leaves, in order.
    pub fn leaves(&self) -> &[LeafRef] {
        &self.leaves
    }

    /// The number of the leaf that holds the entry with this key, if any holds it.
    pub fn leaf_of(&self, folder: &[u8], name: &[u8]) -> usize {
        let after = self.leaves.partition_point(|leaf| {
            entry_order((&leaf.folder, &leaf.name), (folder, name)).is_le()
        });
        after.saturating_sub(1)
    }

    /// Entries in order, from the first whose key is not below (folder, name).
    pub fn cursor_at(&self, folder: &[u8], name: &[u8]) -> Cursor<'_> {
        let skip = Some((folder.to_vec(), name.to_vec()));
        Cursor {
            next_leaf: self.leaf_of(folder, name),
            skip,
            ..self.cursor()
        }
    }

    /// All entries in order.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor {
            tree: self,
            next_leaf: 0,
            runs: VecDeque::new(),
            entries: VecDeque::new(),
            skip: None,
        }
    }

    /// The entry at `path` (clean, not the root), if there is one.
    ///
    /// # Errors
    /// Those of [`read_leaf`].
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
/// [`Error::Store`](crate::Error::Store): it, or one of its recipe chunks, cannot be read.
/// [`Error::Malformed`](crate::Error::Malformed): it means nothing, or is of another version.
pub fn read_leaf(leaf: &LeafRef, reader: &mut ChunkReader) -> Result<Leaf> {
    let bytes = reader.read(&leaf.chunk)?;
    crate::leaf::decode(&bytes, &mut |chunk| recipe::decode(&reader.read(chunk)?, 0))
}

/// A place among a snapshot's entries. One leaf is in RAM at a time.
pub struct Cursor<'a> {
    tree: &'a Tree,
    next_leaf: usize,
    runs: VecDeque<crate::leaf::Run>,
    entries: VecDeque<Entry>,
    skip: Option<(Vec<u8>, Vec<u8>)>,
}

impl Cursor<'_> {
    /// (folder, name) of the entry that [`next`](Self::next) will give.
    ///
    /// # Errors
    /// Those of [`read_leaf`], again and again until the leaf is [passed over](Self::pass_over).
    pub fn peek(&mut self, reader: &mut ChunkReader) -> Result<Option<(&[u8], &[u8])>> {
        self.load(reader)?;
        Ok(self
            .runs
            .front()
            .map(|run| (&run.folder[..], &self.entries[0].name[..])))
    }

    /// The next entry with its folder.
    ///
    /// # Errors
    /// Those of [`peek`](Self::peek).
    pub fn next(&mut self, reader: &mut ChunkReader) -> Result<Option<(Vec<u8>, Entry)>> {
        self.load(reader)?;
        Ok(self.pop())
    }

    /// Moves on to the first entry whose key is not below (folder, name), and gives it if that is its key.
    ///
    /// # Errors
    /// Those of [`peek`](Self::peek).
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

    /// At the start of a leaf that is not read yet: its number. Callers that know the leaf may pass it over.
    pub fn at_leaf(&self) -> Option<usize> {
        (self.entries.is_empty() && self.skip.is_none() && self.next_leaf < self.tree.leaves.len())
            .then_some(self.next_leaf)
    }

    /// Passes over the leaf that [`at_leaf`](Self::at_leaf) named.
    pub fn skip_leaf(&mut self) {
        self.next_leaf += 1;
    }

    /// Passes over the leaf that could not be read, after [`next`](Self::next) or [`peek`](Self::peek) failed, and
    /// gives it.
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

/// What [`visit_items`] meets.
pub enum Visit {
    /// A recipe chunk, before it is read. False: pass over what it holds.
    Recipe(ChunkRef),
    /// A chunk of the file's data, or a part of one, at this offset.
    Data(Slice, u64),
    /// A hole at this offset, of this length.
    Hole(u64, u64),
}

/// Told of each item, with the reader that the walk over them lends it.
pub type VisitItem<'a> = &'a mut dyn FnMut(Visit, &mut ChunkReader) -> Result<bool>;

/// Visits a content's recipe chunks and data in file order; `visit` says of a recipe chunk whether to go into it, and
/// of the rest whether to go on.
///
/// # Errors
/// Those of `visit`; [`Error::Store`](crate::Error::Store) or [`Error::Malformed`](crate::Error::Malformed) where a
/// recipe chunk cannot be had, which ends it.
pub fn visit_items(
    content: &Content,
    reader: &mut ChunkReader,
    visit: VisitItem<'_>,
) -> Result<()> {
    visit_items_from(content, 0, reader, visit)
}

/// As [`visit_items`], for who only asks what is in it: each recipe chunk is gone into once, however often it comes.
///
/// # Errors
/// Those of [`visit_items`].
pub fn visit_once(content: &Content, reader: &mut ChunkReader, visit: VisitItem<'_>) -> Result<()> {
    let mut once = Once::default();
    visit_items(content, reader, &mut |met, reader| match met {
        Visit::Recipe(chunk) => Ok(visit(met, reader)? && once.is_new(&chunk)),
        met => visit(met, reader),
    })
}

/// As [`visit_items`], but for items that end at or before `from`; their recipe chunks are not read.
///
/// # Errors
/// Those of [`visit_items`].
pub fn visit_items_from(
    content: &Content,
    from: u64,
    reader: &mut ChunkReader,
    visit: VisitItem<'_>,
) -> Result<()> {
    let mut walk = Walk {
        offset: 0,
        from,
        expansion: Expansion::default(),
    };
    walk.level(&content.items, content.depth, reader, visit)
        .map(drop)
}

/// Where a visit of items is.
struct Walk {
    offset: u64,
    /// What ends at or before this is passed over.
    from: u64,
    expansion: Expansion,
}

impl Walk {
    /// Visits the items of one recipe chunk, or of the entry. False: the visit ends.
    fn level(
        &mut self,
        items: &[Item],
        depth: u8,
        reader: &mut ChunkReader,
        visit: VisitItem<'_>,
    ) -> Result<bool> {
        for item in items {
            let start = self.offset;
            let end = start.checked_add(item.span()).ok_or_else(|| {
                crate::wire::Reader::new("recipe", b"").fail("more than 2^64 bytes")
            })?;
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
                        if !self.level(&below, depth - 1, reader, visit)? {
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

/// The items of a recipe chunk, which must have this depth and cover `span` bytes.
pub(crate) fn read_recipe(
    chunk: &ChunkRef,
    span: u64,
    depth: u8,
    reader: &mut ChunkReader,
) -> Result<Vec<Item>> {
    let items = recipe::decode(&reader.read(chunk)?, depth)?;
    let sum = items
        .iter()
        .try_fold(0u64, |sum, item| sum.checked_add(item.span()));
    match sum == Some(span) {
        true => Ok(items),
        false => Err(crate::wire::Reader::new("recipe", b"")
            .fail(format_args!("items cover {sum:?} bytes, expected {span}"))),
    }
}
