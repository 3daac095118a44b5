//! Copies snapshots into another repository, which has keys of its own: chunks are read, verified, fingerprinted anew
//! and written, leaves and recipes made anew.
//!
//! Invariant: a snapshot is there only once all that it refers to is stored durably; a copied snapshot names the
//! snapshot that it came from (`original`), so that it is copied once. A leaf that snapshots share is made once. Where
//! both repositories fingerprint alike (`init --like`), a chunk that the destination has is not even read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use onefold_chunk::Fingerprint;
use onefold_store::{
    ChunkReader, ChunkRef, ChunkWriter, Fingerprinter, Repository, RootId, Session, SessionKind,
    StreamKind,
};

use crate::backup::MetadataStream;
use crate::leaf::{Leaf, recipe};
use crate::snapshot::Snapshot;
use crate::snapshots::{self, Named};
use crate::tree::{Tree, Visit, read_leaf, visit_items};
use crate::vfs::chunks::{OpenChunks, REQUEST_BYTES_MAX};
use crate::{Content, Error, Item, Progress, Result, Slice, Time, path};

/// Chunks of which it is remembered where they are in the destination: some 50 MB.
const KNOWN_MAX: usize = 500_000;
/// Items that are copied together,
const WINDOW_ITEMS: usize = 2048;
/// or so many bytes of them.
const WINDOW_BYTES: u64 = 12 << 20;

/// Properties that are equal in two snapshots only if they are copies of one.
type Likeness = ([u8; 32], Time, String, Vec<String>, Vec<Vec<u8>>);

/// Copies snapshots of one repository into another.
pub struct Copier<'a> {
    from: &'a Repository,
    to: &'a Repository,
    chunks: Arc<OpenChunks>,
    metadata: ChunkReader,
    fingerprinter: Fingerprinter,
    /// Both repositories give the same bytes the same fingerprint.
    is_like: bool,
    /// Chunks of the destination by their fingerprints in the source, and the number of the session that saw them last.
    known: HashMap<Fingerprint, (ChunkRef, u64)>,
    /// Number of the destination's session.
    session: u64,
    /// Copied leaves, by their fingerprints in the source.
    leaves: HashMap<Fingerprint, ChunkRef>,
    /// The destination's snapshots by those that they were copied from.
    ids: HashMap<[u8; 32], RootId>,
    there: HashSet<Likeness>,
    stats: CopyStats,
}

/// Counts of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct CopyStats {
    /// Snapshots that were copied.
    pub snapshots: u64,
    /// Chunks that were read from the source.
    pub chunks_read: u64,
    /// Their bytes.
    pub bytes_read: u64,
    /// Part of these bytes that the destination did not have.
    pub bytes_new: u64,
    /// Bytes that the destination grew by.
    pub bytes_stored: u64,
}

impl<'a> Copier<'a> {
    /// Makes a copier that knows what was copied before. Snapshots of the destination that cannot be read are given to
    /// `damaged`.
    ///
    /// # Errors
    /// The destination's snapshots cannot be listed; those of [`Repository::session`].
    pub fn new(
        from: &'a Repository,
        to: &'a Repository,
        damaged: &mut dyn FnMut(RootId, Error),
    ) -> Result<Self> {
        let session = from.session(SessionKind::Read)?;
        let metadata = session.reader()?;
        let (mut ids, mut there) = (HashMap::new(), HashSet::new());
        snapshots::for_each(to, damaged, &mut |named| {
            if let Some(original) = named.snapshot.original {
                ids.insert(original, named.id);
                there.insert(likeness(original, &named.snapshot));
            }
        })?;
        let probe = b"do both fingerprint alike?";
        let (source, fingerprinter) = (from.fingerprinter(), to.fingerprinter());
        Ok(Self {
            is_like: source.fingerprint(probe) == fingerprinter.fingerprint(probe),
            chunks: OpenChunks::new(session),
            from,
            to,
            metadata,
            fingerprinter,
            known: HashMap::new(),
            session: 0,
            leaves: HashMap::new(),
            ids,
            there,
            stats: CopyStats::default(),
        })
    }

    /// Returns the counts so far.
    pub fn stats(&self) -> CopyStats {
        self.stats
    }

    /// Copies a snapshot, and gives its name in the destination; `None` where it was copied before, or is forgotten.
    ///
    /// # Errors
    /// A chunk of the source cannot be read, nothing can be stored, or `progress` was cancelled: the snapshot is not
    /// copied, and what is stored of it is not stored again.
    pub fn copy(&mut self, id: RootId, progress: &Progress) -> Result<Option<RootId>> {
        let Some(named) = snapshots::load_if_there(self.from, id)? else {
            return Ok(None);
        };
        let bytes = named.snapshot.summary.total_bytes_processed;
        let done = self.copy_named(named, progress);
        // Passed over, copied or lost: nothing of it is left to do.
        progress.bytes_of_current.store(0, Relaxed);
        Progress::add(&progress.bytes_done, bytes);
        Progress::add(&progress.files_done, 1);
        done
    }

    fn copy_named(&mut self, named: Named, progress: &Progress) -> Result<Option<RootId>> {
        let id = named.id;
        let bytes = named.snapshot.summary.total_bytes_processed;
        let original = named.snapshot.original.unwrap_or(id.0);
        let likeness = likeness(original, &named.snapshot);
        if self.there.contains(&likeness) {
            return Ok(None);
        }
        let session = self.to.session(SessionKind::Backup)?;
        self.session += 1;
        let mut data = session.writer(StreamKind::Data)?;
        let stream = session.writer(StreamKind::Metadata)?;
        let mut stream = MetadataStream::new(stream, self.fingerprinter.clone());
        let tree = Tree::open(&named.snapshot, &mut self.metadata)?;
        let leaves = tree.leaves().len().max(1) as u128;
        for (passed, stored) in tree.leaves().iter().enumerate() {
            progress.check()?;
            // Leaves that are there already pass quickly, so the share of the leaves counts, and in large files bytes.
            let share = u128::from(bytes) * passed as u128 / leaves;
            progress.bytes_of_current.fetch_max(share as u64, Relaxed);
            let made = self.leaves.get(&stored.chunk.fingerprint);
            if let Some(made) = made.filter(|made| session.holds(made)) {
                stream.keep_leaf(stored, *made)?;
                continue;
            }
            let leaf = read_leaf(stored, &mut self.metadata)?;
            let leaf = self.leaf(leaf, &session, &mut data, &mut stream, progress)?;
            stream.push_leaf(leaf)?;
        }
        let made = stream.leaves()?;
        let pairs = tree.leaves().iter().zip(made);
        for (source, made) in pairs {
            self.leaves.insert(source.chunk.fingerprint, made.chunk);
        }
        let data = data.finish()?;
        let (table, metadata) = stream.finish(&session, &[])?;
        let snapshot = Snapshot {
            table,
            original: Some(original),
            parent: named.snapshot.parent.and_then(|id| self.id_of(id)),
            ..named.snapshot
        };
        let copied = session.put_root(&snapshot.encode_unique(&self.to.options().entropy)?)?;
        session.finish()?;
        self.stats.snapshots += 1;
        self.stats.bytes_new += data.new_bytes;
        self.stats.bytes_stored += data.stored_bytes + metadata.stored_bytes;
        self.there.insert(likeness);
        self.ids.insert(original, copied);
        Ok(Some(copied))
    }

    fn id_of(&self, original: [u8; 32]) -> Option<[u8; 32]> {
        self.ids.get(&original).map(|id| id.0)
    }

    /// The leaf with its contents in the destination.
    fn leaf(
        &mut self,
        mut leaf: Leaf,
        session: &Session,
        data: &mut ChunkWriter,
        stream: &mut MetadataStream,
        progress: &Progress,
    ) -> Result<Leaf> {
        // Small files of a leaf lie side by side, and are read together.
        let items: Vec<Item> = leaf.items().copied().collect();
        let mut copied = Vec::with_capacity(items.len());
        self.items(&items, session, data, &mut copied)
            .map_err(|error| self.named_by(&leaf, error))?;
        self.note(progress);
        let mut copied = copied.into_iter();
        let folders: Vec<_> = leaf.iter().map(|(folder, _)| folder.to_vec()).collect();
        for (entry, folder) in leaf.entries.iter_mut().zip(&folders) {
            let content = &mut entry.content;
            if !self.is_like {
                // The digest was made with the other repository's key.
                content.digest = None;
            }
            if content.depth == 0 {
                let count = content.items.len();
                content.items = copied.by_ref().take(count).collect();
                continue;
            }
            let copied = self.large(content, session, data, stream, progress);
            let copied = copied.map_err(|error| {
                if error.is_loss() {
                    Error::of_content("copy", &path::join(folder, &entry.name), error)
                } else {
                    error
                }
            })?;
            entry.content = Content {
                digest: content.digest,
                ..copied
            };
        }
        Ok(leaf)
    }

    /// Says how much was read so far.
    fn note(&self, progress: &Progress) {
        progress.bytes_moved.store(self.stats.bytes_read, Relaxed);
    }

    /// A loss among the small files of a leaf, by the first file that has it: each chunk is asked for once more.
    fn named_by(&self, leaf: &Leaf, error: Error) -> Error {
        if !error.is_loss() {
            return error;
        }
        let is_lost = |chunk: &ChunkRef| {
            let known = self.known.contains_key(&chunk.fingerprint);
            !known && self.chunks.get(chunk).is_err_and(|error| error.is_loss())
        };
        let lost = leaf.iter().find(|(_, entry)| {
            let content = &entry.content;
            content.depth == 0 && content.items.iter().filter_map(Item::chunk).any(is_lost)
        });
        match lost {
            Some((folder, entry)) => {
                Error::of_content("copy", &path::join(folder, &entry.name), error)
            }
            None => error,
        }
    }

    /// A content with recipe chunks.
    fn large(
        &mut self,
        content: &Content,
        session: &Session,
        data: &mut ChunkWriter,
        stream: &mut MetadataStream,
        progress: &Progress,
    ) -> Result<Content> {
        let mut builder = recipe::Builder::default();
        let mut window: Vec<Item> = Vec::new();
        let mut window_bytes = 0;
        // The walk lends out the reader that it reads with.
        let small = self.chunks.session().small_reader()?;
        let mut reader = std::mem::replace(&mut self.metadata, small);
        let walked = visit_items(content, &mut reader, &mut |met, _| {
            let item = match met {
                Visit::Recipe(_) => return Ok(true),
                Visit::Data(slice, _) => Item::from(slice),
                Visit::Hole(_, len) => Item::Hole { len },
            };
            window.push(item);
            window_bytes += item.data().map_or(0, |slice| u64::from(slice.chunk.len));
            if window.len() >= WINDOW_ITEMS || window_bytes >= WINDOW_BYTES {
                progress.check()?;
                Progress::add(&progress.bytes_of_current, window_bytes);
                self.note(progress);
                self.push(&window, session, data, stream, &mut builder)?;
                window.clear();
                window_bytes = 0;
            }
            Ok(true)
        });
        self.metadata = reader;
        walked?;
        self.push(&window, session, data, stream, &mut builder)?;
        builder.finish(&mut |bytes| stream.store(&bytes))
    }

    fn push(
        &mut self,
        items: &[Item],
        session: &Session,
        data: &mut ChunkWriter,
        stream: &mut MetadataStream,
        builder: &mut recipe::Builder,
    ) -> Result<()> {
        let mut copied = Vec::with_capacity(items.len());
        self.items(items, session, data, &mut copied)?;
        copied
            .into_iter()
            .try_for_each(|item| builder.push(item, &mut |bytes| stream.store(&bytes)))
    }

    /// Items of depth 0 with their chunks in the destination, in order.
    fn items(
        &mut self,
        items: &[Item],
        session: &Session,
        data: &mut ChunkWriter,
        copied: &mut Vec<Item>,
    ) -> Result<()> {
        let mut rest = items;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take(WINDOW_ITEMS).take_while(|item| {
                let is_first = bytes == 0;
                bytes += item.data().map_or(0, |slice| u64::from(slice.chunk.len));
                is_first || bytes <= WINDOW_BYTES
            });
            let (window, behind) = rest.split_at(fits.count().max(1));
            self.window(window, session, data)?;
            for item in window {
                copied.push(match item.data() {
                    None => *item,
                    Some(slice) => Item::from(Slice {
                        chunk: self.known[&slice.chunk.fingerprint].0,
                        ..slice
                    }),
                });
            }
            rest = behind;
        }
        Ok(())
    }

    /// Has all chunks of these items in the destination, and known.
    fn window(&mut self, items: &[Item], session: &Session, data: &mut ChunkWriter) -> Result<()> {
        if self.known.len() + items.len() > KNOWN_MAX {
            self.known.clear();
        }
        let (mut missing, mut met) = (Vec::new(), HashSet::new());
        for chunk in items.iter().filter_map(Item::chunk) {
            if !met.insert(chunk.fingerprint) {
                continue;
            }
            let there = match self.known.get(&chunk.fingerprint) {
                // Stored or found in this session, durably at its end.
                Some((there, by)) if *by == self.session => Some(*there),
                Some((there, _)) if session.holds(there) => Some(*there),
                _ if self.is_like => session.relocate(chunk),
                _ => None,
            };
            match there {
                Some(there) => {
                    let known = (there, self.session);
                    self.known.insert(chunk.fingerprint, known);
                }
                None => missing.push(*chunk),
            }
        }
        self.ask(&missing);
        let mut read = Vec::with_capacity(missing.len());
        for chunk in &missing {
            let bytes = self.chunks.get(chunk)?;
            self.stats.chunks_read += 1;
            self.stats.bytes_read += bytes.len() as u64;
            read.push((self.fingerprinter.fingerprint(&bytes), bytes));
        }
        let given: Vec<_> = read
            .iter()
            .map(|(name, bytes)| (*name, &bytes[..]))
            .collect();
        let mut written = Vec::with_capacity(given.len());
        data.write(&given, &mut written)?;
        for (source, there) in missing.iter().zip(written) {
            self.known.insert(source.fingerprint, (there, self.session));
        }
        Ok(())
    }

    /// Asks for chunks ahead, those of a container together.
    fn ask(&self, missing: &[ChunkRef]) {
        for group in missing.chunk_by(|a, b| a.container == b.container) {
            let mut rest = group;
            while !rest.is_empty() {
                let mut bytes = 0;
                let fits = rest.iter().take_while(|chunk| {
                    bytes += chunk.len as usize;
                    bytes <= REQUEST_BYTES_MAX
                });
                let (together, behind) = rest.split_at(fits.count().max(1));
                if !self.chunks.ask(together[0].container, together) {
                    return;
                }
                rest = behind;
            }
        }
    }
}

impl Drop for Copier<'_> {
    fn drop(&mut self) {
        self.chunks.close();
    }
}

fn likeness(original: [u8; 32], snapshot: &Snapshot) -> Likeness {
    (
        original,
        snapshot.time,
        snapshot.host.clone(),
        snapshot.tags.clone(),
        snapshot.paths.clone(),
    )
}
