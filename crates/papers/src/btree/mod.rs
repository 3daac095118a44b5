//! `btree`: fingerprints in the B-tree of an embedded database (redb), in the role of BerkeleyDB in the papers (PRUNE's
//! "single" and ChunkStash's rival).
//!
//! ```text
//! RAM    write buffer │ pages of the tree │ Bloom filter, if wanted │ fingerprints of whole containers, if wanted
//! disk   entries: fingerprint → container            neighbours: (container, flush) → fingerprints that joined or left it
//! ```
//!
//! With neither filter nor prefetch, each lookup of a key that is not in the cached pages reads a leaf, and each
//! insertion reads and writes one: keys have no order. The filter saves nearly all reads for absent keys; prefetch
//! reads, after a hit, all fingerprints of the same container, in one read of some pages. With both this is the index
//! of DDFS (Zhu, Li, Patterson: "Avoiding the Disk Bottleneck", 2008).
//!
//! Invariant: the write buffer goes into the tree in one transaction, durable at once or at the next checkpoint, so
//! a crash loses whole buffers or nothing, and the two tables always agree. A fingerprint is a neighbour of the one
//! container that `entries` names. One opener at a time.

mod backend;
mod prefetch;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use onefold_chunk::Fingerprint;
use onefold_io::{Dir, Disk, LockGuard, if_there, rename_over};
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    TableDefinition,
};

use self::backend::{BackendTraffic, DiskBackend, failed};
use self::prefetch::PrefetchCache;
use crate::filters::BlockedBloom;
use crate::turns::{InTurns, OneCaller};
use onefold_index::alone;
use onefold_index::strata::log::Said;
use onefold_index::{ContainerId, Filter, IndexStats, Location, Result};

const FILE: &str = "btree";
const TMP: &str = "btree-tmp";
/// The table of each chunk's container.
const ENTRIES: TableDefinition<&[u8; 32], u64> = TableDefinition::new("entries");
/// Fingerprints that joined or left a container, flush by flush; the last bit of the second number is set where they
/// left.
const NEIGHBOURS: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("neighbours");
/// The table of counts: `flushes` is the number of flushes, kept where neighbours are.
const COUNTS: TableDefinition<&str, u64> = TableDefinition::new("counts");
const FLUSHES: &str = "flushes";
/// Records in the write buffer: the papers' container.
const BUFFER_RECORDS: usize = 1023;
/// RAM of a record in the write buffer, in bytes: a slot of a table that is half full, and a place in the order.
const BUFFER_RECORD_BYTES: usize = 2 * (size_of::<(Fingerprint, Said)>() + 1 + 32);
/// Keys that are added at once when the filter is made again.
const BATCH: usize = 512;

/// Bytes of the file for which the library has one map of free pages, and the bytes of that map, as counted by an
/// allocator.
const REGION_BYTES: usize = 4 << 30;
const REGION_MAPS_BYTES: usize = 144 << 10;

/// Options of a B-tree.
#[derive(Clone, Copy, Debug)]
pub struct BTreeOptions {
    /// RAM for pages of the tree, in bytes.
    pub cache_bytes: usize,
    /// RAM of the Bloom filter in bytes, 0 for none. It is made again at open by one pass over the tree.
    pub filter_bytes: usize,
    /// Keys for which the filter's bits are chosen.
    pub keys_expected: u64,
    /// RAM in bytes for fingerprints of containers with hits; 0 for none. Whether neighbours are stored at all is
    /// decided when the index is made.
    pub prefetch_bytes: usize,
    /// Number of records in the write buffer, at least 1: 1023 are the papers' container.
    pub buffer_records: usize,
    /// Whether full write buffers become durable at the next checkpoint, not at once: until then their pages wait in
    /// the cache, as far as it has room.
    pub writes_late: bool,
}

impl BTreeOptions {
    /// Options for all three parts within `ram_budget_bytes`: at most a byte a key for the filter, then equal parts for
    /// pages and prefetch.
    pub fn new(keys_expected: u64, ram_budget_bytes: usize) -> BTreeOptions {
        let rest = ram_budget_bytes.saturating_sub(BUFFER_RECORDS * BUFFER_RECORD_BYTES);
        let filter_bytes = (keys_expected as usize).min(rest / 2).max(64);
        BTreeOptions {
            cache_bytes: (rest - filter_bytes.min(rest)) / 2,
            filter_bytes,
            keys_expected,
            prefetch_bytes: (rest - filter_bytes.min(rest)) / 2,
            buffer_records: BUFFER_RECORDS,
            writes_late: false,
        }
    }
}

/// The index `btree`: fingerprints in the B-tree of an embedded database.
pub struct BTree {
    db: Database,
    disk: Arc<dyn Disk>,
    traffic: Arc<BackendTraffic>,
    options: BTreeOptions,
    order: Vec<Fingerprint>,
    buffer: HashMap<Fingerprint, Said>,
    filter: Option<BlockedBloom>,
    keeps_neighbours: bool,
    prefetched: PrefetchCache,
    entries: u64,
    stats: IndexStats,
    _alone: Box<dyn LockGuard>,
}

/// The fingerprints that joined or left each container in one flush.
type Moves = BTreeMap<(ContainerId, bool), Vec<u8>>;

impl InTurns<BTree> {
    /// Opens the index in `dir`, or begins an empty one. The whole file is read once to check its pages, because the
    /// library expects undamaged ones.
    ///
    /// # Errors
    /// [`Error::Held`](onefold_index::Error::Held) where another opener has the index open;
    /// [`Error::Damaged`](onefold_index::Error::Damaged) for a page that is not what was written;
    /// [`Error::Budget`](onefold_index::Error::Budget) for a filter of more than 8 GiB;
    /// [`Error::Io`](onefold_index::Error::Io).
    pub fn open(dir: Arc<dyn Dir>, options: BTreeOptions) -> Result<InTurns<BTree>> {
        BTree::open_one(dir, options).map(InTurns::new)
    }
}

impl BTree {
    fn open_one(dir: Arc<dyn Dir>, options: BTreeOptions) -> Result<BTree> {
        let alone = alone(&*dir, "btree")?;
        let disk = match if_there(dir.open_write(FILE))? {
            Some(disk) => disk,
            None => begin(&*dir, options)?,
        };
        let (db, traffic) = database(&disk, options.cache_bytes)?;
        let keeps_neighbours = {
            let reading = db.begin_read().map_err(failed)?;
            match reading.open_table(NEIGHBOURS) {
                Ok(_) => true,
                Err(redb::TableError::TableDoesNotExist(_)) => false,
                Err(error) => return Err(failed(error)),
            }
        };
        let filter = match options.filter_bytes {
            0 => None,
            bytes => Some(BlockedBloom::with_bytes(bytes, options.keys_expected)?),
        };
        let mut index = BTree {
            db,
            disk,
            traffic,
            options,
            order: Vec::new(),
            buffer: HashMap::new(),
            filter,
            keeps_neighbours,
            prefetched: PrefetchCache::new(options.prefetch_bytes),
            entries: 0,
            stats: IndexStats::default(),
            _alone: alone,
        };
        index.entries = index.table()?.len().map_err(failed)?;
        index.fill_filter()?;
        Ok(index)
    }

    fn table(&self) -> Result<ReadOnlyTable<&'static [u8; 32], u64>> {
        let reading = self.db.begin_read().map_err(failed)?;
        reading.open_table(ENTRIES).map_err(failed)
    }

    fn fill_filter(&mut self) -> Result<()> {
        let table = self.table()?;
        let Some(filter) = &mut self.filter else {
            return Ok(());
        };
        let mut batch = Vec::with_capacity(BATCH);
        for entry in table.iter().map_err(failed)? {
            batch.push(Fingerprint(*entry.map_err(failed)?.0.value()));
            if batch.len() == BATCH {
                filter.insert(&batch)?;
                batch.clear();
            }
        }
        filter.insert(&batch)
    }

    fn reads(&self) -> u64 {
        self.traffic.reads.load(Relaxed)
    }

    fn find(
        &mut self,
        table: &ReadOnlyTable<&'static [u8; 32], u64>,
        key: &Fingerprint,
    ) -> Result<Option<ContainerId>> {
        if let Some(said) = self.buffer.get(key) {
            return Ok(*said);
        }
        if let Some(container) = self.prefetched.get(key) {
            return Ok(Some(container));
        }
        let mut may_be = [true];
        if let Some(filter) = &mut self.filter {
            filter.may_contain(std::slice::from_ref(key), &mut may_be)?;
        }
        if !may_be[0] {
            return Ok(None);
        }
        let before = self.reads();
        let found = table.get(&key.0).map_err(failed)?;
        let found = found.map(|container| ContainerId(container.value()));
        match found {
            Some(container) => self.prefetch(container)?,
            None => self.stats.false_reads += self.reads() - before,
        }
        Ok(found)
    }

    /// Reads all fingerprints of a container into RAM.
    fn prefetch(&mut self, container: ContainerId) -> Result<()> {
        let room = self.prefetched.room(&container);
        if !self.keeps_neighbours || room == 0 {
            return Ok(());
        }
        let reading = self.db.begin_read().map_err(failed)?;
        let table = reading.open_table(NEIGHBOURS).map_err(failed)?;
        let parts = table
            .range((container.0, 0)..=(container.0, u64::MAX))
            .map_err(failed)?;
        let (mut keys, mut gone) = (Vec::new(), HashSet::new());
        // from the newest flush on: a fingerprint that left in a later flush did not join for good in an earlier one
        for part in parts.rev() {
            let (place, bytes) = part.map_err(failed)?;
            let fingerprints = bytes.value().chunks_exact(32).map(fingerprint);
            if place.value().1 & 1 == 1 {
                gone.extend(fingerprints);
            } else {
                keys.extend(fingerprints.filter(|key| !gone.contains(key)));
            }
            if keys.len() > room {
                self.prefetched.refuse(container);
                return Ok(());
            }
        }
        // a fingerprint that left and came back stands in two parts
        keys.sort_unstable_by_key(|key: &Fingerprint| key.0);
        keys.dedup();
        self.prefetched.insert(container, keys);
        Ok(())
    }

    /// The durability with which a full write buffer is committed.
    fn durability(&self) -> Durability {
        if self.options.writes_late {
            Durability::None
        } else {
            Durability::Immediate
        }
    }

    /// Commits the write buffer to the tree; with `Immediate` all earlier commits become durable, too.
    fn flush(&mut self, durability: Durability) -> Result<()> {
        let is_waiting = self.options.writes_late && matches!(durability, Durability::Immediate);
        if self.order.is_empty() && !is_waiting {
            return Ok(());
        }
        let mut writing = self.db.begin_write().map_err(failed)?;
        writing.set_durability(durability).map_err(failed)?;
        let mut moves = Moves::new();
        {
            let mut table = writing.open_table(ENTRIES).map_err(failed)?;
            for key in &self.order {
                let said = self.buffer[key];
                let old = match said {
                    Some(container) => table.insert(&key.0, container.0),
                    None => table.remove(&key.0),
                };
                let old = old
                    .map_err(failed)?
                    .map(|container| ContainerId(container.value()));
                self.entries += u64::from(said.is_some() && old.is_none());
                self.entries -= u64::from(said.is_none() && old.is_some());
                if old != said {
                    let mut move_in = |container: Said, left: bool| {
                        if let Some(container) = container {
                            let keys = moves.entry((container, left)).or_default();
                            keys.extend_from_slice(&key.0);
                        }
                    };
                    move_in(old, true);
                    move_in(said, false);
                }
            }
        }
        if self.keeps_neighbours && !self.order.is_empty() {
            let mut counts = writing.open_table(COUNTS).map_err(failed)?;
            let flush = counts.get(FLUSHES).map_err(failed)?;
            let flush = flush.map_or(0, |flush| flush.value());
            counts.insert(FLUSHES, flush + 1).map_err(failed)?;
            let mut neighbours = writing.open_table(NEIGHBOURS).map_err(failed)?;
            for ((container, left), keys) in &moves {
                let place = (container.0, flush << 1 | u64::from(*left));
                neighbours.insert(place, &keys[..]).map_err(failed)?;
            }
        }
        writing.commit().map_err(failed)?;
        for (container, _) in moves.keys() {
            self.prefetched.forget(container);
        }
        if let Some(filter) = &mut self.filter {
            filter.insert(&self.order)?;
        }
        self.order.clear();
        self.buffer.clear();
        Ok(())
    }
}

/// Creates an empty tree, whole under its name or not at all: a crash leaves at most a temporary file.
fn begin(dir: &dyn Dir, options: BTreeOptions) -> Result<Arc<dyn Disk>> {
    rename_over(dir, TMP, FILE, |disk| {
        let (db, _) = database(disk, options.cache_bytes)?;
        let writing = db.begin_write().map_err(failed)?;
        writing.open_table(ENTRIES).map_err(failed)?;
        if options.prefetch_bytes > 0 {
            writing.open_table(NEIGHBOURS).map_err(failed)?;
            writing.open_table(COUNTS).map_err(failed)?;
        }
        writing.commit().map_err(failed)?;
        db.close().map_err(failed)
    })?;
    dir.sync()?;
    Ok(dir.open_write(FILE)?)
}

fn database(disk: &Arc<dyn Disk>, cache_bytes: usize) -> Result<(Database, Arc<BackendTraffic>)> {
    let traffic = Arc::new(BackendTraffic::default());
    let backend = DiskBackend {
        disk: Arc::clone(disk),
        traffic: Arc::clone(&traffic),
    };
    let db = Database::builder()
        .set_cache_size(cache_bytes)
        .set_check_integrity_on_open(true)
        .create_with_backend(backend)
        .map_err(failed)?;
    Ok((db, traffic))
}

fn fingerprint(bytes: &[u8]) -> Fingerprint {
    Fingerprint(bytes.try_into().expect("32 bytes"))
}

impl OneCaller for BTree {
    fn lookup(&mut self, keys: &[Fingerprint], found: &mut [Option<Location>]) -> Result<()> {
        let (table, before) = (self.table()?, self.reads());
        for (key, slot) in keys.iter().zip(found) {
            let container = self.find(&table, key)?;
            *slot = container.map(|container| Location { container });
            self.stats.hits += u64::from(slot.is_some());
        }
        self.stats.lookups += keys.len() as u64;
        self.stats.lookup_reads += self.reads() - before;
        Ok(())
    }

    fn say(&mut self, key: &Fingerprint, said: Said) -> Result<()> {
        if self.buffer.insert(*key, said).is_none() {
            self.order.push(*key);
        }
        if self.order.len() >= self.options.buffer_records {
            self.flush(self.durability())
        } else {
            Ok(())
        }
    }

    /// Retires containers by one pass over the whole tree.
    fn retire(&mut self, containers: &[ContainerId]) -> Result<()> {
        self.flush(self.durability())?;
        let gone: HashSet<u64> = containers.iter().map(|container| container.0).collect();
        let writing = self.db.begin_write().map_err(failed)?;
        {
            let mut table = writing.open_table(ENTRIES).map_err(failed)?;
            table
                .retain(|_, container| !gone.contains(&container))
                .map_err(failed)?;
            self.entries = table.len().map_err(failed)?;
        }
        if self.keeps_neighbours {
            let mut neighbours = writing.open_table(NEIGHBOURS).map_err(failed)?;
            for container in &gone {
                neighbours
                    .retain_in((*container, 0)..=(*container, u64::MAX), |_, _| false)
                    .map_err(failed)?;
            }
        }
        writing.commit().map_err(failed)?;
        for container in containers {
            self.prefetched.forget(container);
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.flush(Durability::Immediate)
    }

    fn iterate(
        &mut self,
        visit: &mut dyn FnMut(Fingerprint, Location) -> Result<()>,
    ) -> Result<()> {
        self.flush(self.durability())?;
        for entry in self.table()?.iter().map_err(failed)? {
            let (key, container) = entry.map_err(failed)?;
            let container = ContainerId(container.value());
            visit(Fingerprint(*key.value()), Location { container })?;
        }
        Ok(())
    }

    fn ram_bytes(&self) -> usize {
        let buffer = self.buffer.capacity() * 8 / 7 * (size_of::<(Fingerprint, Said)>() + 1)
            + self.order.capacity() * 32;
        // the library fills its cache, and has beside it an entry for each page and the maps of free pages
        let regions = 1 + self.disk.len().unwrap_or(0) as usize / REGION_BYTES;
        size_of::<BTree>()
            + self.options.cache_bytes / 64 * 65
            + regions * REGION_MAPS_BYTES
            + buffer
            + self.filter.as_ref().map_or(0, |filter| filter.ram_bytes())
            + self.prefetched.ram_bytes()
    }

    fn stats(&self) -> IndexStats {
        IndexStats {
            entries: self.entries + self.buffer.len() as u64,
            disk_bytes: self.disk.len().unwrap_or(0),
            bytes_written: self.traffic.bytes_written.load(Relaxed),
            ..self.stats
        }
    }
}
