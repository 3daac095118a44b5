//! redb and LMDB: B-trees, which change a page at a random place for each key. They are filled in the order of keys.

use std::time::Instant;

use heed::types::Bytes;
use heed::{Env, EnvFlags, EnvOpenOptions, WithoutTls};
use onefold_chunk::Fingerprint;
use redb::{Builder, Database, Durability, ReadableDatabase, TableDefinition};

use crate::What;
use crate::store::{Error, Store, value};

const TABLE: TableDefinition<'_, [u8; 32], u64> = TableDefinition::new("keys");
/// Address space of the memory map.
const MAP_BYTES: usize = 64 << 30;

/// See the module.
pub struct Redb {
    db: Database,
}

impl Redb {
    /// The whole budget is its cache.
    pub fn open(what: &What) -> Result<Redb, Error> {
        let db = Builder::new()
            .set_cache_size(what.budget_mib << 20)
            .create(what.dir.join("redb"))?;
        let write = db.begin_write()?;
        write.open_table(TABLE)?;
        write.commit()?;
        Ok(Redb { db })
    }
}

impl Store for Redb {
    fn get(&self, keys: &[Fingerprint], found: &mut [Option<u64>]) -> Result<(), Error> {
        let table = self.db.begin_read()?.open_table(TABLE)?;
        for (key, found) in keys.iter().zip(found) {
            *found = table.get(key.0)?.map(|value| value.value());
        }
        Ok(())
    }

    fn insert(&self, entries: &[(Fingerprint, u64)]) -> Result<(), Error> {
        let mut write = self.db.begin_write()?;
        write.set_durability(Durability::None)?;
        {
            let mut table = write.open_table(TABLE)?;
            for (key, container) in entries {
                table.insert(key.0, container)?;
            }
        }
        Ok(write.commit()?)
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(self.db.begin_write()?.commit()?)
    }

    /// A tree has nothing to merge.
    fn settle(&self, _: Instant) -> Result<(), Error> {
        Ok(())
    }
}

/// See the module.
pub struct Lmdb {
    env: Env<WithoutTls>,
    keys: heed::Database<Bytes, Bytes>,
}

impl Lmdb {
    /// Its cache is the page cache: whoever starts this limits it.
    pub fn open(what: &What) -> Result<Lmdb, Error> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(MAP_BYTES).max_readers(1024);
        // SAFETY: no other process changes the file while it is mapped, and what a crash leaves of it is thrown away.
        let env = unsafe {
            options.flags(EnvFlags::NO_SYNC | EnvFlags::NO_READ_AHEAD);
            options.open(&what.dir)?
        };
        let mut write = env.write_txn()?;
        let keys = env.create_database(&mut write, None)?;
        write.commit()?;
        Ok(Lmdb { env, keys })
    }
}

impl Store for Lmdb {
    fn get(&self, keys: &[Fingerprint], found: &mut [Option<u64>]) -> Result<(), Error> {
        let read = self.env.read_txn()?;
        for (key, found) in keys.iter().zip(found) {
            *found = self.keys.get(&read, &key.0)?.map(value).transpose()?;
        }
        Ok(())
    }

    fn insert(&self, entries: &[(Fingerprint, u64)]) -> Result<(), Error> {
        let mut write = self.env.write_txn()?;
        for (key, container) in entries {
            self.keys
                .put(&mut write, &key.0, &container.to_le_bytes())?;
        }
        Ok(write.commit()?)
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(self.env.force_sync()?)
    }

    /// A tree has nothing to merge.
    fn settle(&self, _: Instant) -> Result<(), Error> {
        Ok(())
    }
}
