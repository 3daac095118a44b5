//! What a front counts. Counters are since it was made.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Options;

/// What a front did and holds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FrontStats {
    /// Read requests, and their bytes.
    pub reads: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes that were written.
    pub write_bytes: u64,
    /// Partial chunks that had to be read before they could be written ("reads on writes").
    pub reads_on_writes: u64,
    /// Discard requests.
    pub discards: u64,
    /// Requests to write zeros.
    pub zeroings: u64,
    /// Flushes, without writes that ask for durability.
    pub flushes: u64,
    /// Commits of the engine for flushes and such writes.
    pub commits: u64,
    /// Batches that were hashed.
    pub batches: u64,
    /// Chunks in them.
    pub batch_chunks: u64,
    /// Bytes in staging.
    pub staged_bytes: u64,
    /// Chunks and discards on their way to the engine.
    pub queued: u64,
    /// What the front failed with, if it did: it takes no writes.
    pub failure: Option<String>,
}

/// The counters themselves.
#[derive(Default)]
pub(super) struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    reads_on_writes: AtomicU64,
    discards: AtomicU64,
    zeroings: AtomicU64,
    flushes: AtomicU64,
    commits: AtomicU64,
    batches: AtomicU64,
    batch_chunks: AtomicU64,
}

impl Counters {
    pub fn now(&self, options: &Options) -> u64 {
        options.clock.as_ref().map_or(0, |clock| clock())
    }

    pub fn read_done(&self, bytes: u64, _started: u64, _options: &Options) {
        add(&self.reads, 1);
        add(&self.read_bytes, bytes);
    }

    pub fn write(&self, bytes: u64) {
        add(&self.writes, 1);
        add(&self.write_bytes, bytes);
    }

    pub fn read_on_write(&self, chunks: u64) {
        add(&self.reads_on_writes, chunks);
    }

    pub fn discard(&self) {
        add(&self.discards, 1);
    }

    pub fn zeroing(&self) {
        add(&self.zeroings, 1);
    }

    pub fn flushes(&self, count: u64) {
        add(&self.flushes, count);
    }

    pub fn commits(&self, count: u64) {
        add(&self.commits, count);
    }

    pub fn batch(&self, chunks: u64) {
        add(&self.batches, 1);
        add(&self.batch_chunks, chunks);
    }

    pub fn read(&self) -> FrontStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FrontStats {
            reads: get(&self.reads),
            read_bytes: get(&self.read_bytes),
            writes: get(&self.writes),
            write_bytes: get(&self.write_bytes),
            reads_on_writes: get(&self.reads_on_writes),
            discards: get(&self.discards),
            zeroings: get(&self.zeroings),
            flushes: get(&self.flushes),
            commits: get(&self.commits),
            batches: get(&self.batches),
            batch_chunks: get(&self.batch_chunks),
            ..FrontStats::default()
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
