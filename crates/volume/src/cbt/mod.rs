//! The backend `cbt`: copy-on-write B+trees with transactions (report §3.6.3).
//!
//! ```text
//! superblock ─┬─▶ tree of LBNs        superblocks take turns; each leads to a whole state
//!             ├─▶ tree of hashes
//!             ├─▶ tree ─▶ pages of reference counts
//!             └─▶ pages of bits: which pages are in use
//! ```
//!
//! Invariants:
//! 1. Nothing that the last superblock leads to is changed or given away: neither pages nor blocks of the data device.
//! 2. A flush ends the transaction: pages are written and synced, then the superblock is, in the other place. After a
//!    crash the state is that of the last flush that ended, or of the one that was under way, whole.
//! 3. After a failed change or flush nothing is changed any more: the next opening finds the last transaction.

mod counts;
pub(crate) mod dump;
mod node;
mod page;
mod pager;
mod remove;
mod space;
mod superblock;
#[cfg(test)]
mod tests;
mod tree;
mod verify;

use std::sync::Arc;

use onefold_io::{Dir, Disk, ErrorKind, create_anew};

use self::counts::ReferenceCounts;
pub use self::page::CBT_PAGE;
use self::page::FILE;
use self::pager::Pager;
use self::space::Space;
pub use self::superblock::CBT_SUPERBLOCK;
use self::superblock::{Superblock, key_bytes, newest};
use self::tree::{CbtTree, NodeEntries};
use crate::backend::Calls;
use crate::block_states::BlockStates;
use crate::page_cache::{PAGE_BYTES, PageFormat};
use crate::store_shape::{StoreShape, same_store};
use crate::{
    BackendStats, Durability, Error, Finding, Key, MetadataBackend, Pbn, Result, StoreId, Supported,
};

/// How a `cbt` is opened.
#[derive(Clone, Copy, Debug)]
pub struct CbtOptions {
    /// Bytes of pages in RAM at most; 64 KiB at least.
    pub cache_bytes: u64,
    /// Entries of a node at most, where fewer than fit are wanted: high trees of few keys, for tests. 4 at least.
    pub node_entries_max: usize,
}

impl CbtOptions {
    /// With nodes as full as can be.
    pub fn new(cache_bytes: u64) -> Self {
        Self {
            cache_bytes,
            node_entries_max: usize::MAX,
        }
    }
}

/// Metadata in copy-on-write B+trees.
pub struct Cbt {
    pager: Pager,
    nodes: NodeEntries,
    states: BlockStates,
    counts: ReferenceCounts,
    stores: Vec<Store>,
    /// Stores that were created since the backend was opened.
    created: usize,
    /// Whether something changed since the last flush.
    is_changed: bool,
    is_broken: bool,
    calls: Calls,
}

#[derive(Clone, Copy)]
struct Store {
    shape: StoreShape,
    tree: CbtTree,
}

/// Reads a superblock to its end: what a decoder of bytes from outside is tried with.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Unsupported`].
pub fn verify_superblock(bytes: &[u8]) -> Result<()> {
    Superblock::decode(bytes, 0).map(drop)
}

impl Cbt {
    /// Makes the file of the metadata of `blocks` blocks, with no stores yet.
    ///
    /// # Errors
    /// The folder's device failed, or has no room.
    pub fn create(folder: &dyn Dir, blocks: u64) -> Result<()> {
        let disk = create_anew(folder, FILE)?;
        Self::create_on(&*disk, blocks)?;
        Ok(folder.sync()?)
    }

    /// Makes the metadata on a disk of which the first two pages are zeros.
    ///
    /// # Errors
    /// The disk failed, or has no room.
    pub fn create_on(disk: &dyn Disk, blocks: u64) -> Result<()> {
        let mut space = Space::new();
        let first = Superblock {
            transaction: 0,
            blocks,
            used: 0,
            block_cursor: 0,
            end: 0,
            page_cursor: 0,
            counts: CbtTree::new(8),
            stores: Vec::new(),
            slots: Vec::new(),
        };
        for (place, mut bytes) in space.commit(0) {
            let format = page::CbtFormat { transaction_max: 0 };
            format.seal(place, &mut bytes);
            disk.write_at(&bytes, place * PAGE_BYTES as u64)?;
        }
        disk.write_at(&first.with_space(&space).page()?, 0)?;
        Ok(disk.sync()?)
    }

    /// Opens the metadata of `blocks` blocks as the last transaction left it.
    ///
    /// # Errors
    /// [`Error::Damaged`], also where the file is not there; [`Error::Unsupported`] where it is of another number of
    /// blocks, or of another version; the device failed.
    pub fn open(folder: &dyn Dir, blocks: u64, options: CbtOptions) -> Result<Self> {
        let disk = match folder.open_write(FILE) {
            Err(error) if error.kind == ErrorKind::NotFound => return Err(file_is_gone()),
            other => other?,
        };
        Self::open_on(disk, blocks, options)
    }

    /// Opens the metadata on a disk.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn open_on(disk: Arc<dyn Disk>, blocks: u64, options: CbtOptions) -> Result<Self> {
        let last = newest(&*disk)?;
        if last.blocks != blocks {
            return Err(Error::Unsupported {
                what: format!(
                    "the metadata is of {} blocks, and the data device has {blocks}",
                    last.blocks
                ),
            });
        }
        let format = page::CbtFormat {
            transaction_max: last.transaction,
        };
        let space = Space::load(&last.slots, last.end, last.page_cursor, |place| {
            let mut bytes = vec![0; PAGE_BYTES];
            disk.read_at(&mut bytes, place * PAGE_BYTES as u64)?;
            format.check(place, &bytes)?;
            Ok(bytes)
        })?;
        let stores = last.stores.iter();
        Ok(Self {
            pager: Pager::new(
                Arc::clone(&disk),
                space,
                options.cache_bytes,
                last.transaction + 1,
            ),
            nodes: NodeEntries {
                max: options.node_entries_max.max(4),
            },
            states: BlockStates::new(blocks, last.used, last.block_cursor),
            counts: ReferenceCounts { tree: last.counts },
            stores: stores
                .map(|(shape, tree)| Store {
                    shape: *shape,
                    tree: *tree,
                })
                .collect(),
            created: 0,
            is_changed: false,
            is_broken: false,
            calls: Calls::default(),
        })
    }

    fn create_store(&mut self, shape: StoreShape) -> Result<StoreId> {
        let there = self.stores.get(self.created).map(|store| store.shape);
        if !same_store(there, shape)? {
            if self.stores.len() == superblock::STORES_MAX {
                return Err(Error::Invalid {
                    what: format!("more than {} stores", superblock::STORES_MAX),
                });
            }
            let tree = CbtTree::new(key_bytes(shape));
            self.stores.push(Store { shape, tree });
            self.is_changed = true;
        }
        self.created += 1;
        Ok(StoreId((self.created - 1) as u32))
    }

    fn store(&self, id: StoreId) -> Result<Store> {
        let found = self.stores.get(id.0 as usize);
        found.copied().ok_or_else(|| Error::Invalid {
            what: format!("there is no store {}", id.0),
        })
    }

    fn get(&mut self, store: Store, key: Key<'_>) -> Result<Option<Pbn>> {
        store.shape.check_key(key)?;
        let found = store.tree.get(&mut self.pager, KeyBytes::of(key).bytes())?;
        Ok(found.map(Pbn))
    }

    fn changing<T>(&mut self, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.is_broken {
            return Err(broken());
        }
        self.is_changed = true;
        let changed = change(self);
        // A block that cannot be referred to is refused before anything is changed.
        self.is_broken = !matches!(changed, Ok(_) | Err(Error::Invalid { .. }));
        changed
    }

    /// Pages that a change takes at most: each node of the way is copied and split, a page of counts is copied, and
    /// trees become higher.
    fn pages_of_change_max(&self) -> u64 {
        let trees = self.stores.iter().map(|store| &store.tree);
        let level = trees
            .chain([&self.counts.tree])
            .map(|tree| tree.level)
            .max();
        2 * (u64::from(level.unwrap_or(0)) + 3)
    }

    fn superblock(&self) -> Superblock {
        Superblock {
            transaction: self.pager.transaction(),
            blocks: self.states.blocks(),
            used: self.states.used(),
            block_cursor: self.states.cursor(),
            end: 0,
            page_cursor: 0,
            counts: self.counts.tree,
            stores: self
                .stores
                .iter()
                .map(|store| (store.shape, store.tree))
                .collect(),
            slots: Vec::new(),
        }
    }
}

fn file_is_gone() -> Error {
    Error::Damaged {
        place: FILE.into(),
        what: "the file of the metadata is not there".into(),
    }
}

fn broken() -> Error {
    Error::ReadOnly {
        why: "an earlier change of the metadata failed".into(),
    }
}

/// A key as the tree has it: numbers ascend as their bytes do.
enum KeyBytes<'a> {
    Number([u8; 8]),
    Bytes(&'a [u8]),
}

impl<'a> KeyBytes<'a> {
    fn of(key: Key<'a>) -> Self {
        match key {
            Key::Linear(key) => Self::Number(key.to_be_bytes()),
            Key::Sparse(key) => Self::Bytes(key),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Number(bytes) => bytes,
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl MetadataBackend for Cbt {
    fn close(mut self: Box<Self>) -> Result<()> {
        self.flush().map(drop)
    }

    fn create_linear(&mut self, keys: u64) -> Result<StoreId> {
        self.create_store(StoreShape::Linear(keys))
    }

    fn create_sparse(&mut self, key_bytes: usize, keys_max: u64) -> Result<StoreId> {
        self.create_store(StoreShape::Sparse {
            key_bytes,
            keys_max,
        })
    }

    fn insert(&mut self, store: StoreId, key: Key<'_>, pbn: Pbn) -> Result<()> {
        self.calls.inserts += 1;
        let found = self.store(store)?;
        found.shape.check_key(key)?;
        if found.shape.check_room(found.tree.entries).is_err() && self.get(found, key)?.is_none() {
            return found.shape.check_room(found.tree.entries);
        }
        self.changing(|this| {
            let tree = &mut this.stores[store.0 as usize].tree;
            tree.insert(
                &mut this.pager,
                this.nodes,
                KeyBytes::of(key).bytes(),
                pbn.0,
            )
        })
    }

    fn lookup(&mut self, store: StoreId, keys: &[Key<'_>], pbns: &mut [Option<Pbn>]) -> Result<()> {
        self.calls.lookups += keys.len() as u64;
        let found = self.store(store)?;
        for (key, pbn) in keys.iter().zip(pbns) {
            *pbn = self.get(found, *key)?;
        }
        Ok(())
    }

    fn delete(&mut self, store: StoreId, key: Key<'_>) -> Result<()> {
        self.calls.deletes += 1;
        self.store(store)?.shape.check_key(key)?;
        self.changing(|this| {
            let tree = &mut this.stores[store.0 as usize].tree;
            tree.remove(&mut this.pager, this.nodes, KeyBytes::of(key).bytes())
        })
    }

    fn iterate(
        &mut self,
        store: StoreId,
        visit: &mut dyn FnMut(Key<'_>, Pbn) -> Result<()>,
    ) -> Result<Supported> {
        let Store { shape, tree } = self.store(store)?;
        tree.iterate(&mut self.pager, &mut |key, pbn| {
            let key = match (shape, key.first_chunk()) {
                (StoreShape::Linear(_), Some(number)) => Key::Linear(u64::from_be_bytes(*number)),
                _ => Key::Sparse(key),
            };
            visit(key, Pbn(pbn))
        })?;
        Ok(Supported::Yes)
    }

    fn alloc_block(&mut self) -> Result<Option<Pbn>> {
        self.calls.allocations += 1;
        let (pager, counts, blocks) = (&mut self.pager, self.counts, self.states.blocks());
        self.states
            .allocate(|from, is_taken| counts.scan(pager, from, blocks, is_taken))
    }

    fn inc_ref(&mut self, pbn: Pbn) -> Result<u32> {
        self.calls.raises += 1;
        self.changing(|this| {
            this.states.check(pbn)?;
            let count = this.counts.get(&mut this.pager, pbn.0)?;
            let count = this.states.raise(pbn, count)?;
            this.counts.set(&mut this.pager, this.nodes, pbn.0, count)?;
            Ok(count)
        })
    }

    fn dec_ref(&mut self, pbn: Pbn) -> Result<u32> {
        self.calls.lowers += 1;
        self.changing(|this| {
            this.states.check(pbn)?;
            let count = this.counts.get(&mut this.pager, pbn.0)?;
            let count = this.states.lower(pbn, count)?;
            this.counts.set(&mut this.pager, this.nodes, pbn.0, count)?;
            Ok(count)
        })
    }

    fn ref_count(&mut self, pbn: Pbn) -> Result<u32> {
        self.states.check(pbn)?;
        self.counts.get(&mut self.pager, pbn.0)
    }

    /// Ends the transaction. Data that it names has to be durable already.
    fn flush(&mut self) -> Result<Durability> {
        self.calls.flushes += 1;
        if self.is_broken {
            return Err(broken());
        }
        if self.is_changed {
            // Whatever fails here, nobody knows which transaction is the last one.
            self.is_broken = true;
            let superblock = self.superblock();
            self.pager.commit(|space| {
                let superblock = superblock.with_space(space);
                Ok((superblock.place(), superblock.page()?))
            })?;
            self.is_broken = false;
            self.is_changed = false;
        }
        self.states.release();
        Ok(Durability::Durable)
    }

    fn changes_left(&mut self) -> Result<u64> {
        Ok(self.pager.pages_left()? / self.pages_of_change_max())
    }

    fn check(&mut self) -> Result<Vec<Finding>> {
        self.verify()
    }

    fn stats(&self) -> BackendStats {
        let mut stats = BackendStats {
            blocks: self.states.blocks(),
            blocks_free: self.states.free(),
            blocks_waiting: self.states.waiting(),
            page_reads: self.pager.page_reads(),
            page_writes: self.pager.page_writes(),
            ram_bytes: self.pager.ram_bytes() + self.states.ram_bytes(),
            calls: self.calls.list(),
            ..BackendStats::default()
        };
        for store in &self.stores {
            match store.shape {
                StoreShape::Linear(_) => stats.linear_entries += store.tree.entries,
                StoreShape::Sparse { .. } => stats.sparse_entries += store.tree.entries,
            }
        }
        stats
    }
}
