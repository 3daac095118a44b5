//! Repairs a snapshot: makes a new one without the lost parts, which can be read as a whole.
//!
//! Invariant: the new snapshot claims nothing that is not there. A file whose content is lost, in whole or in part,
//! becomes an entry that could not be read; a folder whose names may be lost becomes one that could not be listed. So
//! `diff` and `restore --delete` treat lost entries like those that a backup failed to read: as unknown, not as
//! removed. Bytes that the device does not give now do not count as lost: the next try, or another cable, may bring
//! them. They end the repair (`Repository::repair` sets a container aside that the device never gives; then its chunks
//! are gone). The remaining parts of a file are not kept, as restic keeps them: a file with a part cut out passes for a
//! whole one everywhere else.

use std::collections::HashSet;

use onefold_store::{
    ChunkReader, ChunkRef, Repository, RootId, RootsLock, Session, SessionKind, StreamKind,
};

use crate::backup::MetadataStream;
use crate::leaf::Leaf;
use crate::path::{self, order, split};
use crate::roots::{self, Hurt, read_bare, read_items};
use crate::snapshot::{LeafRef, LeafTable};
use crate::snapshots::{self, Named};
use crate::tree::Tree;
use crate::{Content, Entry, Error, Flags, Item, Result};

/// Tag of a repaired snapshot.
pub const REPAIRED_TAG: &str = "repaired";

/// Result of repairing a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Repaired {
    /// No part of the snapshot is lost.
    Whole,
    /// No entry of the snapshot can be found any more.
    Gone,
    /// Parts are lost; the name of the new snapshot with the rest, unless none was wanted.
    Anew(Vec<Hurt>, Option<RootId>),
}

/// Makes a snapshot of the remaining parts of `named`: a chunk is lost where `is_lost` says so and it still cannot be
/// read. The old snapshot stays. With `dry_run` nothing is stored. A snapshot that was forgotten meanwhile needs no
/// repair.
///
/// # Errors
/// Errors of reading or storing, also where the device does not give bytes.
pub fn repair(
    repository: &Repository,
    named: &Named,
    is_lost: &dyn Fn(&ChunkRef) -> bool,
    dry_run: bool,
) -> Result<Repaired> {
    let storing = if dry_run {
        Storing::Nothing
    } else {
        Storing::Beside
    };
    repair_as(repository, named, is_lost, &storing)
}

/// The way to store the result of a repair.
pub enum Storing<'a> {
    /// Nothing is stored: the snapshot is only looked at.
    Nothing,
    /// The new snapshot is stored beside the old one.
    Beside,
    /// The new snapshot is stored, and with `forget` the old one is removed, in one step under the lock on choosing
    /// snapshots.
    Under {
        /// The lock on choosing snapshots.
        lock: &'a RootsLock,
        /// Whether the old snapshot is removed.
        forget: bool,
    },
}

/// Repairs a snapshot as [`repair`] does, and stores the result as `storing` says.
///
/// # Errors
/// Errors of [`repair`], and of [`RootsLock::replace`].
pub fn repair_as(
    repository: &Repository,
    named: &Named,
    is_lost: &dyn Fn(&ChunkRef) -> bool,
    storing: &Storing<'_>,
) -> Result<Repaired> {
    let kind = match storing {
        Storing::Nothing => SessionKind::Read,
        _ => SessionKind::Backup,
    };
    repository.read_the_store_itself();
    let session = repository.session(kind)?;
    // A snapshot that was forgotten before the session began may have been swept as well.
    if snapshots::load_if_there(repository, named.id)?.is_none() {
        return Ok(Repaired::Whole);
    }
    let (mut reader, mut again) = (session.reader()?, session.data_reader()?);
    let (mut hurts, mut not_given) = (Vec::new(), None);
    // A backup may have stored the chunk again since: a lost chunk cannot be read now either.
    let mut is_lost = |chunk: &ChunkRef| {
        is_lost(chunk)
            && match again.read(chunk) {
                Ok(_) => false,
                Err(error) if error.is_damage() => true,
                Err(error) => {
                    not_given.get_or_insert(error);
                    false
                }
            }
    };
    roots::hurt_where(
        &named.snapshot,
        &mut reader,
        (&mut is_lost, Error::is_damage),
        &mut |hurt| hurts.push(hurt),
    )?;
    if let Some(error) = not_given {
        return Err(error.into());
    }
    if hurts.is_empty() {
        return Ok(Repaired::Whole);
    }
    if hurts.contains(&Hurt::All) {
        return Ok(Repaired::Gone);
    }
    if matches!(storing, Storing::Nothing) {
        return Ok(Repaired::Anew(hurts, None));
    }
    let mut snapshot = named.snapshot.clone();
    snapshot.table = rewrite(
        repository,
        &session,
        named,
        &LostParts::new(&hurts),
        &mut reader,
    )?;
    snapshot.summary.errors += hurts.len() as u64;
    snapshot.original = snapshot.original.or(Some(named.id.0));
    snapshot.tags.push(REPAIRED_TAG.into());
    snapshot.tags.sort();
    snapshot.tags.dedup();
    let new = snapshot.encode_unique(&repository.options().entropy)?;
    let id = match storing {
        Storing::Under { lock, forget } => {
            let gone = &[named.id][..usize::from(*forget)];
            lock.replace(Some(&session), &[&new], gone)?[0]
        }
        _ => session.put_root(&new)?,
    };
    session.finish()?;
    Ok(Repaired::Anew(hurts, Some(id)))
}

/// The lost parts of a snapshot.
struct LostParts<'a> {
    /// Lost leaves, each as the path of its first entry.
    leaves: HashSet<&'a [u8]>,
    files: HashSet<&'a [u8]>,
    /// Pairs of folders from and up to which names may be lost.
    gaps: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

impl<'a> LostParts<'a> {
    fn new(hurts: &'a [Hurt]) -> Self {
        let (mut leaves, mut files, mut gaps) = (HashSet::new(), HashSet::new(), Vec::new());
        for hurt in hurts {
            match hurt {
                Hurt::File(path) => drop(files.insert(&path[..])),
                Hurt::Entries(from, to) => {
                    leaves.insert(&from[..]);
                    gaps.push((split(from).0, to.as_ref().map(|to| split(to).0)));
                }
                Hurt::All => {}
            }
        }
        Self {
            leaves,
            files,
            gaps,
        }
    }

    fn may_hold_names_of(&self, folder: &[u8]) -> bool {
        let holds = |(from, to): &(&[u8], Option<&[u8]>)| {
            order(from, folder).is_le() && to.is_none_or(|to| order(folder, to).is_le())
        };
        self.gaps.iter().any(holds)
    }
}

/// Writes all remaining entries as a new stream. Leaves without a loss come out unchanged, and are stored already.
fn rewrite(
    repository: &Repository,
    session: &Session,
    named: &Named,
    lost: &LostParts<'_>,
    reader: &mut ChunkReader,
) -> Result<LeafTable> {
    let writer = session.writer(StreamKind::Metadata)?;
    let mut stream = MetadataStream::new(writer, repository.fingerprinter());
    for leaf in Tree::open(&named.snapshot, reader)?.leaves() {
        if lost
            .leaves
            .contains(&path::join(&leaf.folder, &leaf.name)[..])
        {
            continue;
        }
        let leaf = left_of(leaf, lost, reader)?;
        let folders = leaf.runs.iter();
        let folders = folders.flat_map(|run| std::iter::repeat_n(&run.folder[..], run.count));
        for (folder, entry) in folders.zip(leaf.entries) {
            stream.push(folder, entry)?;
        }
    }
    Ok(stream.finish(session, &[])?.0)
}

/// Returns a leaf with the remaining contents. Errors: more of it cannot be read than was lost in the first look.
fn left_of(leaf: &LeafRef, lost: &LostParts<'_>, reader: &mut ChunkReader) -> Result<Leaf> {
    let (mut leaf, counts) = read_bare(leaf, reader)?;
    let (items, mut failed) = left_items(&leaf, reader);
    let paths: Vec<_> = leaf
        .iter()
        .map(|(folder, entry)| path::join(folder, &entry.name))
        .collect();
    let mut at = 0usize;
    for ((entry, path), count) in leaf.entries.iter_mut().zip(paths).zip(counts) {
        let end = at.saturating_add(count as usize);
        let own = items.get(at..end).map(|own| own.iter().copied());
        let own = own.and_then(Iterator::collect::<Option<Vec<Item>>>);
        at = end;
        match own {
            _ if lost.files.contains(&path[..]) => lose(entry),
            Some(_) if count == 0 => {}
            Some(own) => entry.content.items = own,
            None => match failed.take() {
                Some(error) => return Err(error),
                None => lose(entry),
            },
        }
        if entry.is_dir() && lost.may_hold_names_of(&path) {
            entry.flags.0 |= Flags::UNLISTED.0;
        }
    }
    Ok(leaf)
}

/// Flags an entry as not read: it keeps what `stat` said, and has no content.
fn lose(entry: &mut Entry) {
    entry.flags.0 |= Flags::UNREADABLE.0;
    (entry.size, entry.content) = (0, Content::default());
}

/// Returns the items of a leaf's recipe chunks, with `None` for items of a chunk that cannot be read; and why the first
/// chunk cannot.
fn left_items(leaf: &Leaf, reader: &mut ChunkReader) -> (Vec<Option<Item>>, Option<Error>) {
    let (mut all, mut failed) = (Vec::new(), None);
    for recipe in &leaf.recipes {
        match read_items(recipe, reader) {
            Ok(items) => all.extend(items.into_iter().map(Some)),
            Err(error) => {
                all.extend(std::iter::repeat_n(None, recipe.items as usize));
                failed.get_or_insert(error);
            }
        }
    }
    (all, failed)
}
