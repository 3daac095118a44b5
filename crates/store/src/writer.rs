//! Writing chunks: duplicates are dropped, new chunks gathered into blocks, blocks into containers.
//!
//! Always holds: the index is told of a container only when it is durable; a chunk that is neither in the index nor durable is in the
//! session's `pending`, so that its next occurrence refers to it.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::{ContainerId, Location};

use crate::building::{Building, ChunkList};
use crate::container::StreamKind;
use crate::sealing::{BlockJob, Packing, Sealing};
use crate::session::SessionState;
use crate::{ChunkRef, Result};

/// What a writer did. Bytes are of chunks, before compression; `stored_bytes` is what containers took on disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WriteStats {
    /// Chunks given.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of those, chunks that were not stored yet.
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

/// Writes one stream of chunks. [`finish`](Self::finish) makes all of it durable; dropped without, what was sealed stays and the rest is lost.
pub struct ChunkWriter {
    session: Arc<SessionState>,
    stream: StreamKind,
    /// What is to be compressed, and what is not.
    open: [OpenBlock; 2],
    container: Option<OpenContainer>,
    sealing: Sealing,
    stats: WriteStats,
    keys: Vec<Fingerprint>,
    found: Vec<Option<Location>>,
    early: Vec<Option<ContainerId>>,
    was_new: Vec<bool>,
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
}

/// Blocks that compress very well would make a container of very many chunks: at this many raw bytes per target byte it is closed.
const RAW_PER_TARGET_MAX: u64 = 12;
/// Nor do tiny chunks: who reads a container keeps its table in RAM, some 40 bytes a chunk.
const CONTAINER_CHUNKS_MAX: u32 = 1 << 16;

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
            was_new: Vec::new(),
        })
    }

    /// Stores what is new of `chunks`, a segment of the stream, and appends a reference for each to `refs`, in order.
    ///
    /// # Errors
    /// Any failure since the last call, of other threads too. The writer is of no use afterwards.
    pub fn write(
        &mut self,
        chunks: &[(Fingerprint, &[u8])],
        refs: &mut Vec<ChunkRef>,
    ) -> Result<()> {
        self.write_packed(chunks, &|_| Packing::Compress, refs)
    }

    /// The same, with `packing` telling how the chunk at an index of `chunks` is to be stored.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_packed(
        &mut self,
        chunks: &[(Fingerprint, &[u8])],
        packing: &dyn Fn(usize) -> Packing,
        refs: &mut Vec<ChunkRef>,
    ) -> Result<()> {
        self.sealing.failed()?;
        self.look_up(chunks)?;
        self.was_new.clear();
        for (i, (fingerprint, data)) in chunks.iter().enumerate() {
            let known = self.known(i, fingerprint)?;
            self.was_new.push(known.is_none());
            let container = match known {
                Some(container) => container,
                None => self.append(*fingerprint, data, packing(i))?,
            };
            self.stats.chunks += 1;
            self.stats.bytes += data.len() as u64;
            refs.push(ChunkRef {
                fingerprint: *fingerprint,
                container,
                len: data.len() as u32,
            });
        }
        Ok(())
    }

    /// Of each chunk of the last [`write`](Self::write), whether it was new.
    pub fn was_new(&self) -> &[bool] {
        &self.was_new
    }

    /// Stores a chunk once more, in a new container, though it is stored already: how the sweep and the repair move chunks. A chunk that this
    /// session has stored is not stored yet again.
    pub(crate) fn write_again(&mut self, fingerprint: Fingerprint, data: &[u8]) -> Result<()> {
        self.sealing.failed()?;
        if !self.session.has_stored(&fingerprint)? {
            self.append(fingerprint, data, Packing::Compress)?;
        }
        Ok(())
    }

    /// What was written so far; `stored_bytes` and `containers` lag behind what is being sealed.
    pub fn stats(&self) -> WriteStats {
        let (stored_bytes, containers) = *self.sealing.stored.lock();
        WriteStats {
            stored_bytes,
            containers,
            ..self.stats
        }
    }

    /// Seals what is open and returns once every chunk written is durable and known to the index.
    pub fn finish(mut self) -> Result<WriteStats> {
        self.close_container()?;
        self.sealing.finish()?;
        Ok(self.stats())
    }

    /// One index lookup for the whole segment. What is pending is asked for before: what leaves there is in the index by then.
    fn look_up(&mut self, chunks: &[(Fingerprint, &[u8])]) -> Result<()> {
        self.keys.clear();
        self.keys
            .extend(chunks.iter().map(|(fingerprint, _)| *fingerprint));
        self.early.clear();
        self.session.all_pending(&self.keys, &mut self.early);
        self.found.clear();
        self.found.resize(chunks.len(), None);
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
        // It may have come up before in this very segment.
        self.session.pending(fingerprint)
    }

    /// Adds a new chunk to the open block of the open container.
    fn append(
        &mut self,
        fingerprint: Fingerprint,
        data: &[u8],
        packing: Packing,
    ) -> Result<ContainerId> {
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
        let session = &self.session;
        let stream = self.stream;
        let spares = &self.sealing.spares;
        let open = self.container.get_or_insert_with(|| OpenContainer {
            building: Arc::new(session.begin_container(stream, spares.container())),
            blocks: 0,
            chunks: 0,
            raw_bytes: 0,
        });
        let id = open.building.id();
        open.chunks += 1;
        open.raw_bytes += data.len() as u64;
        let block = &mut self.open[packing as usize];
        if block.raw.capacity() == 0 {
            block.raw = spares.block();
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
