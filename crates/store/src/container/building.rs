//! A container while it is being built: blocks come in from several threads in any order and fall into place by number.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use onefold_io::GatePass;
use onefold_keys::{Entropy, Keys, Sealer};
use parking_lot::Mutex;

use crate::Result;
use crate::container::block::{self, BLOCK_HEADER_BYTES, append_chunk_lengths};
use crate::container::compression::{Codec, Compressor};
use crate::container::footer;
use crate::container::{ContainerTable, Header, StreamKind};

/// The descriptors of one block: fingerprint and length of each chunk, in stream order.
pub type ChunkList = Vec<(Fingerprint, u32)>;

/// A container that is being built.
pub struct Building {
    header: Header,
    sealer: Sealer,
    stored_bytes: AtomicU64,
    state: Mutex<UnfinishedContainer>,
}

#[derive(Default)]
struct UnfinishedContainer {
    /// The header and all blocks that are in place.
    bytes: Vec<u8>,
    table: ContainerTable,
    /// Sealed blocks whose turn has not come.
    waiting: BTreeMap<u32, SealedBlock>,
    /// Number of blocks of the container, once that is known.
    blocks: Option<u32>,
    place: Option<GatePass>,
}

struct SealedBlock {
    header: [u8; BLOCK_HEADER_BYTES],
    body: Vec<u8>,
    chunks: ChunkList,
}

/// A container with all its blocks, ready to be stored.
pub struct Finished {
    /// Its name.
    pub id: ContainerId,
    /// The stream that it holds a part of.
    pub stream: StreamKind,
    /// Header and blocks.
    pub bytes: Vec<u8>,
    /// Sealed table and footer.
    pub tail: Vec<u8>,
    /// Chunks of the container.
    pub table: ContainerTable,
    /// Place among the containers under way; another container gets it when this is dropped.
    pub _place: Option<GatePass>,
}

impl Building {
    /// Begins a container under a random name, in `bytes`, an empty buffer; it keeps `place` until it is stored.
    pub fn begin(
        stream: StreamKind,
        mut bytes: Vec<u8>,
        place: GatePass,
        keys: &Keys,
        entropy: &Entropy,
    ) -> Result<Self> {
        let header = Header {
            id: ContainerId(entropy.try_u64()?),
            stream,
            salt: entropy.try_bytes()?,
        };
        let sealer = keys.container_sealer(&header.salt);
        bytes.extend_from_slice(&header.encode());
        Ok(Self {
            header,
            sealer,
            stored_bytes: AtomicU64::new(0),
            state: Mutex::new(UnfinishedContainer {
                bytes,
                place: Some(place),
                ..UnfinishedContainer::default()
            }),
        })
    }

    /// The container's name.
    pub fn id(&self) -> ContainerId {
        self.header.id
    }

    /// Stored bytes of the blocks that were compressed so far, in place or waiting.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Ordering::Relaxed)
    }

    /// Compresses (unless there is nothing to do it with) and seals block `number` and puts it in place; `keep` takes
    /// buffers that are of no use any more. Gives the whole container where that was the last one missing.
    pub fn add(
        &self,
        number: u32,
        mut raw: Vec<u8>,
        chunks: ChunkList,
        compressor: Option<&mut Compressor>,
        keep: &dyn Fn(Vec<u8>),
    ) -> Option<Finished> {
        append_chunk_lengths(&mut raw, &chunks);
        let raw_len = raw.len() as u32;
        let codec = match compressor {
            Some(compressor) => compressor.encode(&mut raw),
            None => Codec::Raw,
        };
        let header = block::encode_block(self.id(), number, codec, &mut raw, raw_len, &self.sealer);
        self.stored_bytes
            .fetch_add((BLOCK_HEADER_BYTES + raw.len()) as u64, Ordering::Relaxed);
        let mut state = self.state.lock();
        let mut block = SealedBlock {
            header,
            body: raw,
            chunks,
        };
        if state.next() == number {
            state.place(&block);
            keep(block.body);
            state.settle(keep);
        } else {
            // Many may wait: one that was compressed well waits in as little as it needs.
            if block.body.len() < block.body.capacity() / 2 {
                let small = block.body.as_slice().into();
                keep(std::mem::replace(&mut block.body, small));
            }
            state.waiting.insert(number, block);
        }
        self.finish_if_whole(&mut state)
    }

    /// Says that there are `blocks` blocks in all. Gives the whole container where none is missing.
    pub fn close(&self, blocks: u32) -> Option<Finished> {
        let mut state = self.state.lock();
        state.blocks = Some(blocks);
        self.finish_if_whole(&mut state)
    }

    fn finish_if_whole(&self, state: &mut UnfinishedContainer) -> Option<Finished> {
        if state.blocks != Some(state.next()) {
            return None;
        }
        let UnfinishedContainer {
            bytes,
            table,
            place,
            ..
        } = std::mem::take(state);
        let tail = footer::encode_tail(&self.header, &table, bytes.len() as u64, &self.sealer);
        Some(Finished {
            id: self.id(),
            stream: self.header.stream,
            bytes,
            tail,
            table,
            _place: place,
        })
    }
}

impl UnfinishedContainer {
    /// The number of the block whose turn it is.
    fn next(&self) -> u32 {
        self.table.blocks.len() as u32
    }

    /// Moves the blocks whose turn has come to their place.
    fn settle(&mut self, keep: &dyn Fn(Vec<u8>)) {
        while let Some(block) = self.waiting.remove(&self.next()) {
            self.place(&block);
            keep(block.body);
        }
    }

    fn place(&mut self, block: &SealedBlock) {
        let (offset, len) = (self.bytes.len() as u64, block.body.len() as u32);
        self.table.push_block(offset, len, &block.chunks);
        self.bytes.extend_from_slice(&block.header);
        self.bytes.extend_from_slice(&block.body);
    }
}
