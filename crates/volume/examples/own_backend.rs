//! A metadata backend of one's own: twelve methods over maps of the standard library. The suite says whether it is one;
//! then it stands behind the engine and the front, and is a block device.
//!
//! ```text
//! cargo run -p onefold-volume --example own_backend
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use onefold_io::{Disk, MemDisk};
use onefold_volume::conformance::{BackendTrial, Caller, backend};
use onefold_volume::dmdedup::{DataArea, Dmdedup};
use onefold_volume::front::{Front, Options};
use onefold_volume::{
    BackendStats, Durability, Error, HeadId, Key, MetadataBackend, Pbn, Result, StoreId, Supported,
};

/// Everything in maps; nothing is kept.
struct Maps {
    /// Keys of both kinds as bytes, big-endian where they are numbers.
    stores: Vec<BTreeMap<Vec<u8>, Pbn>>,
    counts: BTreeMap<Pbn, u32>,
    /// Freed since the last flush.
    waiting: Vec<Pbn>,
    free: Vec<Pbn>,
    blocks: u64,
}

impl Maps {
    fn new(blocks: u64) -> Self {
        Self {
            stores: Vec::new(),
            counts: BTreeMap::new(),
            waiting: Vec::new(),
            free: (0..blocks).rev().map(Pbn).collect(),
            blocks,
        }
    }

    fn create(&mut self) -> StoreId {
        self.stores.push(BTreeMap::new());
        StoreId(self.stores.len() as u32 - 1)
    }

    fn store(&mut self, store: StoreId) -> &mut BTreeMap<Vec<u8>, Pbn> {
        &mut self.stores[store.0 as usize]
    }
}

fn bytes(key: Key<'_>) -> Vec<u8> {
    match key {
        Key::Linear(key) => key.to_be_bytes().into(),
        Key::Sparse(key) => key.into(),
    }
}

impl MetadataBackend for Maps {
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    fn create_linear(&mut self, _keys: u64) -> Result<StoreId> {
        Ok(self.create())
    }

    fn create_sparse(&mut self, _key_bytes: usize, _keys_max: u64) -> Result<StoreId> {
        Ok(self.create())
    }

    fn insert(&mut self, store: StoreId, key: Key<'_>, pbn: Pbn) -> Result<()> {
        self.store(store).insert(bytes(key), pbn);
        Ok(())
    }

    fn lookup(&mut self, store: StoreId, keys: &[Key<'_>], pbns: &mut [Option<Pbn>]) -> Result<()> {
        let store = self.store(store);
        for (key, pbn) in keys.iter().zip(pbns) {
            *pbn = store.get(&bytes(*key)).copied();
        }
        Ok(())
    }

    fn delete(&mut self, store: StoreId, key: Key<'_>) -> Result<()> {
        self.store(store).remove(&bytes(key));
        Ok(())
    }

    fn iterate(
        &mut self,
        store: StoreId,
        visit: &mut dyn FnMut(Key<'_>, Pbn) -> Result<()>,
    ) -> Result<Supported> {
        for (key, pbn) in self.store(store) {
            match key.first_chunk() {
                Some(number) if key.len() == 8 => {
                    visit(Key::Linear(u64::from_be_bytes(*number)), *pbn)?;
                }
                _ => visit(Key::Sparse(key), *pbn)?,
            }
        }
        Ok(Supported::Yes)
    }

    fn alloc_block(&mut self) -> Result<Option<Pbn>> {
        Ok(self.free.pop())
    }

    fn inc_ref(&mut self, pbn: Pbn) -> Result<u32> {
        let count = self.counts.entry(pbn).or_default();
        *count += 1;
        Ok(*count)
    }

    fn dec_ref(&mut self, pbn: Pbn) -> Result<u32> {
        let count = self.counts.get_mut(&pbn).ok_or_else(|| Error::Invalid {
            what: format!("block {} has no reference", pbn.0),
        })?;
        *count -= 1;
        let left = *count;
        if left == 0 {
            self.counts.remove(&pbn);
            self.waiting.push(pbn);
        }
        Ok(left)
    }

    fn flush(&mut self) -> Result<Durability> {
        self.free.append(&mut self.waiting);
        Ok(Durability::None)
    }

    fn stats(&self) -> BackendStats {
        let entries = |is_linear: bool| {
            let keys = self.stores.iter().flat_map(BTreeMap::keys);
            keys.filter(|key| (key.len() == 8) == is_linear).count() as u64
        };
        BackendStats {
            blocks: self.blocks,
            blocks_free: self.free.len() as u64,
            blocks_waiting: self.waiting.len() as u64,
            linear_entries: entries(true),
            sparse_entries: entries(false),
            ..BackendStats::default()
        }
    }
}

fn main() -> Result<()> {
    let trial = BackendTrial {
        seed: 1,
        calls: 5000,
        blocks: 100,
        keys: 300,
        is_kept: false,
    };
    backend(trial, &mut |_folder, blocks| {
        Ok(Box::new(Maps::new(blocks)))
    });
    println!("the suite of backends finds nothing wrong");

    let (chunk_bytes, lbns, blocks) = (4096, 1000, 200);
    let disk = MemDisk::new();
    disk.set_len(blocks * u64::from(chunk_bytes))?;
    let data = DataArea::new(Arc::new(disk), 0, chunk_bytes, blocks);
    let engine = Dmdedup::open(Box::new(Maps::new(blocks)), data, lbns)?;
    let front = Front::new(Box::new(engine), chunk_bytes, [0; 32], Options::default());
    let bytes = lbns * u64::from(chunk_bytes);
    let device = Caller(front.device(HeadId(0), "main", bytes, true));
    for n in 0..1000 {
        device.write(n * 4096, &[(n % 50) as u8; 4096])?;
    }
    device.flush()?;
    let (stats, _) = front.engine_stats()?;
    println!(
        "{} chunks are mapped, {} are stored",
        stats.mapped_lbns, stats.stored_chunks
    );
    drop(device);
    front.close()
}
