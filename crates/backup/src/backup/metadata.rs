//! The metadata stream as it is written: entries become leaves, leaves become chunks.
//!
//! An entry is final once it is pushed, except for one flag: that a folder could not be listed to its end shows only
//! after its own entry was written. Such flags are entered at the end, in new leaves that replace the old ones. The old
//! leaves stay behind as a few KiB that the sweep reclaims.

use std::collections::BTreeMap;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_store::{
    ChunkReader, ChunkRef, ChunkWriter, Fingerprinter, Session, StreamKind, WriteStats,
};

use crate::leaf::{self, Leaf, LeafCutter, RecipeRef, recipe};
use crate::path::{entry_order, split};
use crate::snapshot::{LeafRef, LeafTable, TABLE_INLINE_MAX, encode_table, fits_a_table};
use crate::tree::read_leaf;
use crate::{Entry, Error, Flags, Item, Result, path};

/// Leaves that are handed to the store at once: one index lookup for a megabyte of leaves.
const LEAVES_AT_ONCE: usize = 16;
/// Bytes of leaves after which they are handed to the store, though they are fewer: for files with many attributes.
const LEAVES_BYTES: usize = 4 << 20;
/// Leaves in one chunk of a table that does not fit into the root; each takes about 100 bytes.
const TABLE_CHUNK_LEAVES: usize = 2048;

struct Pending {
    fingerprint: Fingerprint,
    bytes: Vec<u8>,
    folder: Vec<u8>,
    name: Vec<u8>,
}

/// Takes entries in order; stores leaves and recipe chunks.
pub struct MetadataStream {
    writer: ChunkWriter,
    fingerprinter: Fingerprinter,
    cutter: LeafCutter,
    pending: Vec<Pending>,
    /// Bytes of the pending leaves.
    pending_bytes: usize,
    leaves: Vec<LeafRef>,
    /// (folder, name) of the entry that was pushed last.
    last: (Vec<u8>, Vec<u8>),
    /// Statistics of earlier writers of this stream.
    before: WriteStats,
}

impl MetadataStream {
    pub fn new(writer: ChunkWriter, fingerprinter: Fingerprinter) -> Self {
        Self {
            writer,
            fingerprinter,
            cutter: LeafCutter::default(),
            pending: Vec::new(),
            pending_bytes: 0,
            leaves: Vec::new(),
            last: Default::default(),
            before: WriteStats::default(),
        }
    }

    /// Adds the next entry. Errors: it is out of order, so that the leaf could not be decoded.
    pub fn push(&mut self, folder: &[u8], entry: Entry) -> Result<()> {
        let (last_folder, last_name) = &mut self.last;
        if entry_order((folder, &entry.name), (last_folder, last_name)).is_le() {
            return Err(Error::OutOfOrder {
                path: path::show(&path::join(folder, &entry.name)),
                before: path::show(&path::join(last_folder, last_name)),
            });
        }
        if last_folder != folder {
            *last_folder = folder.to_vec();
        }
        last_name.clone_from(&entry.name);
        match self.cutter.push(folder, entry) {
            Some(leaf) => self.leaf(leaf),
            None => Ok(()),
        }
    }

    /// Adds the next leaf in order.
    pub fn push_leaf(&mut self, leaf: Leaf) -> Result<()> {
        self.leaf(leaf)
    }

    /// Adds the next leaf in order, which is stored already and replaces one that begins with the same entry.
    pub fn keep_leaf(&mut self, like: &LeafRef, chunk: ChunkRef) -> Result<()> {
        self.flush()?;
        self.leaves.push(LeafRef {
            chunk,
            ..like.clone()
        });
        Ok(())
    }

    /// Returns all leaves so far.
    pub fn leaves(&mut self) -> Result<&[LeafRef]> {
        self.flush()?;
        Ok(&self.leaves)
    }

    /// Stores a recipe chunk.
    pub fn store(&mut self, bytes: &[u8]) -> Result<ChunkRef> {
        let mut refs = Vec::with_capacity(1);
        self.writer
            .write(&[(self.fingerprinter.fingerprint(bytes), bytes)], &mut refs)?;
        Ok(refs[0])
    }

    fn leaf(&mut self, mut leaf: Leaf) -> Result<()> {
        leaf.recipes = self.recipes(&leaf)?;
        let Some((folder, name)) = leaf.first() else {
            return Ok(());
        };
        let bytes = leaf::encode(&leaf);
        let fingerprint = self.fingerprinter.fingerprint(&bytes);
        self.pending_bytes += bytes.len();
        self.pending.push(Pending {
            fingerprint,
            bytes,
            folder: folder.to_vec(),
            name: name.to_vec(),
        });
        if self.pending.len() >= LEAVES_AT_ONCE || self.pending_bytes >= LEAVES_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Stores the recipe chunks of a leaf's small files.
    fn recipes(&mut self, leaf: &Leaf) -> Result<Vec<RecipeRef>> {
        let items: Vec<Item> = leaf.items().copied().collect();
        let groups = recipe::groups(&items);
        let bytes: Vec<Vec<u8>> = groups
            .iter()
            .map(|group| recipe::encode(group, 0))
            .collect();
        let chunks: Vec<_> = bytes
            .iter()
            .map(|bytes| (self.fingerprinter.fingerprint(bytes), &bytes[..]))
            .collect();
        let mut refs = Vec::with_capacity(chunks.len());
        self.writer.write(&chunks, &mut refs)?;
        Ok(refs
            .into_iter()
            .zip(groups)
            .map(|(chunk, group)| RecipeRef {
                chunk,
                items: group.len() as u32,
            })
            .collect())
    }

    fn flush(&mut self) -> Result<()> {
        let chunks: Vec<_> = self
            .pending
            .iter()
            .map(|leaf| (leaf.fingerprint, &leaf.bytes[..]))
            .collect();
        let mut refs = Vec::with_capacity(chunks.len());
        self.writer.write(&chunks, &mut refs)?;
        self.pending_bytes = 0;
        for (leaf, chunk) in self.pending.drain(..).zip(refs) {
            let last = self.leaves.last().map(|last| &last.folder);
            let folder = match last.filter(|last| last[..] == leaf.folder[..]) {
                Some(same) => Arc::clone(same),
                None => leaf.folder.into(),
            };
            self.leaves.push(LeafRef {
                chunk,
                folder,
                name: leaf.name,
            });
        }
        Ok(())
    }

    /// Bytes of new chunks so far, before compression.
    pub fn new_bytes(&self) -> u64 {
        self.before.new_bytes + self.writer.stats().new_bytes
    }

    /// Makes everything durable, and flags the folders `cut_off` as not listed to their end. Returns where the leaves
    /// are.
    pub fn finish(
        mut self,
        session: &Session,
        cut_off: &[Arc<[u8]>],
    ) -> Result<(LeafTable, WriteStats)> {
        if let Some(leaf) = self.cutter.finish() {
            self.leaf(leaf)?;
        }
        self.flush()?;
        if !cut_off.is_empty() && !session.is_dry_run() {
            self.flag(session, cut_off)?;
        }
        let leaves = std::mem::take(&mut self.leaves);
        fits_a_table(&leaves)?;
        let inline = encode_table(&leaves);
        let table = if inline.len() <= TABLE_INLINE_MAX {
            LeafTable::Inline(leaves)
        } else {
            LeafTable::Chunks(
                leaves
                    .chunks(TABLE_CHUNK_LEAVES)
                    .map(|some| self.store(&encode_table(some)))
                    .collect::<Result<_>>()?,
            )
        };
        let stats = self.before + self.writer.finish()?;
        Ok((table, stats))
    }

    fn flag(&mut self, session: &Session, cut_off: &[Arc<[u8]>]) -> Result<()> {
        let mut by_leaf: BTreeMap<usize, Vec<&[u8]>> = BTreeMap::new();
        for folder in cut_off.iter().filter(|folder| !folder.is_empty()) {
            let is_before =
                |leaf: &LeafRef| entry_order((&leaf.folder, &leaf.name), split(folder)).is_le();
            if let Some(at) = self.leaves.partition_point(is_before).checked_sub(1) {
                by_leaf.entry(at).or_default().push(folder);
            }
        }
        // Leaves must be stored before they can be read back.
        let next = session.writer(StreamKind::Metadata)?;
        self.before = std::mem::replace(&mut self.writer, next).finish()?;
        let mut reader = session.reader()?;
        by_leaf
            .into_iter()
            .try_for_each(|(at, folders)| self.replace_leaf(at, &folders, &mut reader))
    }

    fn replace_leaf(
        &mut self,
        at: usize,
        folders: &[&[u8]],
        reader: &mut ChunkReader,
    ) -> Result<()> {
        let mut leaf = read_leaf(&self.leaves[at], reader)?;
        let is_cut_off: Vec<bool> = leaf
            .iter()
            .map(|(above, entry)| folders.contains(&&*path::join(above, &entry.name)))
            .collect();
        for (entry, _) in leaf.entries.iter_mut().zip(is_cut_off).filter(|e| e.1) {
            entry.flags.0 |= Flags::UNLISTED.0;
        }
        leaf.recipes = self.recipes(&leaf)?;
        self.leaves[at].chunk = self.store(&leaf::encode(&leaf))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use onefold_io::{Dir, MemDir};
    use onefold_store::{Encryption, InitOptions, OpenOptions, Repository, SessionKind};

    use super::*;
    use crate::Kind;

    fn stream() -> (Repository, Session, MetadataStream) {
        let dir: Arc<dyn Dir> = Arc::new(MemDir::default());
        let mut init = InitOptions::new("test", 1);
        init.encryption = Encryption::None;
        Repository::init(dir.clone(), &init, None).expect("init");
        let repository = Repository::open(dir, OpenOptions::default(), None).expect("open");
        let session = repository.session(SessionKind::Backup).expect("session");
        let writer = session.writer(StreamKind::Metadata).expect("writer");
        let stream = MetadataStream::new(writer, repository.fingerprinter());
        (repository, session, stream)
    }

    #[test]
    fn leaves_with_many_attributes_do_not_wait_for_others() {
        let (_repository, _session, mut stream) = stream();
        for n in 0..60u32 {
            let mut entry = Entry::new(n.to_be_bytes().to_vec(), Kind::Fifo);
            let value = n.to_be_bytes().repeat(100_000);
            entry.xattrs = vec![(Box::from(&b"user.a"[..]), value.into())].into();
            stream.push(b"", entry).expect("push");
            let waiting = stream.pending.iter().map(|leaf| leaf.bytes.len());
            let bytes: usize = waiting.sum();
            assert!(bytes < LEAVES_BYTES, "{bytes}");
        }
        assert!(stream.leaves.len() > LEAVES_AT_ONCE / 2);
    }

    /// A leaf with a name twice, or out of order, cannot be decoded: all of its entries would be lost.
    #[test]
    fn what_comes_out_of_order_is_refused() {
        let (_repository, _session, mut stream) = stream();
        let mut push =
            |folder: &[u8], name: &[u8]| stream.push(folder, Entry::new(name.to_vec(), Kind::File));
        for (folder, name) in [
            ("", "a"),
            ("", "b"),
            ("/a", "b"),
            ("/a/b", "a"),
            ("/b", "a"),
        ] {
            push(folder.as_bytes(), name.as_bytes()).expect("in order");
        }
        for (folder, name) in [("/b", "a"), ("/a", "c"), ("", "c")] {
            let refused = push(folder.as_bytes(), name.as_bytes());
            let is_told = matches!(refused, Err(Error::OutOfOrder { .. }));
            assert!(is_told, "{folder}/{name}");
        }
        push(b"/b", b"b").expect("in order");
    }
}
