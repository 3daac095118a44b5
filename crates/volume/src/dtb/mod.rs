//! The backend `dtb`: the tables of `inram` on a device, behind a page cache (report §3.6.2).
//!
//! ```text
//! header page | counts, 4 bytes a block | each store in order of creation: 8 bytes a key, or a hash table
//! ```
//!
//! Invariant: tables are changed in place, so what a crash leaves of them means nothing. Before the first change the
//! header is marked as *open*, durably; a save writes all pages and marks it as *clean*. A backend that finds the mark
//! *open* refuses, and says why.

pub(crate) mod dump;
mod hash_table;
mod header;
mod linear;

use std::sync::Arc;

use onefold_io::{Dir, Disk, create_anew};

use self::hash_table::DiskHashTable;
pub use self::header::DTB;
use self::header::{DtbHeader, StoreHeader, TablesMark};
use self::linear::DiskLinear;
use crate::backend::Calls;
use crate::block_states::{BlockStates, Scan};
use crate::page_cache::{PAGE_BYTES, PageCache, PageFormat};
use crate::store_shape::{StoreShape, same_store};
use crate::{
    BackendStats, Durability, Error, Key, MetadataBackend, Pbn, Result, StoreId, Supported,
};

/// The file of the metadata.
const FILE: &str = "meta";
/// Counts in a page.
const COUNTS_IN_PAGE: u64 = PAGE_BYTES as u64 / 4;

/// Reads a header to its end: what a decoder of bytes from outside is tried with.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Unsupported`].
pub fn verify_header(bytes: &[u8]) -> Result<()> {
    DtbHeader::decode(bytes, FILE).map(drop)
}

/// Metadata in tables on a device.
pub struct Dtb {
    cache: Cache,
    states: BlockStates,
    stores: Vec<DeviceStore>,
    /// Stores that were created since the backend was opened.
    created: usize,
    mark: TablesMark,
    /// A change failed halfway: the tables mean nothing any more.
    is_broken: bool,
    calls: Calls,
}

type Cache = PageCache<Unchecked>;

/// Pages have no checksums: the report's layout.
struct Unchecked;

impl PageFormat for Unchecked {
    fn check(&self, _page: u64, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn seal(&self, _page: u64, _bytes: &mut [u8]) {}
}

/// A key-value store on the device.
struct DeviceStore {
    shape: StoreShape,
    table: DeviceTable,
    entries: u64,
}

enum DeviceTable {
    Linear(DiskLinear),
    Sparse(DiskHashTable),
}

impl DeviceStore {
    fn new(shape: StoreShape, first_page: u64, entries: u64) -> Self {
        let table = match shape {
            StoreShape::Linear(keys) => DeviceTable::Linear(DiskLinear::new(first_page, keys)),
            StoreShape::Sparse {
                key_bytes,
                keys_max,
            } => DeviceTable::Sparse(DiskHashTable::new(first_page, key_bytes, keys_max)),
        };
        Self {
            shape,
            table,
            entries,
        }
    }

    fn end_page(&self) -> u64 {
        match &self.table {
            DeviceTable::Linear(table) => table.end_page(),
            DeviceTable::Sparse(table) => table.end_page(),
        }
    }

    fn get(&self, cache: &mut Cache, key: Key<'_>) -> Result<Option<Pbn>> {
        match (&self.table, key) {
            (DeviceTable::Linear(table), Key::Linear(key)) => table.get(cache, key),
            (DeviceTable::Sparse(table), Key::Sparse(key)) => table.get(cache, key),
            _ => Ok(None),
        }
    }
}

impl Dtb {
    /// Makes the file of the metadata of `blocks` blocks, with no stores yet.
    ///
    /// # Errors
    /// The folder's device failed, or has no room.
    pub fn create(folder: &dyn Dir, blocks: u64) -> Result<()> {
        let disk = create_anew(folder, FILE)?;
        Self::create_on(&*disk, blocks)?;
        Ok(folder.sync()?)
    }

    /// Bytes of the metadata of `blocks` blocks with these stores.
    pub fn bytes_of(blocks: u64, linear_keys: u64, key_bytes: usize, keys_max: u64) -> u64 {
        let linear = DiskLinear::new(1 + count_pages(blocks), linear_keys);
        let sparse = DiskHashTable::new(linear.end_page(), key_bytes, keys_max);
        sparse.end_page().saturating_mul(PAGE_BYTES as u64)
    }

    /// Makes the metadata on a disk.
    ///
    /// # Errors
    /// The disk failed, or has no room.
    pub fn create_on(disk: &dyn Disk, blocks: u64) -> Result<()> {
        let end = (1 + count_pages(blocks)) * PAGE_BYTES as u64;
        disk.set_len(end)?;
        // A device may hold other bytes, which would be taken for entries.
        disk.write_zeroes(0, end)?;
        disk.allocate(0, end)?;
        let header = DtbHeader {
            mark: TablesMark::Clean,
            blocks,
            used: 0,
            cursor: 0,
            stores: Vec::new(),
        };
        disk.write_at(&header.page()?, 0)?;
        Ok(disk.sync()?)
    }

    /// Opens the metadata of `blocks` blocks, with at most `cache_bytes` of its pages in RAM; 64 KiB at least.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the file is not there, or was in use when its process or the machine died: nothing of it
    /// can be used. [`Error::Unsupported`] where it is of another number of blocks.
    pub fn open(folder: &dyn Dir, blocks: u64, cache_bytes: u64) -> Result<Self> {
        header::read(folder)?;
        Self::open_on(folder.open_write(FILE)?, blocks, cache_bytes)
    }

    /// Opens the metadata on a disk.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn open_on(disk: Arc<dyn Disk>, blocks: u64, cache_bytes: u64) -> Result<Self> {
        let header = header::read_disk(&*disk)?;
        if header.mark == TablesMark::Open {
            return Err(Error::Damaged {
                place: FILE.into(),
                what: "dtb keeps nothing that survives a crash, and this metadata was being changed when its process or \
                       the machine died: all data of the depot is lost; `onefold volume delete` makes room for a new one"
                    .into(),
            });
        }
        if header.blocks != blocks {
            return Err(Error::Unsupported {
                what: format!(
                    "the metadata is of {} blocks, and the data device has {blocks}",
                    header.blocks
                ),
            });
        }
        let mut end = 1 + count_pages(blocks);
        let mut stores = Vec::new();
        for store in &header.stores {
            stores.push(DeviceStore::new(store.shape, end, store.entries));
            end = stores.last().map_or(end, DeviceStore::end_page);
        }
        if disk.len()? / (PAGE_BYTES as u64) < end {
            return Err(Error::Damaged {
                place: FILE.into(),
                what: format!(
                    "the file has {} bytes, and its tables take {end} pages",
                    disk.len()?
                ),
            });
        }
        Ok(Self {
            cache: PageCache::new(disk, Unchecked, cache_bytes),
            states: BlockStates::new(blocks, header.used, header.cursor),
            stores,
            created: 0,
            mark: TablesMark::Clean,
            is_broken: false,
            calls: Calls::default(),
        })
    }

    fn create_store(&mut self, shape: StoreShape) -> Result<StoreId> {
        let there = self.stores.get(self.created).map(|store| store.shape);
        if !same_store(there, shape)? {
            let first = self
                .stores
                .last()
                .map_or(1 + count_pages(self.states.blocks()), DeviceStore::end_page);
            let store = DeviceStore::new(shape, first, 0);
            let (start, end) = (
                first * PAGE_BYTES as u64,
                store.end_page() * PAGE_BYTES as u64,
            );
            self.cache.disk().set_len(end)?;
            self.cache.disk().write_zeroes(start, end - start)?;
            self.cache.disk().allocate(start, end - start)?;
            self.stores.push(store);
            self.write_header(self.mark)?;
        }
        self.created += 1;
        Ok(StoreId((self.created - 1) as u32))
    }

    fn store(&self, id: StoreId) -> Result<&DeviceStore> {
        let found = self.stores.get(id.0 as usize);
        found.ok_or_else(|| Error::Invalid {
            what: format!("there is no store {}", id.0),
        })
    }

    fn write_header(&mut self, mark: TablesMark) -> Result<()> {
        let stores = self.stores.iter().map(|store| StoreHeader {
            shape: store.shape,
            entries: store.entries,
        });
        let header = DtbHeader {
            mark,
            blocks: self.states.blocks(),
            used: self.states.used(),
            cursor: self.states.cursor(),
            stores: stores.collect(),
        };
        self.cache.disk().write_at(&header.page()?, 0)?;
        self.cache.disk().sync()?;
        self.mark = mark;
        Ok(())
    }

    /// Changes the tables. Before the first change since a save the device is told that they are in use.
    fn changing<T>(&mut self, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.is_broken {
            return Err(broken());
        }
        if self.mark == TablesMark::Clean {
            self.write_header(TablesMark::Open)?;
        }
        let changed = change(self);
        // A block that cannot be referred to is refused before anything is changed.
        self.is_broken = !matches!(changed, Ok(_) | Err(Error::Invalid { .. }));
        changed
    }

    fn count(&mut self, pbn: Pbn) -> Result<u32> {
        self.states.check(pbn)?;
        let (page, at) = place_of_count(pbn.0);
        Ok(count_at(self.cache.read(page)?, at))
    }

    fn set_count(&mut self, pbn: Pbn, count: u32) -> Result<()> {
        let (page, at) = place_of_count(pbn.0);
        self.cache.change(page)?[at..at + 4].copy_from_slice(&count.to_le_bytes());
        Ok(())
    }
}

fn broken() -> Error {
    Error::ReadOnly {
        why: "an earlier change of the metadata failed".into(),
    }
}

fn count_pages(blocks: u64) -> u64 {
    blocks.div_ceil(COUNTS_IN_PAGE)
}

/// Page and offset in it.
fn place_of_count(block: u64) -> (u64, usize) {
    let at = (block % COUNTS_IN_PAGE) as usize * 4;
    (1 + block / COUNTS_IN_PAGE, at)
}

fn count_at(page: &[u8], at: usize) -> u32 {
    let mut count = [0; 4];
    count.copy_from_slice(&page[at..at + 4]);
    u32::from_le_bytes(count)
}

impl MetadataBackend for Dtb {
    fn close(mut self: Box<Self>) -> Result<()> {
        self.save().map(drop)
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
        self.store(store)?.shape.check_key(key)?;
        let found = &self.stores[store.0 as usize];
        if found.get(&mut self.cache, key)?.is_none() {
            found.shape.check_room(found.entries)?;
        }
        self.changing(|this| {
            let store = &mut this.stores[store.0 as usize];
            let is_new = match (&store.table, key) {
                (DeviceTable::Linear(table), Key::Linear(key)) => {
                    table.insert(&mut this.cache, key, pbn)?
                }
                (DeviceTable::Sparse(table), Key::Sparse(key)) => {
                    table.insert(&mut this.cache, key, pbn)?
                }
                _ => false,
            };
            store.entries += u64::from(is_new);
            Ok(())
        })
    }

    fn lookup(&mut self, store: StoreId, keys: &[Key<'_>], pbns: &mut [Option<Pbn>]) -> Result<()> {
        self.calls.lookups += keys.len() as u64;
        self.store(store)?;
        let found = &self.stores[store.0 as usize];
        for (key, pbn) in keys.iter().zip(pbns) {
            found.shape.check_key(*key)?;
            *pbn = found.get(&mut self.cache, *key)?;
        }
        Ok(())
    }

    fn delete(&mut self, store: StoreId, key: Key<'_>) -> Result<()> {
        self.calls.deletes += 1;
        self.store(store)?.shape.check_key(key)?;
        self.changing(|this| {
            let store = &mut this.stores[store.0 as usize];
            let was_there = match (&store.table, key) {
                (DeviceTable::Linear(table), Key::Linear(key)) => {
                    table.remove(&mut this.cache, key)?
                }
                (DeviceTable::Sparse(table), Key::Sparse(key)) => {
                    table.remove(&mut this.cache, key)?
                }
                _ => false,
            };
            // The number is the header's, and pages have no checksums.
            store.entries = store.entries.saturating_sub(u64::from(was_there));
            Ok(())
        })
    }

    fn iterate(
        &mut self,
        store: StoreId,
        visit: &mut dyn FnMut(Key<'_>, Pbn) -> Result<()>,
    ) -> Result<Supported> {
        self.store(store)?;
        match &self.stores[store.0 as usize].table {
            DeviceTable::Linear(table) => table.iterate(&mut self.cache, visit)?,
            DeviceTable::Sparse(table) => table.iterate(&mut self.cache, visit)?,
        }
        Ok(Supported::Yes)
    }

    fn alloc_block(&mut self) -> Result<Option<Pbn>> {
        self.calls.allocations += 1;
        let (cache, blocks) = (&mut self.cache, self.states.blocks());
        self.states.allocate(|from, is_taken| {
            let (page, at) = place_of_count(from);
            let end = blocks.min((from / COUNTS_IN_PAGE + 1) * COUNTS_IN_PAGE);
            let counts = cache.read(page)?;
            let mut places = (from..end).zip((at..).step_by(4));
            let free = places.find(|(block, at)| count_at(counts, *at) == 0 && !is_taken(*block));
            Ok(free.map_or(Scan::Next(end), |(block, _)| Scan::Free(block)))
        })
    }

    fn inc_ref(&mut self, pbn: Pbn) -> Result<u32> {
        self.calls.raises += 1;
        self.changing(|this| {
            let count = this.count(pbn)?;
            let count = this.states.raise(pbn, count)?;
            this.set_count(pbn, count)?;
            Ok(count)
        })
    }

    fn dec_ref(&mut self, pbn: Pbn) -> Result<u32> {
        self.calls.lowers += 1;
        self.changing(|this| {
            let count = this.count(pbn)?;
            let count = this.states.lower(pbn, count)?;
            this.set_count(pbn, count)?;
            Ok(count)
        })
    }

    fn ref_count(&mut self, pbn: Pbn) -> Result<u32> {
        self.count(pbn)
    }

    /// Writes nothing: no page that is written now would be worth anything after a crash.
    fn flush(&mut self) -> Result<Durability> {
        self.calls.flushes += 1;
        self.states.release();
        Ok(Durability::None)
    }

    fn save(&mut self) -> Result<Durability> {
        self.calls.saves += 1;
        if self.is_broken {
            return Err(broken());
        }
        if self.mark == TablesMark::Open {
            // Whatever fails here, no later save may call the tables whole.
            self.is_broken = true;
            self.cache.write_back()?;
            self.cache.disk().sync()?;
            self.write_header(TablesMark::Clean)?;
            self.is_broken = false;
        }
        self.states.release();
        Ok(Durability::Durable)
    }

    fn stats(&self) -> BackendStats {
        let mut stats = BackendStats {
            blocks: self.states.blocks(),
            blocks_free: self.states.free(),
            blocks_waiting: self.states.waiting(),
            page_reads: self.cache.reads(),
            page_writes: self.cache.writes(),
            ram_bytes: self.cache.ram_bytes() + self.states.ram_bytes(),
            calls: self.calls.list(),
            ..BackendStats::default()
        };
        for store in &self.stores {
            match store.shape {
                StoreShape::Linear(_) => stats.linear_entries += store.entries,
                StoreShape::Sparse { .. } => stats.sparse_entries += store.entries,
            }
        }
        stats
    }
}
