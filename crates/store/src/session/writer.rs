//! Writing chunks: duplicates are dropped, new chunks gathered into blocks, blocks into containers.
//!
//! Invariant: the index is told of a container only when it is durable; a chunk that is neither in the index nor
//! durable is in the session's `pending`, so that its next occurrence refers to it.

use std::collections::HashMap;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ContainerId, Location};

use crate::container::StreamKind;
use crate::container::block::{BLOCK_CHUNKS_MAX, CHUNK_BYTES_MAX};
use crate::container::building::{Building, ChunkList};
use crate::session::SessionState;
use crate::session::sealing::{BlockJob, Packing, Sealing};
use crate::{ChunkRef, Error, Result};

/// Counts of a writer. Bytes are those of chunks, before compression; `stored_bytes` is the size of containers on disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WriteStats {
    /// Chunks given.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Chunks among these that were not stored yet.
    pub new_chunks: u64,
    /// Their bytes.
    pub new_bytes: u64,
    /// Bytes of the containers written, all included.
    pub stored_bytes: u64,
    /// Containers written.
    pub containers: u64,
}

impl std::ops::Add for WriteStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            chunks: self.chunks + other.chunks,
            bytes: self.bytes + other.bytes,
            new_chunks: self.new_chunks + other.new_chunks,
            new_bytes: self.new_bytes + other.new_bytes,
            stored_bytes: self.stored_bytes + other.stored_bytes,
            containers: self.containers + other.containers,
        }
    }
}

/// A chunk that is given to a writer.
#[derive(Clone, Copy)]
pub struct ChunkToWrite<'a> {
    /// Its name.
    pub fingerprint: Fingerprint,
    /// Its bytes.
    pub data: &'a [u8],
    /// How it is to be stored.
    pub packing: Packing,
    /// Nobody changes the bytes. Those of a mapped file may change: if the chunk is new, they are copied, and the copy
    /// must have the fingerprint.
    pub is_steady: bool,
}

/// Result of writing a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// The chunk was stored already.
    Known(ChunkRef),
    /// The chunk is stored now.
    New(ChunkRef),
    /// The chunk is not stored, and its bytes are no longer those that were fingerprinted.
    Lost,
}

/// Writes one stream of chunks. [`finish`](Self::finish) makes all of it durable; dropped without, what was sealed
/// stays and the rest is lost.
pub struct ChunkWriter {
    session: Arc<SessionState>,
    stream: StreamKind,
    /// The block of chunks to compress, and the block of the others.
    open: [OpenBlock; 2],
    container: Option<OpenContainer>,
    sealing: Sealing,
    stats: WriteStats,
    keys: Vec<Fingerprint>,
    found: Vec<Option<Location>>,
    early: Vec<Option<ContainerId>>,
    /// New chunks of the batch that is being written: a container may become durable, and so leave what is pending, in
    /// the middle of it.
    fresh: HashMap<Fingerprint, ContainerId>,
    copy: Vec<u8>,
}

impl Written {
    /// The chunk, unless it is lost.
    pub fn chunk(&self) -> Option<ChunkRef> {
        match self {
            Self::Known(chunk) | Self::New(chunk) => Some(*chunk),
            Self::Lost => None,
        }
    }
}

#[derive(Default)]
struct OpenBlock {
    raw: Vec<u8>,
    chunks: ChunkList,
}

struct OpenContainer {
    building: Arc<Building>,
    blocks: u32,
    chunks: u32,
    raw_bytes: u64,
    /// Bytes of chunks that are a block each, a part of `raw_bytes`: their stored size is known late, and each is a
    /// large part of a container.
    long_bytes: u64,
}

/// Blocks that compress very well would make a container of very many chunks: at this many raw bytes per target byte it
/// is closed.
const RAW_PER_TARGET_MAX: u64 = 12;
/// Nor do tiny chunks: who reads a container keeps its table in RAM, some 40 bytes a chunk.
const CONTAINER_CHUNKS_MAX: u32 = BLOCK_CHUNKS_MAX as u32;

impl ChunkWriter {
    pub(crate) fn new(session: Arc<SessionState>, stream: StreamKind) -> Result<Self> {
        // Metadata is little: it is compressed where it is written, and leaves the threads to the data.
        let threads = if stream == StreamKind::Data {
            session.options().threads
        } else {
            1
        };
        let sealing = Sealing::start(&session, stream, threads)?;
        Ok(Self {
            session,
            stream,
            open: Default::default(),
            container: None,
            sealing,
            stats: WriteStats::default(),
            keys: Vec::new(),
            found: Vec::new(),
            early: Vec::new(),
            fresh: HashMap::new(),
            copy: Vec::new(),
        })
    }

    /// Stores what is new of `chunks`, a batch of the stream, and appends a reference for each to `refs`, in order.
    ///
    /// # Errors
    /// Any failure since the last call, of other threads too, and [`Error::TooLong`]. The writer is of no use
    /// afterwards.
    pub fn write(
        &mut self,
        chunks: &[(Fingerprint, &[u8])],
        refs: &mut Vec<ChunkRef>,
    ) -> Result<()> {
        let given = chunks.iter().map(|&(fingerprint, data)| ChunkToWrite {
            fingerprint,
            data,
            packing: Packing::Compress,
            is_steady: true,
        });
        let given: Vec<_> = given.collect();
        let mut written = Vec::with_capacity(given.len());
        self.write_given(&given, &mut written)?;
        refs.extend(written.iter().filter_map(Written::chunk));
        Ok(())
    }

    /// Stores what is new of `chunks`, a batch of the stream, and appends what became of each to `written`, in order.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_given(
        &mut self,
        chunks: &[ChunkToWrite<'_>],
        written: &mut Vec<Written>,
    ) -> Result<()> {
        self.sealing.failed()?;
        self.look_up(chunks.iter().map(|given| given.fingerprint))?;
        self.fresh.clear();
        for (i, given) in chunks.iter().enumerate() {
            let (fingerprint, len) = (given.fingerprint, given.data.len() as u32);
            let chunk = |container| ChunkRef {
                fingerprint,
                container,
                len,
            };
            let outcome = match self.known(i, &fingerprint)? {
                Some(container) => Written::Known(chunk(container)),
                None => match self.add(given)? {
                    Some(container) => {
                        self.fresh.insert(fingerprint, container);
                        Written::New(chunk(container))
                    }
                    None => Written::Lost,
                },
            };
            self.stats.chunks += 1;
            self.stats.bytes += u64::from(len);
            written.push(outcome);
        }
        Ok(())
    }

    /// Whether any of these chunks is stored already: a lookup of its own, for where that is seldom asked.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn knows_any(&mut self, fingerprints: &[Fingerprint]) -> Result<bool> {
        self.look_up(fingerprints.iter().copied())?;
        self.fresh.clear();
        for (number, fingerprint) in fingerprints.iter().enumerate() {
            if self.known(number, fingerprint)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds a new chunk; gives its container, or `None` where its bytes are no longer what they were.
    fn add(&mut self, given: &ChunkToWrite<'_>) -> Result<Option<ContainerId>> {
        if given.is_steady {
            let container = self.append(given.fingerprint, given.data, given.packing)?;
            return Ok(Some(container));
        }
        let mut copy = std::mem::take(&mut self.copy);
        copy.clear();
        copy.extend_from_slice(given.data);
        let same = self.session.fingerprint(&copy) == given.fingerprint;
        let container = same.then(|| self.append(given.fingerprint, &copy, given.packing));
        self.copy = copy;
        container.transpose()
    }

    /// Stores a chunk once more, in a new container, though it is stored already: how the sweep and the repair move
    /// chunks. A chunk that this session has stored is not stored yet again.
    pub(crate) fn write_again(&mut self, fingerprint: Fingerprint, data: &[u8]) -> Result<()> {
        self.sealing.failed()?;
        if !self.session.has_stored(&fingerprint)? {
            self.append(fingerprint, data, Packing::Compress)?;
        }
        Ok(())
    }

    /// Returns the counts so far; `stored_bytes` and `containers` do not include containers that are being sealed.
    pub fn stats(&self) -> WriteStats {
        let (stored_bytes, containers) = *self.sealing.stored.lock();
        WriteStats {
            stored_bytes,
            containers,
            ..self.stats
        }
    }

    /// Seals what is open and returns once every chunk written is durable and known to the index.
    ///
    /// # Errors
    /// As [`write`](Self::write): what was stored before stays, and the rest is lost.
    pub fn finish(mut self) -> Result<WriteStats> {
        self.close_container()?;
        self.sealing.finish()?;
        Ok(self.stats())
    }

    /// Looks the whole batch up in the index at once. Pending chunks are looked up before: a chunk that leaves there is
    /// in the index by then.
    fn look_up(&mut self, chunks: impl Iterator<Item = Fingerprint>) -> Result<()> {
        self.keys.clear();
        self.keys.extend(chunks);
        self.early.clear();
        self.session.all_pending(&self.keys, &mut self.early);
        self.found.clear();
        self.found.resize(self.keys.len(), None);
        self.session.lookup(&self.keys, &mut self.found)
    }

    fn known(&self, i: usize, fingerprint: &Fingerprint) -> Result<Option<ContainerId>> {
        if self.early[i].is_some() {
            return Ok(self.early[i]);
        }
        if let Some(location) = self.found[i]
            && self.session.may_refer_to(location.container)?
        {
            return Ok(Some(location.container));
        }
        // The chunk may have come up before in this very batch.
        match self.fresh.get(fingerprint) {
            Some(container) => Ok(Some(*container)),
            None => self.session.pending(fingerprint),
        }
    }

    /// Adds a new chunk to the open block of the open container.
    fn append(
        &mut self,
        fingerprint: Fingerprint,
        data: &[u8],
        packing: Packing,
    ) -> Result<ContainerId> {
        assert!(!data.is_empty(), "a chunk holds something");
        if data.len() > CHUNK_BYTES_MAX {
            return Err(Error::TooLong {
                what: "a chunk",
                bytes: data.len() as u64,
                bytes_max: CHUNK_BYTES_MAX as u64,
            });
        }
        let block_bytes = self.session.block_bytes(self.stream);
        let used = self.open[packing as usize].raw.len();
        if used > 0 && used + data.len() > block_bytes {
            self.close_block(packing)?;
        }
        if self
            .container
            .as_ref()
            .is_some_and(|open| self.is_full(open))
        {
            self.close_container()?;
        }
        let open = match &mut self.container {
            Some(open) => open,
            none => none.insert(OpenContainer {
                building: Arc::new(self.sealing.begin_container()?),
                blocks: 0,
                chunks: 0,
                raw_bytes: 0,
                long_bytes: 0,
            }),
        };
        let id = open.building.id();
        open.chunks += 1;
        open.raw_bytes += data.len() as u64;
        if data.len() > block_bytes {
            open.long_bytes += data.len() as u64;
        }
        let block = &mut self.open[packing as usize];
        if block.raw.is_empty() {
            block.raw = self.sealing.spares.block(data.len());
        }
        block.raw.extend_from_slice(data);
        block.chunks.push((fingerprint, data.len() as u32));
        self.session.set_pending(fingerprint, id);
        self.stats.new_chunks += 1;
        self.stats.new_bytes += data.len() as u64;
        Ok(id)
    }

    fn is_full(&self, open: &OpenContainer) -> bool {
        let target = self.session.options().container_bytes as u64;
        open.building.stored_bytes() >= target
            || open.long_bytes >= target
            || open.raw_bytes >= target * RAW_PER_TARGET_MAX
            || open.chunks >= CONTAINER_CHUNKS_MAX
    }

    fn close_block(&mut self, packing: Packing) -> Result<()> {
        let block = &mut self.open[packing as usize];
        if block.chunks.is_empty() {
            return Ok(());
        }
        let open = self
            .container
            .as_mut()
            .expect("an open block has an open container");
        let job = BlockJob {
            building: Arc::clone(&open.building),
            number: open.blocks,
            raw: std::mem::take(&mut block.raw),
            chunks: std::mem::take(&mut block.chunks),
            packing,
        };
        open.blocks += 1;
        self.sealing.add(job)
    }

    /// Closes what is open, if anything is.
    fn close_container(&mut self) -> Result<()> {
        self.close_block(Packing::Compress)?;
        self.close_block(Packing::AsIs)?;
        match self.container.take() {
            Some(open) => match open.building.close(open.blocks) {
                Some(finished) => self.sealing.store(finished),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }
}
