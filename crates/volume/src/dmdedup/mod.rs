//! The engine `dmdedup`: the write path of the Dmdedup report (chapter 3) over any [`MetadataBackend`].
//!
//! Reference counts are the report's: the hash index holds one reference to a block, each LBN another. So 1 is a block
//! that only a hash names (garbage, unless the content comes again), 0 a free one. A block without deduplication has no
//! hash and the count 1.
//!
//! Invariants:
//! 1. A hash or an LBN names a block only after its data was written. A failed write names nothing.
//! 2. Data is synced before the metadata that names it is flushed.
//! 3. A block's new references are counted before old ones are dropped, so no count falls to 0 in between.
//! 4. A block that was read with the hint PREFETCH is remembered no longer than it is mapped or named by a hash.
//! 5. Readers hold the gate from lookup to the end of their read. Blocks that were freed become free to be allocated
//!    only while nobody holds it.

mod collect;
mod data;
mod discard;
mod faults;
mod lookup;
mod read;
mod room;
#[cfg(test)]
mod tests;
mod transaction;
mod verify;
mod write;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock};

pub use self::data::DataArea;
use self::room::BlockRoom;
use self::transaction::Transactions;
use self::write::{HashKey, InFlight};
use crate::hints::Prefetched;
use crate::side_threads::SideThreads;
use crate::{
    Buffer, ChunkReader, Collected, Effort, Engine, EngineStats, Error, FreeSpace, HashedChunk,
    HeadId, MetadataBackend, Pbn, Result, Sequence, StoreId,
};

/// Bytes of a fingerprint that are the hash index's key: with 128 bits, two of 2^34 different chunks (64 TiB) are alike
/// with a chance below 2^-60 (report §3.4).
pub const HASH_KEY_BYTES: usize = 16;

/// The report's engine.
pub struct Dmdedup {
    shared: Arc<Shared>,
    sequence: u64,
    /// Threads that write data, where there are any.
    writers: SideThreads,
    /// Batches of which the data is being written, the oldest first.
    in_flight: VecDeque<InFlight>,
    /// Contents that are new in batches that have not settled.
    pending: HashMap<HashKey, Pbn>,
    room: BlockRoom,
    transactions: Transactions,
    /// Memory in which neighbours are put side by side.
    memories: Vec<Buffer>,
    counts: Counts,
    /// Blocks that only a hash names.
    garbage: u64,
    /// Whether something was written or discarded since the last commit.
    is_changed: bool,
}

/// State that the writer and its readers share.
struct Shared {
    /// `None` once the engine is closed.
    backend: Mutex<Option<Box<dyn MetadataBackend>>>,
    data: DataArea,
    lbns: StoreId,
    hashes: StoreId,
    lbn_count: u64,
    gate: RwLock<()>,
    /// Blocks that were read with the hint PREFETCH. Changed with the backend locked.
    prefetched: Prefetched<Pbn>,
}

/// Since the engine was opened.
#[derive(Default)]
struct Counts {
    unique: u64,
    duplicate: u64,
    equal: u64,
    nodedup: u64,
    prefetched: u64,
    overwrites: u64,
    new: u64,
    zeros: u64,
    discards: u64,
    data_writes: u64,
    collections: u64,
}

impl Dmdedup {
    /// An engine for one volume of `lbns` chunks, with its data in `data` and its metadata in `backend`.
    ///
    /// # Errors
    /// The backend's; [`Error::Unsupported`] where it holds stores of another size.
    pub fn open(mut backend: Box<dyn MetadataBackend>, data: DataArea, lbns: u64) -> Result<Self> {
        let lbn_store = backend.create_linear(lbns)?;
        let hash_store = backend.create_sparse(HASH_KEY_BYTES, data.blocks())?;
        let shared = Shared {
            backend: Mutex::new(Some(backend)),
            data,
            lbns: lbn_store,
            hashes: hash_store,
            lbn_count: lbns,
            gate: RwLock::new(()),
            prefetched: Prefetched::default(),
        };
        let known = shared.garbage_and_end()?;
        Ok(Self {
            room: BlockRoom::new(&shared.data, known.end)?,
            shared: Arc::new(shared),
            sequence: 0,
            transactions: Transactions::default(),
            writers: SideThreads::none(),
            in_flight: VecDeque::new(),
            pending: HashMap::new(),
            memories: Vec::new(),
            counts: Counts::default(),
            garbage: known.garbage,
            is_changed: false,
        })
    }

    /// Data is written by threads, while the next batch is put together.
    #[must_use]
    pub fn write_behind(mut self, threads: usize) -> Self {
        self.writers = SideThreads::new(threads, write::IN_FLIGHT_MAX);
        self
    }

    fn backend(&self) -> Result<Backend<'_>> {
        self.shared.backend()
    }

    /// Data, then metadata.
    fn commit_changes(&mut self) -> Result<()> {
        self.settle_all()?;
        self.end_transaction()?;
        self.is_changed = false;
        Ok(())
    }
}

/// The backend, locked.
struct Backend<'a>(MutexGuard<'a, Option<Box<dyn MetadataBackend>>>);

impl std::ops::Deref for Backend<'_> {
    type Target = dyn MetadataBackend;

    fn deref(&self) -> &Self::Target {
        &**self.0.as_ref().expect("it was there when it was locked")
    }
}

impl std::ops::DerefMut for Backend<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut **self.0.as_mut().expect("it was there when it was locked")
    }
}

impl Shared {
    /// # Errors
    /// [`Error::Closing`] once the engine is closed.
    fn backend(&self) -> Result<Backend<'_>> {
        let guard = self.backend.lock();
        if guard.is_some() {
            Ok(Backend(guard))
        } else {
            Err(Error::Closing)
        }
    }

    /// Returns when all reads that began before have ended.
    fn wait_for_readers(&self) {
        drop(self.gate.write());
    }

    /// # Errors
    /// [`Error::Invalid`] beyond the end.
    fn check(&self, lbns: &Range<u64>) -> Result<()> {
        if lbns.start <= lbns.end && lbns.end <= self.lbn_count {
            Ok(())
        } else {
            Err(Error::Invalid {
                what: format!(
                    "chunks {} to {} lie beyond the volume's {}",
                    lbns.start, lbns.end, self.lbn_count
                ),
            })
        }
    }
}

impl Engine for Dmdedup {
    fn write(&mut self, chunks: &[HashedChunk<'_>]) -> Result<Vec<usize>> {
        self.write_batch(chunks)
    }

    fn unsettled(&self) -> usize {
        self.in_flight.len()
    }

    fn discard(&mut self, _head: HeadId, lbns: Range<u64>) -> Result<()> {
        self.settle_all()?;
        self.discard_range(lbns)
    }

    fn write_out(&mut self) -> Result<Sequence> {
        self.settle_all()?;
        self.room.ask_again(&self.shared.data)?;
        self.sequence += 1;
        Ok(Sequence(self.sequence))
    }

    fn commit(&mut self) -> Result<()> {
        if self.is_changed {
            self.commit_changes()
        } else {
            Ok(())
        }
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.settle_all()?;
        self.shared.data.sync()?;
        self.shared.wait_for_readers();
        self.backend()?.save()?;
        self.is_changed = false;
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.checkpoint()?;
        match self.shared.backend.lock().take() {
            Some(backend) => backend.close(),
            None => Ok(()),
        }
    }

    fn reader(&self) -> Arc<dyn ChunkReader> {
        Arc::clone(&self.shared) as Arc<dyn ChunkReader>
    }

    fn collect(&mut self, effort: Effort) -> Result<Collected> {
        self.settle_all()?;
        self.collect_garbage(effort)
    }

    fn free_space(&self) -> FreeSpace {
        let Ok(backend) = self.backend() else {
            return FreeSpace::default();
        };
        let stats = backend.stats();
        // A commit makes those that wait free, and a write that needs them commits.
        let missing = self.room.missing(&self.shared.data);
        let free = (stats.blocks_free + stats.blocks_waiting).saturating_sub(missing);
        FreeSpace {
            total: stats.blocks,
            free,
            reclaimable: self.garbage,
            fresh: 0,
            unseen: 0,
            reserved: 0,
            claimable_data: free,
            claimable_metadata: free,
            missing,
        }
    }

    fn stats(&self) -> EngineStats {
        let backend = self.backend().map(|backend| backend.stats());
        let backend = backend.unwrap_or_default();
        let counts = &self.counts;
        EngineStats {
            unique_writes: counts.unique,
            duplicate_writes: counts.duplicate,
            overwrites: counts.overwrites,
            new_writes: counts.new,
            zero_writes: counts.zeros,
            discards: counts.discards,
            mapped_lbns: backend.linear_entries,
            stored_chunks: backend.blocks - backend.blocks_free - backend.blocks_waiting,
            hash_entries: backend.sparse_entries,
            ram_bytes: vec![
                ("metadata", backend.ram_bytes),
                (
                    "gather",
                    self.memories.iter().map(|memory| memory.len() as u64).sum(),
                ),
                ("prefetched", self.shared.prefetched.ram_bytes()),
            ],
            counters: [
                ("equal_overwrites", counts.equal),
                ("nodedup_writes", counts.nodedup),
                ("prefetch_hits", counts.prefetched),
                ("prefetched_chunks", self.shared.prefetched.len() as u64),
                ("data_writes", counts.data_writes),
                ("collections", counts.collections),
                ("garbage_chunks", self.garbage),
                ("metadata_page_reads", backend.page_reads),
                ("metadata_page_writes", backend.page_writes),
            ]
            .into_iter()
            .chain(backend.calls)
            .collect(),
        }
    }
}
