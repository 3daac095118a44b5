//! The backend `inram`: all metadata in RAM, no metadata I/O (report §3.6.1). It can be saved as a whole and loaded
//! again; a crash loses what was not saved.
//!
//! Invariant: a block that the saved file refers to is not allocated before the next save, even if it was freed since.
//! A crash therefore leaves the whole state of the last save.

mod counts;
pub(crate) mod dump;
mod hash_table;
mod linear;
mod saved;

use std::sync::Arc;

use onefold_io::{Dir, Disk};

use self::counts::BlockCounts;
use self::hash_table::HashTable;
use self::linear::Linear;
pub use self::saved::{INRAM, Limits};
use crate::backend::Calls;
use crate::{
    BackendStats, Durability, Error, Key, MetadataBackend, Pbn, Result, StoreId, Supported,
};

/// Reads a saved file to its end: what a decoder of bytes from outside is tried with.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Unsupported`].
pub fn verify_saved(disk: &dyn Disk, path: &str, limits: Limits) -> Result<()> {
    saved::read(disk, path, limits).map(drop)
}

/// When the metadata is written to its file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SaveAt {
    /// When the backend is closed or told to, and when freed blocks wait for it and nearly no others are left.
    #[default]
    Close,
    /// At every flush, too: all that was flushed survives, at the cost of writing everything each time.
    Flush,
}

/// Where nearly no block is left: one of this many.
const FREE_SHARE_MIN: u64 = 64;

/// All metadata in RAM.
pub struct InRam {
    content: SavedContent,
    /// Stores that were created since the backend was opened.
    created: usize,
    file: Option<saved::SavePlace>,
    save_at: SaveAt,
    /// Whether a file with an earlier state is there.
    is_saved: bool,
    /// Whether something changed since the last save.
    is_changed: bool,
    calls: Calls,
}

/// Content of a saved file.
struct SavedContent {
    stores: Vec<Store>,
    counts: BlockCounts,
}

/// A key-value store.
enum Store {
    Linear(Linear),
    Sparse(HashTable),
}

impl InRam {
    /// Metadata of `blocks` blocks, as it was saved last in `folder`, or none.
    ///
    /// # Errors
    /// The saved file is damaged, of another version, or of another number of blocks; the memory cannot be had.
    pub fn open(folder: Arc<dyn Dir>, blocks: u64, save_at: SaveAt) -> Result<Self> {
        let file = saved::SavePlace::new(folder);
        let found = file.load(blocks)?;
        let is_saved = found.is_some();
        let content = match found {
            Some(content) => content,
            None => SavedContent::new(blocks)?,
        };
        Ok(Self {
            content,
            created: 0,
            file: Some(file),
            save_at,
            is_saved,
            is_changed: false,
            calls: Calls::default(),
        })
    }

    /// Metadata of `blocks` blocks that is never saved.
    ///
    /// # Errors
    /// The memory cannot be had.
    pub fn unsaved(blocks: u64) -> Result<Self> {
        Ok(Self {
            content: SavedContent::new(blocks)?,
            created: 0,
            file: None,
            save_at: SaveAt::Close,
            is_saved: false,
            is_changed: false,
            calls: Calls::default(),
        })
    }

    /// Makes the file of a folder in which nothing was saved yet.
    ///
    /// # Errors
    /// The folder's device failed, or has no room; the memory cannot be had.
    pub fn create_file(folder: &dyn Dir, blocks: u64) -> Result<()> {
        saved::save(folder, &SavedContent::new(blocks)?)
    }

    /// The file is there.
    ///
    /// # Errors
    /// [`Error::Damaged`]: it is gone.
    pub fn require_file(folder: &dyn Dir) -> Result<()> {
        saved::require(folder)
    }

    /// The next store, where the n-th is there already and of this shape; otherwise a new one.
    fn create(
        &mut self,
        is_same: impl Fn(&Store) -> bool,
        make: impl Fn() -> Result<Store>,
    ) -> Result<StoreId> {
        let id = self.created;
        match self.content.stores.get(id) {
            Some(store) if is_same(store) => {}
            Some(_) => {
                return Err(Error::Unsupported {
                    what: format!("store {id} was saved with another shape or size"),
                });
            }
            None => {
                self.content.stores.push(make()?);
                self.is_changed = true;
            }
        }
        self.created += 1;
        Ok(StoreId(id as u32))
    }

    fn store(&mut self, id: StoreId) -> Result<&mut Store> {
        let found = self.content.stores.get_mut(id.0 as usize);
        found.ok_or_else(|| Error::Invalid {
            what: format!("there is no store {}", id.0),
        })
    }
}

impl SavedContent {
    pub fn new(blocks: u64) -> Result<Self> {
        Ok(Self {
            stores: Vec::new(),
            counts: BlockCounts::new(blocks)?,
        })
    }
}

impl Store {
    /// # Errors
    /// [`Error::Invalid`] for a key of the other kind, of another length, or beyond the last.
    fn check(&self, key: Key<'_>) -> Result<()> {
        let what = match (self, key) {
            (Self::Linear(store), Key::Linear(key)) if key >= store.keys() => {
                format!("key {key} lies beyond the store's {} keys", store.keys())
            }
            (Self::Sparse(store), Key::Sparse(key)) if key.len() != store.shape().0 => format!(
                "a key of {} bytes, where the store's have {}",
                key.len(),
                store.shape().0
            ),
            (Self::Linear(_), Key::Sparse(_)) | (Self::Sparse(_), Key::Linear(_)) => {
                "a key of the other kind of store".into()
            }
            _ => return Ok(()),
        };
        Err(Error::Invalid { what })
    }

    fn get(&self, key: Key<'_>) -> Result<Option<Pbn>> {
        self.check(key)?;
        Ok(match (self, key) {
            (Self::Linear(store), Key::Linear(key)) => store.get(key),
            (Self::Sparse(store), Key::Sparse(key)) => store.get(key),
            _ => None,
        })
    }
}

impl MetadataBackend for InRam {
    fn close(mut self: Box<Self>) -> Result<()> {
        if self.is_changed {
            self.save()?;
        }
        Ok(())
    }

    fn create_linear(&mut self, keys: u64) -> Result<StoreId> {
        self.create(
            |store| matches!(store, Store::Linear(store) if store.keys() == keys),
            || Ok(Store::Linear(Linear::new(keys)?)),
        )
    }

    fn create_sparse(&mut self, key_bytes: usize, keys_max: u64) -> Result<StoreId> {
        self.create(
            |store| matches!(store, Store::Sparse(store) if store.shape() == (key_bytes, keys_max)),
            || Ok(Store::Sparse(HashTable::new(key_bytes, keys_max)?)),
        )
    }

    fn insert(&mut self, store: StoreId, key: Key<'_>, pbn: Pbn) -> Result<()> {
        self.calls.inserts += 1;
        self.is_changed = true;
        let store = self.store(store)?;
        store.check(key)?;
        match (store, key) {
            (Store::Linear(store), Key::Linear(key)) => store.insert(key, pbn),
            (Store::Sparse(store), Key::Sparse(key)) => store.insert(key, pbn)?,
            _ => {}
        }
        Ok(())
    }

    fn lookup(&mut self, store: StoreId, keys: &[Key<'_>], pbns: &mut [Option<Pbn>]) -> Result<()> {
        self.calls.lookups += keys.len() as u64;
        let store = self.store(store)?;
        for (key, pbn) in keys.iter().zip(pbns) {
            *pbn = store.get(*key)?;
        }
        Ok(())
    }

    fn delete(&mut self, store: StoreId, key: Key<'_>) -> Result<()> {
        self.calls.deletes += 1;
        self.is_changed = true;
        let store = self.store(store)?;
        store.check(key)?;
        match (store, key) {
            (Store::Linear(store), Key::Linear(key)) => store.remove(key),
            (Store::Sparse(store), Key::Sparse(key)) => store.remove(key),
            _ => {}
        }
        Ok(())
    }

    fn iterate(
        &mut self,
        store: StoreId,
        visit: &mut dyn FnMut(Key<'_>, Pbn) -> Result<()>,
    ) -> Result<Supported> {
        match self.store(store)? {
            Store::Linear(store) => store
                .iter()
                .try_for_each(|(key, pbn)| visit(Key::Linear(key), pbn))?,
            Store::Sparse(store) => store
                .iter()
                .try_for_each(|(key, pbn)| visit(Key::Sparse(key), pbn))?,
        }
        Ok(Supported::Yes)
    }

    fn alloc_block(&mut self) -> Result<Option<Pbn>> {
        self.calls.allocations += 1;
        Ok(self.content.counts.allocate())
    }

    fn inc_ref(&mut self, pbn: Pbn) -> Result<u32> {
        self.calls.raises += 1;
        self.is_changed = true;
        self.content.counts.raise(pbn)
    }

    fn dec_ref(&mut self, pbn: Pbn) -> Result<u32> {
        self.calls.lowers += 1;
        self.is_changed = true;
        self.content.counts.lower(pbn)
    }

    fn flush(&mut self) -> Result<Durability> {
        self.calls.flushes += 1;
        let counts = &self.content.counts;
        let is_full = counts.free() <= counts.blocks() / FREE_SHARE_MIN;
        let needs_save = counts.waiting() > 0 && is_full;
        if self.save_at == SaveAt::Flush || self.is_saved && needs_save {
            return self.save();
        }
        if !self.is_saved {
            self.content.counts.release();
        }
        Ok(Durability::None)
    }

    fn save(&mut self) -> Result<Durability> {
        let Some(file) = &self.file else {
            self.content.counts.release();
            return Ok(Durability::None);
        };
        if self.is_changed || !self.is_saved {
            self.calls.saves += 1;
            file.save(&self.content)?;
            self.is_changed = false;
            self.is_saved = true;
        }
        self.content.counts.release();
        Ok(Durability::Durable)
    }

    fn stats(&self) -> BackendStats {
        let mut stats = BackendStats {
            blocks: self.content.counts.blocks(),
            blocks_free: self.content.counts.free(),
            blocks_waiting: self.content.counts.waiting(),
            ram_bytes: self.content.counts.ram_bytes(),
            calls: self.calls.list(),
            ..BackendStats::default()
        };
        for store in &self.content.stores {
            match store {
                Store::Linear(store) => {
                    stats.linear_entries += store.entries();
                    stats.ram_bytes += store.ram_bytes();
                }
                Store::Sparse(store) => {
                    stats.sparse_entries += store.entries();
                    stats.ram_bytes += store.ram_bytes();
                }
            }
        }
        stats
    }
}
