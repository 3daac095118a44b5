//! The write path (report Figure 3.3), a batch at a time, in the order that is safe: look up, allocate, write the data,
//! wait for it, and only then name it.

use std::collections::HashMap;

use onefold_chunk::Fingerprint;

use super::{Backend, DataArea, Dmdedup, HASH_KEY_BYTES, Shared};
use crate::{Buffer, ChunkContent, Error, HashedChunk, Key, Pbn, Result};

/// Neighbouring new blocks are written with one write of at most this many bytes.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// What becomes of one chunk of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// It needs a page, and there is none.
    Refused,
    /// Zeros: the LBN is unmapped.
    Unmapped,
    /// The hash index knows the content, or did so once the first chunk of the batch that has it is written.
    Known(Pbn),
    /// The first one with new content, or one that is not deduplicated: its data is written.
    New(Pbn),
}

/// A block that is to be written.
struct NewBlock<'a> {
    pbn: Pbn,
    bytes: &'a [u8],
    /// The key under which the content is to be found; `None` where it is not to be.
    key: Option<[u8; HASH_KEY_BYTES]>,
}

/// A batch after lookups and allocation, before anything of it can be seen.
struct Plan<'a> {
    targets: Vec<Target>,
    new_blocks: Vec<NewBlock<'a>>,
}

impl Dmdedup {
    pub(super) fn write_batch(&mut self, chunks: &[HashedChunk<'_>]) -> Result<Vec<usize>> {
        for chunk in chunks {
            self.shared
                .check(&(chunk.lbn.0..chunk.lbn.0.saturating_add(1)))?;
        }
        let plan = self.plan(chunks)?;
        if let Err(error) = self.write_data(&plan.new_blocks) {
            give_back(&mut self.shared.backend()?, &plan.new_blocks)?;
            return Err(error);
        }
        self.is_changed = true;
        self.publish(chunks, &plan)?;
        let refused = |(at, target): (usize, &Target)| (*target == Target::Refused).then_some(at);
        Ok(plan
            .targets
            .iter()
            .enumerate()
            .filter_map(refused)
            .collect())
    }

    /// Looks up all hashes of the batch at once, then allocates a block for each content that is new.
    fn plan<'a>(&mut self, chunks: &[HashedChunk<'a>]) -> Result<Plan<'a>> {
        let found = self.shared.known(chunks)?;
        let mut found = found.into_iter();
        let mut first: HashMap<[u8; HASH_KEY_BYTES], Pbn> = HashMap::new();
        let mut plan = Plan {
            targets: Vec::with_capacity(chunks.len()),
            new_blocks: Vec::new(),
        };
        for chunk in chunks {
            let (key, bytes) = match chunk.content {
                ChunkContent::Zero => {
                    plan.targets.push(Target::Unmapped);
                    continue;
                }
                ChunkContent::NoDedup(bytes) => (None, bytes),
                ChunkContent::Fingerprinted(fingerprint, bytes) => {
                    let key = hash_key(&fingerprint);
                    let known = found.next().flatten().or_else(|| first.get(&key).copied());
                    if let Some(pbn) = known {
                        plan.targets.push(Target::Known(pbn));
                        continue;
                    }
                    (Some(key), bytes)
                }
            };
            let pbn = match chunk.has_page {
                true => self.allocate()?,
                false => None,
            };
            plan.targets.push(pbn.map_or(Target::Refused, Target::New));
            if let Some(pbn) = pbn {
                first.extend(key.map(|key| (key, pbn)));
                plan.new_blocks.push(NewBlock { pbn, bytes, key });
            }
        }
        Ok(plan)
    }

    /// A block; where only such are left that a commit makes free, commits.
    fn allocate(&mut self) -> Result<Option<Pbn>> {
        let mut backend = self.backend()?;
        if let Some(pbn) = backend.alloc_block()? {
            return Ok(Some(pbn));
        }
        if backend.stats().blocks_waiting == 0 {
            return Ok(None);
        }
        drop(backend);
        self.commit_changes()?;
        self.backend()?.alloc_block()
    }

    /// Writes the data of new blocks, neighbours together.
    fn write_data(&mut self, blocks: &[NewBlock<'_>]) -> Result<()> {
        let block_bytes = self.shared.data.block_bytes();
        let count_max = (WRITE_BYTES_MAX / block_bytes).max(1);
        let mut rest = blocks;
        while let Some(first) = rest.first() {
            let neighbours = rest.iter().zip(first.pbn.0..);
            let count = neighbours
                .take(count_max)
                .take_while(|(block, pbn)| block.pbn.0 == *pbn)
                .count();
            let (now, later) = rest.split_at(count);
            self.counts.data_writes += 1;
            self.gather.write(&self.shared.data, now)?;
            rest = later;
        }
        Ok(())
    }

    /// Names what was written: first the hashes, then the LBNs, in the order of the batch.
    fn publish(&mut self, chunks: &[HashedChunk<'_>], plan: &Plan<'_>) -> Result<()> {
        let shared = std::sync::Arc::clone(&self.shared);
        let mut backend = shared.backend()?;
        for block in &plan.new_blocks {
            if let Some(key) = &block.key {
                backend.insert(shared.hashes, Key::Sparse(key), block.pbn)?;
                backend.inc_ref(block.pbn)?;
                // Until its LBN is mapped, only the hash names it.
                self.garbage += 1;
            }
        }
        let mut old = shared.mapped(&mut backend, chunks)?;
        let mut changed: HashMap<u64, Option<Pbn>> = HashMap::new();
        for ((chunk, target), old) in chunks.iter().zip(&plan.targets).zip(&mut old) {
            let lbn = chunk.lbn.0;
            if let Some(now) = changed.get(&lbn) {
                *old = *now;
            }
            let new = match *target {
                Target::Refused => continue,
                Target::Unmapped => None,
                Target::Known(pbn) | Target::New(pbn) => Some(pbn),
            };
            self.count_write(chunk, *target, *old);
            self.map(&mut backend, lbn, *old, new)?;
            changed.insert(lbn, new);
        }
        Ok(())
    }

    /// Maps an LBN to another block, or to none, and counts references.
    pub(super) fn map(
        &mut self,
        backend: &mut Backend<'_>,
        lbn: u64,
        old: Option<Pbn>,
        new: Option<Pbn>,
    ) -> Result<()> {
        if old == new {
            return Ok(());
        }
        let store = self.shared.lbns;
        match new {
            Some(pbn) => {
                backend.insert(store, Key::Linear(lbn), pbn)?;
                // From 1 to 2: the first LBN besides the hash.
                let is_first = backend.inc_ref(pbn)? == 2;
                self.garbage = self.garbage.saturating_sub(u64::from(is_first));
            }
            None => backend.delete(store, Key::Linear(lbn))?,
        }
        if let Some(pbn) = old {
            let is_garbage = backend.dec_ref(pbn)? == 1;
            self.garbage += u64::from(is_garbage);
        }
        Ok(())
    }

    fn count_write(&mut self, chunk: &HashedChunk<'_>, target: Target, old: Option<Pbn>) {
        let counts = &mut self.counts;
        match target {
            Target::Refused => return,
            Target::Unmapped => counts.zeros += 1,
            Target::Known(pbn) => {
                counts.duplicate += 1;
                counts.equal += u64::from(old == Some(pbn));
            }
            Target::New(_) => counts.unique += 1,
        }
        counts.nodedup += u64::from(matches!(chunk.content, ChunkContent::NoDedup(_)));
        match old {
            Some(_) => counts.overwrites += 1,
            None => counts.new += 1,
        }
    }
}

impl Shared {
    /// For each fingerprinted chunk the block that has its content.
    fn known(&self, chunks: &[HashedChunk<'_>]) -> Result<Vec<Option<Pbn>>> {
        let hash = |chunk: &HashedChunk<'_>| match &chunk.content {
            ChunkContent::Fingerprinted(fingerprint, _) => Some(hash_key(fingerprint)),
            _ => None,
        };
        let hashes: Vec<_> = chunks.iter().filter_map(hash).collect();
        let keys: Vec<_> = hashes.iter().map(|hash| Key::Sparse(hash)).collect();
        let mut found = vec![None; keys.len()];
        self.backend()?.lookup(self.hashes, &keys, &mut found)?;
        Ok(found)
    }

    /// For each chunk the block that its LBN is mapped to.
    fn mapped(
        &self,
        backend: &mut Backend<'_>,
        chunks: &[HashedChunk<'_>],
    ) -> Result<Vec<Option<Pbn>>> {
        let keys: Vec<_> = chunks
            .iter()
            .map(|chunk| Key::Linear(chunk.lbn.0))
            .collect();
        let mut found = vec![None; keys.len()];
        backend.lookup(self.lbns, &keys, &mut found)?;
        Ok(found)
    }
}

/// Blocks that were not written are free again: nothing named them.
fn give_back(backend: &mut Backend<'_>, blocks: &[NewBlock<'_>]) -> Result<()> {
    blocks.iter().try_for_each(|block| {
        backend.inc_ref(block.pbn)?;
        backend.dec_ref(block.pbn).map(drop)
    })
}

fn hash_key(fingerprint: &Fingerprint) -> [u8; HASH_KEY_BYTES] {
    let mut key = [0; HASH_KEY_BYTES];
    key.copy_from_slice(&fingerprint.0[..HASH_KEY_BYTES]);
    key
}

/// Memory in which neighbours are put side by side, so that one write takes them.
pub(super) struct Gather(Buffer);

impl Default for Gather {
    fn default() -> Self {
        Self(Buffer::zeroed(0))
    }
}

impl Gather {
    pub fn ram_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn write(&mut self, data: &DataArea, blocks: &[NewBlock<'_>]) -> Result<()> {
        let bytes = blocks.len() * data.block_bytes();
        if self.0.len() < bytes {
            self.0 = Buffer::zeroed(bytes.max(WRITE_BYTES_MAX));
        }
        let places = self.0.chunks_exact_mut(data.block_bytes());
        for (place, block) in places.zip(blocks) {
            if block.bytes.len() != place.len() {
                return Err(Error::Invalid {
                    what: format!(
                        "a chunk of {} bytes, expected {}",
                        block.bytes.len(),
                        place.len()
                    ),
                });
            }
            place.copy_from_slice(block.bytes);
        }
        data.write(blocks[0].pbn, &self.0[..bytes])
    }
}
