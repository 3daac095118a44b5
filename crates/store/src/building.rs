//! A container while it is being built: blocks come in from several threads in any order and fall into place by number.

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::block::{self, BLOCK_HEADER_BYTES, append_chunk_lengths};
use crate::compression::Compressor;
use crate::container::{Header, StreamKind, Table};
use crate::entropy::Entropy;
use crate::footer;
use crate::keys::{Keys, Sealer};

/// The descriptors of one block: fingerprint and length of each chunk, in stream order.
pub type ChunkList = Vec<(Fingerprint, u32)>;

/// A container that is being built.
pub struct Building {
    header: Header,
    sealer: Sealer,
    stored_bytes: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The header and all blocks that are in place.
    bytes: Vec<u8>,
    table: Table,
    /// Sealed blocks whose turn has not come.
    waiting: BTreeMap<u32, SealedBlock>,
    /// How many blocks there will be, once that is known.
    blocks: Option<u32>,
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
    /// Header and blocks.
    pub bytes: Vec<u8>,
    /// Sealed table and footer.
    pub tail: Vec<u8>,
    /// What it holds.
    pub table: Table,
}

impl Building {
    /// Begins a container under a random name.
    pub fn begin(stream: StreamKind, target_bytes: usize, keys: &Keys, entropy: &Entropy) -> Self {
        let header = Header {
            id: ContainerId(entropy.u64()),
            stream,
            salt: entropy.bytes(),
        };
        let sealer = keys.container_sealer(&header.salt);
        let mut bytes = Vec::with_capacity(target_bytes + target_bytes / 16);
        bytes.extend_from_slice(&header.encode());
        Self {
            header,
            sealer,
            stored_bytes: AtomicU64::new(0),
            state: Mutex::new(State {
                bytes,
                ..State::default()
            }),
        }
    }

    /// The container's name.
    pub fn id(&self) -> ContainerId {
        self.header.id
    }

    /// Stored bytes of the blocks that were compressed so far, in place or waiting.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Ordering::Relaxed)
    }

    /// Compresses and seals block `number` and puts it in place. Gives the whole container where that was the last one missing.
    pub fn add(
        &self,
        number: u32,
        mut raw: Vec<u8>,
        chunks: ChunkList,
        compressor: &mut Compressor,
    ) -> Option<Finished> {
        append_chunk_lengths(&mut raw, &chunks);
        let raw_len = raw.len() as u32;
        let (codec, coded) = compressor.encode(raw);
        let (header, body) =
            block::encode_block(self.id(), number, codec, coded, raw_len, &self.sealer);
        self.stored_bytes
            .fetch_add((BLOCK_HEADER_BYTES + body.len()) as u64, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.waiting.insert(
            number,
            SealedBlock {
                header,
                body,
                chunks,
            },
        );
        state.settle();
        self.finish_if_whole(&mut state)
    }

    /// Says that there are `blocks` blocks in all. Gives the whole container where none is missing.
    pub fn close(&self, blocks: u32) -> Option<Finished> {
        let mut state = self.state.lock();
        state.blocks = Some(blocks);
        self.finish_if_whole(&mut state)
    }

    fn finish_if_whole(&self, state: &mut State) -> Option<Finished> {
        if state.blocks != Some(state.table.blocks.len() as u32) {
            return None;
        }
        let State { bytes, table, .. } = std::mem::take(state);
        let tail = footer::encode_tail(&self.header, &table, bytes.len() as u64, &self.sealer);
        Some(Finished {
            id: self.id(),
            bytes,
            tail,
            table,
        })
    }
}

impl State {
    /// Moves the blocks whose turn has come to their place.
    fn settle(&mut self) {
        while let Some(block) = self.waiting.remove(&(self.table.blocks.len() as u32)) {
            self.table.push_block(
                self.bytes.len() as u64,
                block.body.len() as u32,
                &block.chunks,
            );
            self.bytes.extend_from_slice(&block.header);
            self.bytes.extend_from_slice(&block.body);
        }
    }
}
