//! The seam of metadata backends: the twelve methods of the Dmdedup report (§3.2, Table 3.1 and the text around it).
//!
//! A backend holds two key-value stores (LBN → PBN, hash → PBN), the reference counts of blocks, and which blocks are
//! free. It knows nothing of data. The report's `init_meta` is each backend's own `open`.

use crate::{Finding, Pbn, Result};

/// Metadata store below the engine `dmdedup`. One thread calls it.
///
/// A backend that was opened again holds the stores of before: the n-th store that is created then is the n-th that was
/// created before, with all that is in it, where shape and size are the same.
pub trait MetadataBackend: Send {
    /// Report's `exit_meta`: makes durable what can be, and ends.
    ///
    /// # Errors
    /// The metadata device failed.
    fn close(self: Box<Self>) -> Result<()>;

    /// A store of which the keys are `0..keys`: LBN → PBN.
    ///
    /// # Errors
    /// The metadata device has no room, or failed.
    fn create_linear(&mut self, keys: u64) -> Result<StoreId>;

    /// A store of keys of `key_bytes` bytes, at most `keys_max` of them: hash → PBN.
    ///
    /// # Errors
    /// The metadata device has no room, or failed.
    fn create_sparse(&mut self, key_bytes: usize, keys_max: u64) -> Result<StoreId>;

    /// Maps `key` to `pbn`, in place of what it was mapped to.
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace) where a store is full; the metadata device failed.
    fn insert(&mut self, store: StoreId, key: Key<'_>, pbn: Pbn) -> Result<()>;

    /// Fills `pbns[i]` with what `keys[i]` is mapped to. A batch, so that a backend can read in parallel.
    ///
    /// # Errors
    /// The metadata device failed, or what it gave is damaged.
    fn lookup(&mut self, store: StoreId, keys: &[Key<'_>], pbns: &mut [Option<Pbn>]) -> Result<()>;

    /// Forgets `key`; nothing happens where it is not there.
    ///
    /// # Errors
    /// The metadata device failed.
    fn delete(&mut self, store: StoreId, key: Key<'_>) -> Result<()>;

    /// Optional: visits every key, in any order. Without it there is no collection of garbage.
    ///
    /// # Errors
    /// The metadata device failed; what `visit` gave.
    fn iterate(
        &mut self,
        store: StoreId,
        visit: &mut dyn FnMut(Key<'_>, Pbn) -> Result<()>,
    ) -> Result<Supported>;

    /// A free block, which stays the caller's until its count is raised and falls to 0 again; `None` where no other is
    /// free. Never a block that was freed since the last flush: after a crash its old content may be mapped again, and
    /// readers may still be at it.
    ///
    /// # Errors
    /// The metadata device failed.
    fn alloc_block(&mut self) -> Result<Option<Pbn>>;

    /// Raises the block's count and returns it.
    ///
    /// # Errors
    /// The metadata device failed.
    fn inc_ref(&mut self, pbn: Pbn) -> Result<u32>;

    /// Lowers the block's count and returns it. At 0 the block is free.
    ///
    /// # Errors
    /// The metadata device failed.
    fn dec_ref(&mut self, pbn: Pbn) -> Result<u32>;

    /// The block's count. Not of the report's twelve; a backend that has counts at hand need not change them for it.
    ///
    /// # Errors
    /// The metadata device failed; the block is free, where that is an error.
    fn ref_count(&mut self, pbn: Pbn) -> Result<u32> {
        self.inc_ref(pbn)?;
        self.dec_ref(pbn)
    }

    /// Optional: makes all of the above durable. Blocks that were freed before are free to be allocated then; a backend
    /// that keeps nothing across a crash may put that off while others are left.
    ///
    /// # Errors
    /// The metadata device failed: the depot takes no writes from then on.
    fn flush(&mut self) -> Result<Durability>;

    /// Number of inserts, deletions, raised and lowered counts that are sure to find room before the next flush. Not of
    /// the report's twelve: a backend that keeps pages until a flush frees them has fewer than it has pages.
    ///
    /// # Errors
    /// The metadata device failed.
    fn changes_left(&mut self) -> Result<u64> {
        Ok(u64::MAX)
    }

    /// Makes durable what can be, whatever it costs, and frees all blocks that were freed before. Not of the report's
    /// twelve: `inram` writes its file here (report §3.6.1, "at any time"), for others it is a flush.
    ///
    /// # Errors
    /// As of [`flush`](MetadataBackend::flush).
    fn save(&mut self) -> Result<Durability> {
        self.flush()
    }

    /// Looks whether what is stored is what was written, and returns what is amiss; all is kept as it is. Not of the
    /// report's twelve. A backend that cannot tell finds nothing.
    ///
    /// # Errors
    /// The metadata device failed. Damage is no error.
    fn check(&mut self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    /// Calls by method, page reads and writes, RAM, blocks.
    fn stats(&self) -> BackendStats;
}

/// A store of a backend, as `create_linear` or `create_sparse` gave it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StoreId(pub u32);

/// A key of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key<'a> {
    /// Key of a linear store.
    Linear(u64),
    /// Key of a sparse one, as many bytes as it was created with.
    Sparse(&'a [u8]),
}

/// Whether a backend has an optional method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Supported {
    /// The backend did what was asked.
    Yes,
    /// The backend has no such method.
    No,
}

/// Result of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Everything before survives a crash.
    Durable,
    /// The backend keeps nothing across a crash.
    None,
}

/// Counters of a backend, and sizes of what it holds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BackendStats {
    /// Blocks of the data device.
    pub blocks: u64,
    /// Blocks that can be allocated now.
    pub blocks_free: u64,
    /// Those that were freed, and can be allocated after a flush.
    pub blocks_waiting: u64,
    /// Entries of linear and sparse stores.
    pub linear_entries: u64,
    /// Entries of sparse stores.
    pub sparse_entries: u64,
    /// Pages of metadata read.
    pub page_reads: u64,
    /// Pages of metadata written.
    pub page_writes: u64,
    /// Bytes of RAM.
    pub ram_bytes: u64,
    /// Calls by method.
    pub calls: Vec<(&'static str, u64)>,
}

/// Calls of a backend by method.
#[derive(Default)]
pub(crate) struct Calls {
    pub inserts: u64,
    pub lookups: u64,
    pub deletes: u64,
    pub allocations: u64,
    pub raises: u64,
    pub lowers: u64,
    pub flushes: u64,
    pub saves: u64,
}

impl Calls {
    /// With the methods' names.
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("insert", self.inserts),
            ("lookup", self.lookups),
            ("delete", self.deletes),
            ("alloc_block", self.allocations),
            ("inc_ref", self.raises),
            ("dec_ref", self.lowers),
            ("flush", self.flushes),
            ("save", self.saves),
        ]
    }
}
