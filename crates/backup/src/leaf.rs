//! The leaf: a run of entries of consecutive folders, column by column; one metadata chunk. FORMAT.md, "Leaf",
//! specifies the format.
//!
//! A snapshot's entries are sorted by (folder, name) and cut into leaves by [`LeafCutter`]. Its decisions depend on
//! paths and sizes of entries alone, so that a change in one folder leaves the leaves of other folders as they were:
//! they deduplicate against the snapshot before. The entries are in columns, because neighbours resemble each other in
//! each property: names, times and inodes shrink to a few bytes. Fingerprints, which cannot shrink, are in recipe
//! chunks of some dozens of items, cut where a fingerprint says so, which a set of files shares with every copy of
//! itself. A tree of 15 versions side by side needs a third of the bytes that fingerprints in the leaves took.

mod cut;
mod decode;
mod encode;
mod limits;
pub mod recipe;

pub use cut::LeafCutter;
pub use decode::{decode, decode_bare};
pub use encode::encode;
pub use limits::OWNER_NAME_BYTES_MAX;

use onefold_store::ChunkRef;

use crate::{Entry, Item};

/// Version of the leaf format that is written.
pub const VERSION: u8 = 1;

/// Entries of one leaf, in order.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Leaf {
    /// Folders, in order; a folder that was cut is in several leaves.
    pub runs: Vec<FolderRun>,
    /// Entries, run by run.
    pub entries: Vec<Entry>,
    /// Recipe chunks that hold, one after another, the items of all files whose content has depth 0.
    pub recipes: Vec<RecipeRef>,
}

/// A recipe chunk of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecipeRef {
    /// Fingerprint, container and length of the recipe chunk.
    pub chunk: ChunkRef,
    /// Number of its items.
    pub items: u32,
}

/// The entries of one folder within a leaf.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FolderRun {
    /// Path of the folder, as in [`path`](crate::path).
    pub folder: Vec<u8>,
    /// Number of entries of the leaf that lie in it; at least one.
    pub count: usize,
}

impl Leaf {
    /// Appends an entry that follows all others in the order of the walk.
    pub fn push(&mut self, folder: &[u8], entry: Entry) {
        match self.runs.last_mut() {
            Some(run) if run.folder == folder => run.count += 1,
            _ => self.runs.push(FolderRun {
                folder: folder.to_vec(),
                count: 1,
            }),
        }
        self.entries.push(entry);
    }

    /// Returns the folder of the last entry.
    fn folder(&self) -> Option<&[u8]> {
        self.runs.last().map(|run| run.folder.as_slice())
    }

    /// Gives (folder, entry), in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        let folders = self
            .runs
            .iter()
            .flat_map(|run| std::iter::repeat_n(run.folder.as_slice(), run.count));
        folders.zip(&self.entries)
    }

    /// Gives the items of all files whose content has depth 0, in order.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        let contents = self.entries.iter().map(|entry| &entry.content);
        contents
            .filter(|content| content.depth == 0)
            .flat_map(|content| &content.items)
    }

    /// Returns (folder, name) of the first entry.
    pub fn first(&self) -> Option<(&[u8], &[u8])> {
        Some((&self.runs.first()?.folder, &self.entries.first()?.name))
    }
}

/// Columns, in their order on disk.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Column {
    NameLengths,
    Names,
    Modes,
    Owners,
    Sizes,
    MtimeSecs,
    MtimeNanos,
    CtimeSecs,
    CtimeNanos,
    Inodes,
    Devices,
    Links,
    Special,
    XattrIndexes,
    Flags,
    Shapes,
    Fingerprints,
    /// From here on a column is there only where the leaf's head says so.
    AtimeSecs,
    AtimeNanos,
    Digests,
}

/// Number of columns that every leaf has.
const COLUMNS: usize = Column::Fingerprints as usize + 1;
/// Number of columns of a leaf that has all of them.
const COLUMNS_MAX: usize = Column::Digests as usize + 1;

/// Bit of a leaf's head: ctimes are stored as differences from mtimes.
const CTIME_FROM_MTIME: u8 = 1;
/// Bit of a leaf's head: times of access are kept.
const HAS_ATIMES: u8 = 2;
/// Bit of a leaf's head: some files have digests.
const HAS_DIGESTS: u8 = 4;

/// Whether a leaf with this head has the column with this number.
fn has_column(head: u8, column: usize) -> bool {
    match column {
        _ if column < COLUMNS => true,
        _ if column == Column::Digests as usize => head & HAS_DIGESTS != 0,
        _ => head & HAS_ATIMES != 0,
    }
}
