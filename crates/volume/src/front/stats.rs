//! Counters of a front, since it was made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::state::FrontShared;
use crate::{Completion, Op};

/// Counters of a front, and sizes of what it holds.
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
    /// Chunks that were not deduplicated because of a hint.
    pub nodedup: NodedupCounts,
    /// Chunks that were read with the hint PREFETCH.
    pub prefetch_reads: u64,
    /// Ranges with hints.
    pub hinted_ranges: u64,
    /// Nanoseconds from request to answer, where there is a clock.
    pub latencies: Latencies,
    /// Bytes in staging.
    pub staged_bytes: u64,
    /// Chunks and discards on their way to the engine.
    pub queued: u64,
    /// Error that the front failed with, if it did: then it takes no writes.
    pub failure: Option<String>,
}

/// Chunks that were not deduplicated because of a hint, by where the hint came from.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodedupCounts {
    /// The request had it: by its transport, its export or its volume.
    pub by_request: u64,
    /// The chunk lay in a hinted range.
    pub by_range: u64,
    /// Metadata of a file system.
    pub as_metadata: u64,
}

/// How long requests took, by kind.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Latencies {
    /// Times of reads.
    pub read: Histogram,
    /// Times of writes and zeroing.
    pub write: Histogram,
    /// Times of discards.
    pub discard: Histogram,
    /// Times of flushes.
    pub flush: Histogram,
}

/// Counts by powers of two: the n-th of values from 2^n on, below 2^(n+1); the first also of 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram(pub [u64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

/// The last counts all values from 2^39 on: nine minutes.
const BUCKETS: usize = 40;

impl Histogram {
    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// A value that this share of all values does not exceed, within a factor of two; 0 where there is none.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (at, count) in self.0.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                return (2 << at) - 1;
            }
        }
        0
    }
}

/// The counters themselves.
#[derive(Default)]
pub(super) struct FrontCounters {
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
    nodedup_by_request: AtomicU64,
    nodedup_by_range: AtomicU64,
    nodedup_as_metadata: AtomicU64,
    prefetch_reads: AtomicU64,
    latencies: [Buckets; 4],
}

struct Buckets([AtomicU64; BUCKETS]);

impl Default for Buckets {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl FrontShared {
    /// A completion that counts how long it took, where there is a clock.
    pub fn measured(self: &Arc<Self>, op: Op, completion: Completion) -> Completion {
        let Some(clock) = &self.options.clock else {
            return completion;
        };
        let (started, shared) = (clock(), Arc::clone(self));
        Completion::new(move |result| {
            if let Some(clock) = &shared.options.clock {
                let took = clock().saturating_sub(started);
                shared.counters.latency(op, took);
            }
            completion.done(result);
        })
    }
}

impl FrontCounters {
    fn latency(&self, op: Op, nanoseconds: u64) {
        let kind = match op {
            Op::Read => 0,
            Op::Write | Op::WriteZeroes => 1,
            Op::Discard => 2,
            Op::Flush => 3,
        };
        let bucket = nanoseconds.checked_ilog2().unwrap_or(0) as usize;
        add(&self.latencies[kind].0[bucket.min(BUCKETS - 1)], 1);
    }

    pub fn read_done(&self, bytes: u64) {
        add(&self.reads, 1);
        add(&self.read_bytes, bytes);
    }

    /// Reads so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
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

    pub fn nodedup(&self, chunks: &NodedupCounts) {
        add(&self.nodedup_by_request, chunks.by_request);
        add(&self.nodedup_by_range, chunks.by_range);
        add(&self.nodedup_as_metadata, chunks.as_metadata);
    }

    pub fn prefetch_read(&self, chunks: u64) {
        add(&self.prefetch_reads, chunks);
    }

    pub fn read(&self) -> FrontStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let histogram =
            |buckets: &Buckets| Histogram(std::array::from_fn(|at| get(&buckets.0[at])));
        let [read, write, discard, flush] = &self.latencies;
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
            nodedup: NodedupCounts {
                by_request: get(&self.nodedup_by_request),
                by_range: get(&self.nodedup_by_range),
                as_metadata: get(&self.nodedup_as_metadata),
            },
            prefetch_reads: get(&self.prefetch_reads),
            latencies: Latencies {
                read: histogram(read),
                write: histogram(write),
                discard: histogram(discard),
                flush: histogram(flush),
            },
            ..FrontStats::default()
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
