//! RocksDB and fjall: log-structured trees, which take keys in any order.

use std::time::{Duration, Instant};

use fjall::config::{
    BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, PartitioningPolicy, PinningPolicy,
};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use onefold_chunk::Fingerprint;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBCompactionStyle,
    Options, WriteBatch, WriteOptions,
};

use crate::What;
use crate::store::{Error, Store, divide, filter_bits, value};

/// How often merges are looked at.
const PAUSE: Duration = Duration::from_millis(50);

/// See the module.
pub struct Rocks {
    db: DB,
}

const FAMILY: &str = "default";

impl Rocks {
    /// Past the page cache, filters (ribbon) and indexes partitioned and in the block cache, no write-ahead log.
    pub fn open(what: &What, is_universal: bool) -> Result<Rocks, Error> {
        let (buffers, cache) = divide(what.budget_mib);
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(cache)?);
        blocks.set_block_size(4096);
        blocks.set_format_version(5);
        // a ribbon filter takes 30 % less than a Bloom filter as good
        blocks.set_ribbon_filter((filter_bits(cache, what.keys) / 0.7).min(10.0));
        blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        blocks.set_partition_filters(true);
        blocks.set_metadata_block_size(4096);
        blocks.set_cache_index_and_filter_blocks(true);
        blocks.set_pin_top_level_index_and_filter(true);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        options.set_use_direct_reads(true);
        options.set_use_direct_io_for_flush_and_compaction(true);
        options.set_write_buffer_size(buffers / 2);
        options.set_max_write_buffer_number(2);
        options.set_max_background_jobs(2);
        options.set_compression_type(rocksdb::DBCompressionType::None);
        options.set_max_open_files(-1);
        if is_universal {
            options.set_compaction_style(DBCompactionStyle::Universal);
        } else {
            options.set_level_compaction_dynamic_level_bytes(true);
        }
        let family = ColumnFamilyDescriptor::new(FAMILY, options.clone());
        let db = DB::open_cf_descriptors(&options, &what.dir, [family])?;
        Ok(Rocks { db })
    }
}

impl Store for Rocks {
    fn get(&self, keys: &[Fingerprint], found: &mut [Option<u64>]) -> Result<(), Error> {
        let family = self.db.cf_handle(FAMILY).ok_or("no column family")?;
        let keys = keys.iter().map(|key| &key.0);
        let values = self.db.batched_multi_get_cf(&family, keys, false);
        for (found, bytes) in found.iter_mut().zip(values) {
            *found = bytes?.map(|bytes| value(&bytes)).transpose()?;
        }
        Ok(())
    }

    fn insert(&self, entries: &[(Fingerprint, u64)]) -> Result<(), Error> {
        let mut batch = WriteBatch::default();
        for (key, container) in entries {
            batch.put(key.0, container.to_le_bytes());
        }
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        Ok(self.db.write_opt(batch, &options)?)
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(self.db.flush()?)
    }

    fn settle(&self, until: Instant) -> Result<(), Error> {
        let number = |name: &str| Ok::<_, Error>(self.db.property_int_value(name)?.unwrap_or(0));
        while Instant::now() < until
            && (number("rocksdb.num-running-compactions")? > 0
                || number("rocksdb.compaction-pending")? > 0)
        {
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// See the module.
pub struct Fjall {
    db: Database,
    keys: Keyspace,
}

impl Fjall {
    /// Filters of what fits, partitioned from the second level on, so that those of the last need not be in RAM all at
    /// once.
    pub fn open(what: &What) -> Result<Fjall, Error> {
        let (buffers, cache) = divide(what.budget_mib);
        let db = Database::builder(&what.dir)
            .cache_size(cache as u64)
            .max_journaling_size(64 << 20)
            .manual_journal_persist(true)
            .worker_threads(2)
            .open()?;
        let bits = filter_bits(cache, what.keys) as f32;
        let filter = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits));
        let options = move || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(buffers as u64 / 2)
                .filter_policy(FilterPolicy::all(filter))
                .filter_block_partitioning_policy(PartitioningPolicy::new([false, true]))
                .index_block_partitioning_policy(PartitioningPolicy::new([false, true]))
                .filter_block_pinning_policy(PinningPolicy::new([true, false]))
                .index_block_pinning_policy(PinningPolicy::new([true, false]))
        };
        let keys = db.keyspace("keys", options)?;
        Ok(Fjall { db, keys })
    }
}

impl Store for Fjall {
    fn get(&self, keys: &[Fingerprint], found: &mut [Option<u64>]) -> Result<(), Error> {
        for (key, found) in keys.iter().zip(found) {
            *found = self
                .keys
                .get(key.0)?
                .map(|bytes| value(&bytes))
                .transpose()?;
        }
        Ok(())
    }

    fn insert(&self, entries: &[(Fingerprint, u64)]) -> Result<(), Error> {
        let mut batch = self.db.batch();
        for (key, container) in entries {
            batch.insert(&self.keys, key.0, container.to_le_bytes());
        }
        Ok(batch.commit()?)
    }

    fn flush(&self) -> Result<(), Error> {
        self.keys.rotate_memtable_and_wait()?;
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }

    /// One compaction asks for the next: none may be seen for some time.
    fn settle(&self, until: Instant) -> Result<(), Error> {
        let mut quiet = 0;
        while Instant::now() < until && quiet < 5 {
            std::thread::sleep(PAUSE);
            let is_busy = self.db.outstanding_flushes() + self.db.active_compactions() > 0;
            quiet = if is_busy { 0 } else { quiet + 1 };
        }
        Ok(())
    }
}
