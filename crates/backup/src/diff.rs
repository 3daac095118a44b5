//! Compares two snapshots: both are read in order, side by side; leaves that both have are not read.
//!
//! Invariant: a path that one of the two backups could not read or list is not called removed, added or changed, but
//! unknown. Where either snapshot has such entries, no leaf is left unread, since the missing names may lie below a
//! folder in it.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use onefold_store::{ChunkReader, ChunkRef};

use crate::path::{entry_order, join, show, split, within};
use crate::sample::Sample;
use crate::tree::{Tree, TreeCursor, Visit, visit_once};
use crate::{Entry, Error, Kind, Result, Slice, content};

/// Difference of an entry between two snapshots; the letters are restic's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// `+`: only the second has it.
    Added,
    /// `-`: only the first has it.
    Removed,
    /// `M`: its content differs.
    Content,
    /// `U`: its metadata differs, its content does not.
    Metadata,
    /// `T`: it is something else.
    Kind,
    /// `?`: one of the two backups could not read the entry or (where metadata counts) its attributes, or could not
    /// list a folder above it.
    Unknown,
}

impl Mark {
    /// The mark as it is printed.
    pub fn letter(self) -> char {
        match self {
            Mark::Added => '+',
            Mark::Removed => '-',
            Mark::Content => 'M',
            Mark::Metadata => 'U',
            Mark::Kind => 'T',
            Mark::Unknown => '?',
        }
    }
}

/// Counts of one side of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Side {
    /// Number of files.
    pub files: u64,
    /// Number of folders.
    pub dirs: u64,
    /// Number of links, pipes, sockets and devices.
    pub others: u64,
    /// Different chunks of contents that only this side has, in entries that differ.
    pub data_chunks: u64,
    /// Bytes of the chunks of contents that only this side has.
    pub bytes: u64,
    /// Leaves and recipe chunks that only this side has. Where only a part of the snapshots is compared, leaves do not
    /// count: a leaf holds entries of several folders.
    pub tree_chunks: u64,
}

/// All counts of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct DiffSummary {
    /// Files with other content.
    pub changed_files: u64,
    /// Entries that only the second snapshot has, or has as another kind.
    pub added: Side,
    /// Entries that only the first snapshot has, or has as another kind.
    pub removed: Side,
    /// Paths that one snapshot knows nothing about.
    pub unknown: u64,
}

/// Receiver of differences: mark, path, entry of the first snapshot, entry of the second.
pub type Tell<'a> = &'a mut dyn FnMut(Mark, &[u8], Option<&Entry>, Option<&Entry>);

/// Compares two snapshots; `tell` gets each difference in order: mark, path, and the entries of the first and the
/// second. Without `metadata`, entries that differ in metadata only are equal. Only `below` and paths below it are
/// reported and counted; empty: all paths.
///
/// # Errors
/// [`Error::NotInSnapshot`] where neither has `below`; [`Error::Store`] or [`Error::Malformed`] where a leaf or recipe
/// chunk cannot be had: the comparison ends there.
pub fn diff(
    (first, second): (&Tree, &Tree),
    reader: &mut ChunkReader,
    below: &[u8],
    metadata: bool,
    tell: Tell<'_>,
) -> Result<DiffSummary> {
    if !below.is_empty()
        && first.entry(below, reader)?.is_none()
        && second.entry(below, reader)?.is_none()
    {
        return Err(Error::NotInSnapshot(show(below)));
    }
    let (mut a, mut b) = (first.cursor(), second.cursor());
    let mut summary = DiffSummary::default();
    let may_skip = first.is_complete() && second.is_complete();
    let (mut blind_a, mut blind_b) = (Blind::default(), Blind::default());
    let mut chunks = if below.is_empty() {
        DifferingChunks::of(first, second)
    } else {
        DifferingChunks::default()
    };
    loop {
        if let (Some(i), Some(j)) = (a.at_leaf(), b.at_leaf())
            && may_skip
            && first.leaves()[i].chunk.fingerprint == second.leaves()[j].chunk.fingerprint
        {
            a.skip_leaf();
            b.skip_leaf();
            continue;
        }
        let order = match (a.peek(reader)?, b.peek(reader)?) {
            (None, None) => {
                chunks.count(&mut summary);
                return Ok(summary);
            }
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => entry_order(a, b),
        };
        let left = if order.is_le() {
            take(&mut a, reader)?
        } else {
            None
        };
        let right = if order.is_ge() {
            take(&mut b, reader)?
        } else {
            None
        };
        left.iter().for_each(|placed| blind_a.meet(placed));
        right.iter().for_each(|placed| blind_b.meet(placed));
        let at = left.as_ref().or(right.as_ref());
        if !at.is_some_and(|(path, _)| within(path, below)) {
            continue;
        }
        let is_unknown = match (&left, &right) {
            (Some((path, _)), None) => blind_b.covers(path),
            (None, Some((path, _))) => blind_a.covers(path),
            _ => false,
        };
        let mark = match (&left, &right) {
            _ if is_unknown => Some(Mark::Unknown),
            (Some((_, a)), Some((_, b))) => compare(a, b, metadata, reader)?,
            (Some(_), None) => Some(Mark::Removed),
            (None, _) => Some(Mark::Added),
        };
        let Some(mark) = mark else { continue };
        tell_and_count(mark, (left.as_ref(), right.as_ref()), &mut summary, tell);
        chunks.meet((left.as_ref(), right.as_ref()), reader)?;
    }
}

/// Paths that one snapshot knows nothing about: they could not be read or listed, nor anything below them.
#[derive(Default)]
struct Blind(BTreeSet<Vec<u8>>);

impl Blind {
    fn meet(&mut self, (path, entry): &Placed) {
        if entry.is_unlisted() || entry.is_unreadable() {
            self.0.insert(path.clone());
        }
    }

    fn covers(&self, path: &[u8]) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let mut above = split(path).0;
        while !above.is_empty() {
            if self.0.contains(above) {
                return true;
            }
            above = split(above).0;
        }
        self.0.contains(above)
    }
}

/// Chunks of entries that differ, for data and metadata, with the sides that have them.
#[derive(Default)]
struct DifferingChunks {
    data: Sample<Sides>,
    tree: Sample<Sides>,
}

/// Sides that have a chunk (first, second), and the chunk's length in bytes.
#[derive(Default)]
struct Sides {
    has: [bool; 2],
    bytes: u32,
}

impl Sides {
    fn note(&mut self, side: usize, chunk: &ChunkRef) {
        self.has[side] = true;
        self.bytes = chunk.len;
    }

    fn only(&self, side: usize) -> bool {
        self.has[side] && !self.has[1 - side]
    }
}

impl DifferingChunks {
    fn of(first: &Tree, second: &Tree) -> Self {
        let mut chunks = Self::default();
        for (side, tree) in [first, second].into_iter().enumerate() {
            for leaf in tree.leaves() {
                let hash = leaf.chunk.fingerprint.prefix();
                chunks
                    .tree
                    .meet(hash, |sides| sides.note(side, &leaf.chunk));
            }
        }
        chunks
    }

    /// Adds the chunks of two entries that differ.
    fn meet(
        &mut self,
        (left, right): (Option<&Placed>, Option<&Placed>),
        reader: &mut ChunkReader,
    ) -> Result<()> {
        for (side, placed) in [left, right].into_iter().enumerate() {
            let Some((_, entry)) = placed else { continue };
            visit_once(&entry.content, reader, &mut |visit, _| {
                let (sample, chunk) = match visit {
                    Visit::Recipe(chunk) => (&mut self.tree, chunk),
                    Visit::Data(Slice { chunk, .. }, _) => (&mut self.data, chunk),
                    Visit::Hole(..) => return Ok(true),
                };
                let hash = chunk.fingerprint.prefix();
                sample.meet(hash, |sides| sides.note(side, &chunk));
                Ok(true)
            })?;
        }
        Ok(())
    }

    fn count(&self, summary: &mut DiffSummary) {
        for (side, sums) in [&mut summary.removed, &mut summary.added]
            .into_iter()
            .enumerate()
        {
            let only = |sides: &Sides| u64::from(sides.only(side));
            sums.data_chunks = self.data.sum(only);
            sums.tree_chunks = self.tree.sum(only);
            sums.bytes = self.data.sum(|sides| only(sides) * u64::from(sides.bytes));
        }
    }
}

type Placed = (Vec<u8>, Entry);

fn take(cursor: &mut TreeCursor<'_>, reader: &mut ChunkReader) -> Result<Option<Placed>> {
    let next = cursor.next(reader)?;
    Ok(next.map(|(folder, entry)| (join(&folder, &entry.name), entry)))
}

fn tell_and_count(
    mark: Mark,
    (left, right): (Option<&Placed>, Option<&Placed>),
    summary: &mut DiffSummary,
    tell: Tell<'_>,
) {
    let (a, b) = (left.map(|(_, entry)| entry), right.map(|(_, entry)| entry));
    match mark {
        Mark::Metadata => {}
        Mark::Unknown => summary.unknown += 1,
        Mark::Content => {
            summary.changed_files += 1;
        }
        Mark::Added | Mark::Removed | Mark::Kind => {
            a.into_iter()
                .for_each(|entry| count(&mut summary.removed, entry));
            b.into_iter()
                .for_each(|entry| count(&mut summary.added, entry));
        }
    }
    if let Some((path, _)) = left.or(right) {
        tell(mark, path, a, b);
    }
}

fn count(side: &mut Side, entry: &Entry) {
    match entry.kind {
        Kind::File => side.files += 1,
        Kind::Dir => side.dirs += 1,
        _ => side.others += 1,
    }
}

/// Compares two entries of one path; with `metadata`, their metadata too. Places of chunks do not count, nor do inode
/// numbers and times of change of the inode.
fn compare(a: &Entry, b: &Entry, metadata: bool, reader: &mut ChunkReader) -> Result<Option<Mark>> {
    if a.is_unreadable() || b.is_unreadable() {
        let is_same = a.is_unreadable() && b.is_unreadable() && is_untouched(a, b);
        return Ok((!is_same).then_some(Mark::Unknown));
    }
    if a.kind != b.kind {
        return Ok(Some(Mark::Kind));
    }
    let same = a.size == b.size
        && a.target == b.target
        && content::is_same(&a.content, &b.content, reader)?;
    if !same {
        return Ok(Some(Mark::Content));
    }
    if !metadata {
        return Ok(None);
    }
    let rest = |e: &Entry| (e.mode, e.owner.clone(), e.mtime, e.rdev);
    // A time of access that a snapshot does not keep equals any other.
    let same_atime = a.atime.is_none() || b.atime.is_none() || a.atime == b.atime;
    if rest(a) != rest(b) || !same_atime {
        return Ok(Some(Mark::Metadata));
    }
    // An entry whose attributes could not be read has none, so they cannot be compared.
    if a.knows_xattrs() && b.knows_xattrs() {
        return Ok((a.xattrs != b.xattrs).then_some(Mark::Metadata));
    }
    Ok((!is_untouched(a, b)).then_some(Mark::Unknown))
}

/// Whether the inode is unchanged between the two: then the parts that could not be read are the same, too.
fn is_untouched(a: &Entry, b: &Entry) -> bool {
    let state = |e: &Entry| (e.kind, e.mtime, e.ctime, e.inode, e.device);
    state(a) == state(b)
}
