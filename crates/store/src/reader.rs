//! Reading chunks: by reference one at a time, or all that is wanted of a container in one go. Every chunk's
//! fingerprint is verified.
//!
//! A reference whose container is gone is followed through the index, then through all descriptors.

pub(crate) mod cache;
pub(crate) mod elsewhere;
pub(crate) mod recover;
pub(crate) mod recovered;

use std::any::Any;
use std::collections::HashSet;
use std::ops::{Deref, Range};
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use parking_lot::Mutex;

use crate::container;
use crate::container::compression::Decompressor;
use crate::container::opened::{CopyTables, Opened, read_footer};
use crate::objects::local_cache::Copied;
use crate::reader::cache::Cache;
use crate::reader::elsewhere::Elsewhere;
use crate::repository::RepositoryState;
use crate::{ChunkRef, Error, Result};

/// A chunk's bytes, inside the block that was read for it.
#[derive(Clone)]
pub struct ChunkData {
    block: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Deref for ChunkData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.block[self.range.clone()]
    }
}

/// Reads chunks, with caches of blocks and tables that are bounded in bytes. One a thread.
pub struct ChunkReader {
    shared: Arc<RepositoryState>,
    zstd: Decompressor,
    tables: Cache<ContainerId, Opened>,
    /// Raw bytes of blocks, by container and the block's offset: of a damaged container, more of the table may come
    /// with the next look.
    blocks: Cache<(ContainerId, u64), Vec<u8>>,
    /// Values that callers have decoded from chunks' bytes.
    decoded: Cache<(ContainerId, Fingerprint, u32), Decoded>,
    /// For stored blocks that are read together.
    room: Vec<u8>,
    /// Containers whose tables this machine copies.
    copying: CopyTables,
    /// Search through all containers, for chunks that neither their own container nor the index leads to; one for all
    /// readers of a session.
    elsewhere: Arc<Mutex<Elsewhere>>,
    /// Containers that did not give what was read of them: the session stores their chunks again. One set for all
    /// readers of a session.
    found_damaged: Arc<Mutex<HashSet<ContainerId>>>,
}

/// A value that a caller made of a chunk's bytes.
type Decoded = Arc<dyn Any + Send + Sync>;

/// Four blocks of metadata. Where a snapshot's folders were stored by several backups, its leaves and their recipes
/// come from the blocks of these by turns: with room for one or two, each leaf cost one that was read and decoded anew.
pub(crate) const METADATA_CACHE_BYTES: usize = 36 << 20;
/// Some blocks of data, or one of metadata.
pub(crate) const DATA_CACHE_BYTES: usize = 16 << 20;
/// Bytes of the block cache where everything is read in order, once, which needs the last block only.
pub(crate) const SMALL_CACHE_BYTES: usize = 2 << 20;
/// Largest number of bytes of cached descriptors; a reader with a small block cache has half of that cache's size.
const TABLE_CACHE_BYTES: usize = 8 << 20;
/// Largest number of bytes of cached values that users decoded from chunks: one of the largest recipe chunks, or a
/// hundred usual ones.
const DECODED_CACHE_BYTES: usize = 4 << 20;
/// Neighbouring blocks are read together up to this many bytes.
const READ_BYTES: u64 = 4 << 20;
/// Largest number of times that a chunk is looked for again because it was swept away in between.
const MOVES_MAX: usize = 3;

impl ChunkReader {
    /// Makes a reader that keeps `cache_bytes` of blocks.
    pub(crate) fn new(
        shared: Arc<RepositoryState>,
        elsewhere: Arc<Mutex<Elsewhere>>,
        found_damaged: Arc<Mutex<HashSet<ContainerId>>>,
        cache_bytes: usize,
    ) -> Result<Self> {
        Ok(Self {
            shared,
            elsewhere,
            found_damaged,
            zstd: Decompressor::new()?,
            room: Vec::new(),
            tables: Cache::new(TABLE_CACHE_BYTES.min(cache_bytes / 2)),
            blocks: Cache::new(cache_bytes),
            decoded: Cache::new(DECODED_CACHE_BYTES.min(cache_bytes)),
            copying: if cache_bytes > SMALL_CACHE_BYTES {
                CopyTables::All
            } else {
                CopyTables::OfMetadata
            },
        })
    }

    /// Returns the value that `decode` makes of the chunk's bytes; `decode` returns it with its heap bytes. The last
    /// values are kept, so a chunk that many refer to is decoded once. For each chunk there is one type of value.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn decoded<T: Send + Sync + 'static>(
        &mut self,
        chunk: &ChunkRef,
        decode: impl FnOnce(&[u8]) -> (T, usize),
    ) -> Result<Arc<T>> {
        let key = (chunk.container, chunk.fingerprint, chunk.len);
        let kept = self.decoded.get(&key);
        if let Some(value) = kept.and_then(|kept| Arc::clone(&*kept).downcast().ok()) {
            return Ok(value);
        }
        let (value, bytes) = decode(&self.read(chunk)?);
        let value = Arc::new(value);
        self.decoded.put(key, value.clone(), bytes);
        Ok(value)
    }

    /// The bytes of a chunk.
    ///
    /// # Errors
    /// [`Error::Lost`] where it is in no container; [`Error::Damaged`] where it does not read as what was written, or
    /// is not as long as the reference says.
    pub fn read(&mut self, chunk: &ChunkRef) -> Result<ChunkData> {
        let data = self.read_any_length(chunk)?;
        if data.len() == chunk.len as usize {
            Ok(data)
        } else {
            Err(Error::other_length(
                &chunk.fingerprint,
                chunk.len,
                data.len(),
            ))
        }
    }

    fn read_any_length(&mut self, chunk: &ChunkRef) -> Result<ChunkData> {
        let mut gone = None;
        let mut lost = Error::Lost {
            fingerprint: chunk.fingerprint,
            container: chunk.container,
        };
        match self.read_from(chunk.container, &chunk.fingerprint) {
            Ok(Some(data)) => return Ok(data),
            // The container can be read in part only: this is the reason why the chunk is lost.
            Ok(None) => {
                let recovered = self.shared.recovered(chunk.container);
                lost = recovered.and_then(|opened| opened.loss()).unwrap_or(lost);
            }
            Err(error) if error.is_not_found() => gone = Some(chunk.container),
            // Not to be had here; it may lie elsewhere, too.
            Err(error) if error.is_loss() => lost = error,
            Err(error) => return Err(error),
        }
        let (mut tried, mut moves) = (vec![chunk.container], 0);
        while let Some(moved) = self.find_moved(&chunk.fingerprint, &tried, gone)? {
            match self.read_from(moved, &chunk.fingerprint) {
                Ok(Some(data)) => return Ok(data),
                // Where it was found it may be swept again before it is read.
                Err(error) if error.is_not_found() && moves < MOVES_MAX => {
                    (gone, moves) = (Some(moved), moves + 1);
                }
                Err(error) if !error.is_loss() => return Err(error),
                // Another copy may be better.
                Ok(None) | Err(_) => tried.push(moved),
            }
        }
        Err(lost)
    }

    /// All `wanted` chunks of one container, each block read and decoded once, in the container's order. Gives those
    /// that it does not hold.
    ///
    /// # Errors
    /// Those of `read`; what `visit` returns.
    pub fn read_container(
        &mut self,
        id: ContainerId,
        wanted: &[Fingerprint],
        visit: &mut dyn FnMut(&Fingerprint, &[u8]) -> Result<()>,
    ) -> Result<Vec<Fingerprint>> {
        let opened = match self.open_what_is_left(id) {
            Ok(opened) => opened,
            Err(error) if error.is_not_found() => {
                return Ok(wanted.to_vec());
            }
            Err(error) => return Err(error),
        };
        let mut missing = Vec::new();
        let mut chunks = Vec::with_capacity(wanted.len());
        for fingerprint in wanted {
            match opened.find(fingerprint) {
                Some(chunk) => chunks.push(chunk),
                None => missing.push(*fingerprint),
            }
        }
        chunks.sort_unstable();
        chunks.dedup();
        let mut rest = &chunks[..];
        let mut room = std::mem::take(&mut self.room);
        while let Some(first) = rest.first() {
            let gap_bytes = self.shared.place.ways.gap_bytes;
            let (blocks, bytes) = read_together(&opened, *first, rest, gap_bytes);
            let base = bytes.start;
            let len = (bytes.end - base) as usize;
            room.resize(room.len().max(len), 0);
            let stored = &mut room[..len];
            self.shared
                .objects
                .get_range(&container::object_name(id), base, stored)?;
            for number in blocks {
                let block = &opened.table.blocks[number];
                let end = block.first_chunk + block.chunks;
                let (own, after) = rest.split_at(rest.partition_point(|chunk| *chunk < end));
                rest = after;
                if own.is_empty() {
                    continue;
                }
                let range = opened.block_range(number);
                let slice = &mut stored[(range.start - base) as usize..(range.end - base) as usize];
                let raw = opened.decode_read_block(&self.shared, number, slice, &mut self.zstd)?;
                for (chunk, verdict) in opened.verify(&self.shared, own.iter().copied(), &raw) {
                    visit(&opened.table.chunks[chunk as usize].0, verdict?)?;
                }
            }
        }
        self.room = room;
        Ok(missing)
    }

    /// Reads chunks that a container does not give from the containers that the index names now, as
    /// [`read_container`](Self::read_container) does: chunks that a sweep has moved lie side by side, and reading one
    /// by one would cost a block for each. Chunks that are still missing may be asked for by [`read`](Self::read).
    ///
    /// # Errors
    /// Errors of `visit`, and of the index except damage.
    pub fn read_moved(
        &mut self,
        from: ContainerId,
        wanted: &[Fingerprint],
        visit: &mut dyn FnMut(&Fingerprint, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut places = vec![None; wanted.len()];
        let asked = self.shared.index.read().lookup(wanted, &mut places);
        match asked.map_err(Error::from) {
            // A reader can do without the index.
            Err(error) if error.is_loss() => return Ok(()),
            other => other?,
        }
        let moved = wanted.iter().zip(places);
        let moved = moved.filter_map(|(chunk, place)| Some((place?.container, *chunk)));
        let mut moved: Vec<_> = moved.filter(|(place, _)| *place != from).collect();
        moved.sort_unstable();
        for group in moved.chunk_by(|a, b| a.0 == b.0) {
            let chunks: Vec<_> = group.iter().map(|(_, chunk)| *chunk).collect();
            let mut refused = None;
            let read = self.read_container(group[0].0, &chunks, &mut |chunk, bytes| {
                visit(chunk, bytes).inspect_err(|_| refused = Some(()))
            });
            // Why a chunk does not come is told to who asks for it.
            if refused.is_some() {
                read?;
            }
        }
        Ok(())
    }

    /// The chunk, if the container holds it. Of one that is gone, what was known is forgotten.
    fn read_from(
        &mut self,
        id: ContainerId,
        fingerprint: &Fingerprint,
    ) -> Result<Option<ChunkData>> {
        let read = self.read_there(id, fingerprint);
        match &read {
            Err(error) if error.is_not_found() => {
                self.forget_table(id);
                self.shared.forget_recovered(id);
            }
            Err(error) if error.is_loss() => {
                self.found_damaged.lock().insert(id);
            }
            // The chunk may be in the lost part of this damaged container.
            Ok(None) if self.shared.recovered(id).is_some() => {
                self.found_damaged.lock().insert(id);
            }
            _ => {}
        }
        read
    }

    /// The next reading of a container's descriptors is from the store, not from this machine's copy.
    pub(crate) fn read_table_anew(&mut self, id: ContainerId) {
        if self.shared.local_cache.is_some() {
            self.forget_table(id);
        }
    }

    /// Forgets a container's descriptors, in this process and on this machine.
    fn forget_table(&mut self, id: ContainerId) {
        self.tables.forget(&id);
        if let Some(cache) = &self.shared.local_cache {
            cache.forget(Copied::Table(id));
        }
    }

    fn read_there(
        &mut self,
        id: ContainerId,
        fingerprint: &Fingerprint,
    ) -> Result<Option<ChunkData>> {
        let mut opened = self.open_what_is_left(id)?;
        let mut found = opened.find(fingerprint);
        if found.is_none()
            && self.shared.is_worth_another_look(&opened)
            && let Ok(whole) = self.open(id)
        {
            self.shared.forget_recovered(id);
            found = whole.find(fingerprint);
            opened = whole;
        }
        let Some(chunk) = found else {
            return Ok(None);
        };
        let number = opened.table.block_of(chunk);
        let place = (id, opened.block_range(number).start);
        let known = self.blocks.get(&place);
        let whole = |block: &Arc<Vec<u8>>| block.len() >= opened.chunk_range(chunk).end;
        let block = match known.filter(whole) {
            Some(block) => block,
            None => {
                let raw = opened.read_block(&self.shared, number, &mut self.zstd)?;
                let bytes = raw.len();
                self.blocks.put(place, raw, bytes)
            }
        };
        let data = ChunkData {
            range: opened.chunk_range(chunk),
            block,
        };
        let found = self.shared.keys.fingerprinter().fingerprint(&data);
        opened.confirm(chunk, &found)?;
        Ok(Some(data))
    }

    /// Returns the number of chunks in a container, by its footer; where that does not tell, as many as most have.
    pub(crate) fn chunks_in(&self, id: ContainerId) -> u64 {
        const MOST: u32 = 2048;
        read_footer(&self.shared, id)
            .map_or(MOST, |footer| footer.chunks)
            .into()
    }

    /// A container's descriptors; of a damaged one, those of all that can be read of it.
    pub(crate) fn open_what_is_left(&mut self, id: ContainerId) -> Result<Arc<Opened>> {
        if let Some(opened) = self.tables.get(&id).or_else(|| self.shared.recovered(id)) {
            return Ok(opened);
        }
        match self.open(id) {
            Err(error) if error.is_loss() => {
                let left = self.shared.recover(id, &error, true)?;
                left.ok_or(error)
            }
            other => other,
        }
    }

    /// A container's descriptors, if it is whole. Callers conclude from them that a chunk is not in the container, so
    /// those that are left of a damaged one will not do.
    pub(crate) fn open(&mut self, id: ContainerId) -> Result<Arc<Opened>> {
        if let Some(opened) = self.tables.get(&id) {
            return Ok(opened);
        }
        let opened = Opened::read_copying(&self.shared, id, self.copying)?;
        let bytes = opened.ram_bytes();
        Ok(self.tables.put(id, opened, bytes))
    }

    /// Where else than in the containers `tried` a chunk lies: the index is asked, then all descriptors. `gone` is a
    /// container that was found gone.
    fn find_moved(
        &mut self,
        fingerprint: &Fingerprint,
        tried: &[ContainerId],
        gone: Option<ContainerId>,
    ) -> Result<Option<ContainerId>> {
        let mut found = [None];
        let asked = self.shared.index.read().lookup(&[*fingerprint], &mut found);
        if let Err(error) = asked.map_err(Error::from) {
            // A reader can do without the index; a writer makes it anew.
            if !error.is_loss() {
                return Err(error);
            }
            found = [None];
        }
        let (shared, elsewhere) = (Arc::clone(&self.shared), Arc::clone(&self.elsewhere));
        // The table of a container that has failed to give the chunk may list it all the same.
        let mut lists = |id: &ContainerId| {
            let is_there = Some(*id) != gone;
            is_there
                && matches!(self.open_what_is_left(*id), Ok(own) if own.find(fingerprint).is_some())
        };
        let is_listed = tried.iter().any(&mut lists);
        let mut holds = |id: ContainerId| -> Result<bool> {
            Ok(!tried.contains(&id)
                && Some(id) != gone
                && self.open_what_is_left(id)?.find(fingerprint).is_some())
        };
        if let [Some(location)] = found
            && matches!(holds(location.container), Ok(true))
        {
            return Ok(Some(location.container));
        }
        elsewhere
            .lock()
            .find(&shared, (fingerprint, is_listed), gone, &mut holds)
    }
}

/// The blocks from that of chunk `first` on which are worth one read, and their bytes: no two of them are further apart
/// than `gap_bytes`.
fn read_together(
    opened: &Opened,
    first: u32,
    wanted: &[u32],
    gap_bytes: u64,
) -> (std::ops::RangeInclusive<usize>, Range<u64>) {
    let start = opened.table.block_of(first);
    let (mut last, mut bytes) = (start, opened.block_range(start));
    for chunk in wanted {
        let number = opened.table.block_of(*chunk);
        let next = opened.block_range(number);
        if next.start > bytes.end + gap_bytes
            || next.end - bytes.start > READ_BYTES.max(bytes.end - bytes.start)
        {
            break;
        }
        (last, bytes.end) = (number, next.end);
    }
    (start..=last, bytes)
}
