//! Work behind a writer: blocks are compressed and sealed, whole containers stored and made known to the index.
//!
//! Invariant: every queue is bounded; after a failure the queues are emptied, so that nobody waits for ever; buffers
//! go round.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use onefold_io::{Gate, GatePass};
use parking_lot::Mutex;

use crate::container::block::BLOCK_HEADER_BYTES;
use crate::container::building::{Building, ChunkList, Finished};
use crate::container::compression::{Compression, Compressor};
use crate::container::{self, StreamKind};
use crate::objects::local_cache::Copied;
use crate::session::SessionState;
use crate::{Error, Result};

#[derive(Default)]
enum SealingFailure {
    #[default]
    None,
    Fresh(Error),
    Told,
}

/// Room in a block's buffer for the chunk lengths and the seal, so that they are added without a copy.
pub const BLOCK_TAIL_BYTES: usize = 16 << 10;

/// Usual blocks that may be under way however few threads there are: two chunks of 3 MiB, or one that is longer.
const UNITS_MIN: usize = 6;

/// Buffers of long chunks that are kept for the next.
const LONG_BLOCKS_KEPT: usize = 2;

/// Buffers whose content was used, kept for the next block and the next container: their pages are touched once.
#[derive(Clone)]
pub struct SpareBuffers {
    blocks: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
    /// For chunks that are blocks alone. Apart, so that a usual block does not come to lie in one of these.
    long_blocks: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
    containers: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
    block_bytes: usize,
    container_bytes: usize,
}

impl SpareBuffers {
    fn new(session: &SessionState, stream: StreamKind, threads: usize) -> Self {
        let block_bytes = session.block_bytes(stream) + BLOCK_TAIL_BYTES;
        let puts_at_once = session.ways().puts_at_once;
        Self {
            blocks: bounded(2 * threads + 1),
            long_blocks: bounded(LONG_BLOCKS_KEPT),
            containers: bounded(puts_at_once),
            block_bytes,
            // A container is seen to be full when it is; blocks that are under way still come.
            container_bytes: session.options().container_bytes + (2 * threads + 3) * block_bytes,
        }
    }

    /// Returns an empty buffer for the raw bytes of a block that begins with a chunk of `chunk_bytes`. Where no buffer
    /// for blocks of this kind is kept, those of the other kind go: the present blocks have the RAM.
    pub fn block(&self, chunk_bytes: usize) -> Vec<u8> {
        let bytes = chunk_bytes + BLOCK_TAIL_BYTES;
        let is_long = bytes > self.block_bytes;
        let (own, other) = if is_long {
            (&self.long_blocks.1, &self.blocks.1)
        } else {
            (&self.blocks.1, &self.long_blocks.1)
        };
        let mut block = own.try_recv().unwrap_or_else(|_| {
            other.try_iter().for_each(drop);
            Vec::new()
        });
        // Growing behind the chunk, for its seal, would double it.
        block.reserve_exact(bytes.max(self.block_bytes));
        block
    }

    /// An empty buffer for a container.
    pub fn container(&self) -> Vec<u8> {
        let spare = self.containers.1.try_recv();
        spare.unwrap_or_else(|_| Vec::with_capacity(self.container_bytes))
    }

    /// Keeps a block's buffer, unless there are enough or it is a small one.
    fn keep_block(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let (pool, bytes) = match buffer.capacity() {
            bytes if bytes >= 2 * self.block_bytes => (&self.long_blocks.0, bytes),
            bytes => (&self.blocks.0, bytes),
        };
        if bytes >= self.block_bytes {
            drop(pool.try_send(buffer));
        }
    }

    fn keep_container(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        drop(self.containers.0.try_send(buffer));
    }
}

/// Whether chunks are worth compressing; those that are not lie in blocks of their own, which are stored as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// The chunks may be compressible.
    Compress,
    /// The chunks are not compressible: no time is spent on trying.
    AsIs,
}

/// A block to compress and seal.
pub struct BlockJob {
    pub building: Arc<Building>,
    pub number: u32,
    pub raw: Vec<u8>,
    pub chunks: ChunkList,
    pub packing: Packing,
}

/// The threads behind a writer: some compress and seal blocks, some store whole containers. With one thread, or
/// where the system has no more, all of it runs inline.
pub struct Sealing {
    session: Arc<SessionState>,
    stream: StreamKind,
    /// Bytes stored so far, and containers.
    pub stored: Arc<Mutex<(u64, u64)>>,
    pub spares: SpareBuffers,
    failure: Arc<Mutex<SealingFailure>>,
    inline: Option<Compressor>,
    /// For raw bytes of blocks, in units of a usual block.
    raw_blocks: Arc<Gate>,
    /// For containers from their first block until they are stored.
    containers: Arc<Gate>,
    jobs: Option<Sender<(BlockJob, GatePass)>>,
    finished: Option<Sender<Finished>>,
    threads: Vec<JoinHandle<()>>,
}

impl Sealing {
    pub fn start(session: &Arc<SessionState>, stream: StreamKind, threads: usize) -> Result<Self> {
        // Where compressing takes long anyway and blocks are large, nothing waits: RAM is worth more.
        let waiting = match session.options().compression {
            Compression::Max => 0,
            _ => threads,
        };
        let units = (waiting + threads).max(UNITS_MIN);
        let mut sealing = Self {
            raw_blocks: Arc::new(Gate::new(units)),
            // Those that are stored, and one that blocks are added to. Another one, whole and waiting, was new memory
            // each time: a third of all page faults, and 15 MiB, for no time that could be measured.
            containers: Arc::new(Gate::new(session.ways().puts_at_once + 1)),
            session: Arc::clone(session),
            stream,
            stored: Arc::default(),
            failure: Arc::default(),
            spares: SpareBuffers::new(session, stream, threads),
            inline: None,
            jobs: None,
            finished: None,
            threads: Vec::new(),
        };
        if threads > 1 {
            sealing.start_threads(waiting, threads)?;
        }
        if sealing.threads.is_empty() {
            sealing.inline = Some(Compressor::new(session.options().compression, stream)?);
        }
        Ok(sealing)
    }

    /// Starts as many as the system has, up to `threads` and as many that store as the place takes at once; none where
    /// one of either kind cannot be.
    fn start_threads(&mut self, waiting: usize, threads: usize) -> Result<()> {
        let (job_sender, jobs) = bounded(waiting);
        let puts_at_once = self.session.ways().puts_at_once;
        let (finished_sender, finished) = bounded(puts_at_once + 1);
        let mut storing = Vec::new();
        for _ in 0..puts_at_once {
            let (session, stored, failure) = (
                Arc::clone(&self.session),
                Arc::clone(&self.stored),
                Arc::clone(&self.failure),
            );
            let (finished, spares) = (finished.clone(), self.spares.clone());
            let work = move || store_containers(&finished, &session, &spares, &stored, &failure);
            // They end with the last sender.
            storing.extend(named("store").spawn(work).ok());
        }
        if storing.is_empty() {
            return Ok(());
        }
        for _ in 0..threads {
            let compressor = Compressor::new(self.session.options().compression, self.stream)?;
            let (jobs, finished) = (jobs.clone(), finished_sender.clone());
            let spares = self.spares.clone();
            let work = move || seal_blocks(&jobs, &finished, &spares, compressor);
            match named("seal").spawn(work) {
                Ok(thread) => self.threads.push(thread),
                Err(_) => break,
            }
        }
        if !self.threads.is_empty() {
            self.threads.extend(storing);
            (self.jobs, self.finished) = (Some(job_sender), Some(finished_sender));
        }
        Ok(())
    }

    /// A new container, as soon as few enough are under way.
    pub fn begin_container(&self) -> Result<Building> {
        let place = self.containers.pass(1);
        self.session
            .begin_container(self.stream, self.spares.container(), place)
    }

    pub fn add(&mut self, job: BlockJob) -> Result<()> {
        if let Some(compressor) = &mut self.inline {
            return match job.seal(compressor, &self.spares) {
                Some(finished) => self.store(finished),
                None => Ok(()),
            };
        }
        let unit = self.session.block_bytes(self.stream);
        let taken = self.raw_blocks.pass(job.raw.len().div_ceil(unit).max(1));
        let sent = self.jobs.as_ref().map(|jobs| jobs.send((job, taken)));
        debug_assert!(sent.is_some(), "not after finish");
        self.failed()
    }

    pub fn store(&mut self, finished: Finished) -> Result<()> {
        match &self.finished {
            Some(sender) => {
                let _ = sender.send(finished);
                self.failed()
            }
            None => {
                let bytes = store_container(&self.session, finished, &self.stored)?;
                self.spares.keep_container(bytes);
                Ok(())
            }
        }
    }

    /// Once anything has failed, everything fails; the first caller hears why.
    pub fn failed(&self) -> Result<()> {
        let mut failure = self.failure.lock();
        match std::mem::replace(&mut *failure, SealingFailure::Told) {
            SealingFailure::None => {
                *failure = SealingFailure::None;
                Ok(())
            }
            SealingFailure::Fresh(error) => Err(error),
            SealingFailure::Told => Err(Error::Machine("an earlier write failed".into())),
        }
    }

    pub fn finish(&mut self) -> Result<()> {
        (self.jobs, self.finished) = (None, None);
        for thread in self.threads.drain(..) {
            thread
                .join()
                .map_err(|_| Error::Machine("a sealing thread panicked".into()))?;
        }
        self.failed()
    }
}

fn named(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.into())
}

impl BlockJob {
    fn seal(self, compressor: &mut Compressor, spares: &SpareBuffers) -> Option<Finished> {
        let compressor = match self.packing {
            Packing::Compress => Some(compressor),
            Packing::AsIs => None,
        };
        let keep = |buffer| spares.keep_block(buffer);
        self.building
            .add(self.number, self.raw, self.chunks, compressor, &keep)
    }
}

fn seal_blocks(
    jobs: &Receiver<(BlockJob, GatePass)>,
    finished: &Sender<Finished>,
    spares: &SpareBuffers,
    mut compressor: Compressor,
) {
    for (job, taken) in jobs {
        let whole = job.seal(&mut compressor, spares);
        drop(taken);
        if let Some(whole) = whole
            && finished.send(whole).is_err()
        {
            return;
        }
    }
}

/// Stores containers until there are no more; after a failure it only empties the queue, so that nobody waits for ever.
fn store_containers(
    finished: &Receiver<Finished>,
    session: &SessionState,
    spares: &SpareBuffers,
    stored: &Mutex<(u64, u64)>,
    failure: &Mutex<SealingFailure>,
) {
    for whole in finished {
        if !matches!(*failure.lock(), SealingFailure::None) {
            continue;
        }
        match store_container(session, whole, stored) {
            // Then its place is given back.
            Ok(bytes) => spares.keep_container(bytes),
            Err(error) => {
                let mut failure = failure.lock();
                if matches!(*failure, SealingFailure::None) {
                    *failure = SealingFailure::Fresh(error);
                }
            }
        }
    }
}

/// Stores a container and makes it known; gives its buffer back.
fn store_container(
    session: &SessionState,
    mut whole: Finished,
    stored: &Mutex<(u64, u64)>,
) -> Result<Vec<u8>> {
    let dry_run = session.options().dry_run;
    if !dry_run {
        let name = container::object_name(whole.id);
        let bytes = std::mem::take(&mut whole.bytes);
        let (bytes, done) = (session.objects()).put_long_if_absent(&name, bytes, &whole.tail);
        whole.bytes = bytes;
        done?;
        keep_copies(session, &whole);
    }
    let bytes = (whole.bytes.len() + whole.tail.len()) as u64;
    session.stored(bytes);
    let mut sums = stored.lock();
    sums.0 += bytes;
    sums.1 += 1;
    drop(sums);
    if dry_run {
        session.imagine(&whole.table)?
    } else {
        session.tell_index(whole.id, &whole.table)?
    }
    Ok(whole.bytes)
}

/// Keeps this machine's copies of a container that it has stored, if that is one of metadata: the next backup reads it.
fn keep_copies(session: &SessionState, whole: &Finished) {
    let Some(cache) = session.local_cache() else {
        return;
    };
    if whole.stream != StreamKind::Metadata {
        return;
    }
    let len = (whole.bytes.len() + whole.tail.len()) as u64;
    cache.put(Copied::Table(whole.id), &[&len.to_le_bytes(), &whole.tail]);
    for block in &whole.table.blocks {
        let start = block.offset as usize;
        let sealed = &whole.bytes[start..start + BLOCK_HEADER_BYTES + block.stored_len as usize];
        cache.put(Copied::Block(whole.id, block.offset), &[sealed]);
    }
}
