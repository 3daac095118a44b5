//! Engine `log`: data and journal are one sequential log of zones, so a flush costs one sync and random writes become
//! sequential.
//!
//! ```text
//! write ─▶ known? (pending group, open zone, hash index + rows) ─▶ group, packed ─▶ zone      the map names the chunk
//! flush ─▶ close the group, one sync
//! checkpoint ─▶ memtables become runs of the map, manifest
//! open  ─▶ manifest ─▶ replay of the groups behind its position
//! snap  ─▶ checkpoint, a head with the same runs, manifest
//! clean ─▶ checkpoint, mark from the maps, copy what lives, sync, manifest with relocations, free
//! ```
//!
//! There are no reference counts: what no map names is garbage, and cleaning finds that out by reading the maps. An
//! index answer is a hit only if the zone is there and its rows hold the hash, so the index may say anything it was
//! ever told.
//!
//! Invariant: a page is named by a durable manifest or a durable group only after it was synced itself; a zone is
//! filled anew only after a durable manifest without it; an id is given once.

mod ballast;
mod budget;
mod changes;
mod check;
mod checkpoint;
mod checks;
mod clean;
mod commit;
mod copy;
mod damaged;
pub mod dump;
mod faults;
mod figures;
pub mod formats;
mod group;
mod group_buffer;
mod group_disk;
mod hash_index;
mod heads;
mod layout;
mod living;
mod manifest;
mod map;
mod mark;
mod merging;
mod packed_page;
mod packed_reads;
mod packer;
mod page_sealer;
mod part;
mod pending;
mod prefetched;
mod reader;
mod recover;
mod relocations;
mod replayed_rows;
mod rewrite;
mod room;
mod seals;
mod shared;
mod sizes;
mod tables;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod used_nonces;
mod verify;
mod writer;
mod zone;
mod zone_buffers;
mod zone_list;
mod zone_table;
mod zones;

use std::ops::Range;
use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::ChunkIndex;
use onefold_io::{Dir, Disk};

use crate::{
    ChunkReader, Collected, Compression, Effort, Engine, EngineStats, FreeSpace, HashedChunk,
    HeadChange, HeadId, HeadInfo, Result, Sequence,
};
pub use budget::Budget;
pub use layout::{DEVICE_HEAD_BYTES, Layout};
pub use map::settle::MergeSizes;
pub use part::DiskPart;
use reader::LogReader;
pub use seals::Seals;
pub use sizes::LogSizes;
pub use writer::LogEngine;
pub use zone::end_of_zones;

/// Names chunks: the depot's hash with the depot's key.
pub type Fingerprinter = Arc<dyn Fn(&[&[u8]]) -> Vec<Fingerprint> + Send + Sync>;

/// Nanoseconds from any start.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Settings that an engine `log` is opened with.
pub struct LogOptions {
    /// The depot's id: zones of another one are not taken for ours.
    pub depot: [u8; 16],
    /// Names chunks that recovery finds in groups without rows.
    pub fingerprint: Fingerprinter,
    /// The volume of a new depot, and of one whose manifest knows no names.
    pub first: HeadInfo,
    /// The hash index, perhaps empty: what it does not know is stored again.
    pub index: Box<dyn ChunkIndex>,
    /// How large its parts may become.
    pub sizes: LogSizes,
    /// How new chunks are packed. What is there is read whatever it says.
    pub compression: Compression,
    /// Keys that everything is sealed with, or none.
    pub seals: Seals,
    /// No threads: the same work gives the same I/O.
    pub is_inline: bool,
    /// How often a full host is asked for room goes by it; without one, at each occasion.
    pub clock: Option<Clock>,
}

impl LogEngine {
    /// An engine over an empty `data`, all of it, with its manifest in `dir`.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) where the device is too small or the chunk size does not fit; a failed device.
    pub fn create(
        dir: Arc<dyn Dir>,
        data: Arc<dyn Disk>,
        chunk_bytes: u32,
        options: LogOptions,
    ) -> Result<Self> {
        recover::create(dir, data, chunk_bytes, options)
    }

    /// The layout that the manifest in `dir` says; `None`: there is no manifest.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged); the folder cannot be read.
    pub fn layout_in(dir: &dyn Dir, seals: &Seals) -> Result<Option<Layout>> {
        match onefold_io::if_there(dir.open(manifest::NAME))? {
            None => Ok(None),
            Some(_) => Ok(Some(manifest::Manifest::read(dir, seals)?.layout)),
        }
    }

    /// The engine as the last commit left it, and whatever reached the device after that.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged) where manifest or journal are not what was written; a failed device.
    pub fn open(dir: Arc<dyn Dir>, data: Arc<dyn Disk>, options: LogOptions) -> Result<Self> {
        recover::open(dir, data, options)
    }
}

impl Engine for LogEngine {
    fn write(&mut self, chunks: &[HashedChunk<'_>]) -> Result<Vec<usize>> {
        self.write_chunks(chunks)
    }

    fn discard(&mut self, head: HeadId, lbns: Range<u64>) -> Result<()> {
        self.unmap(head, lbns)
    }

    fn write_out(&mut self) -> Result<Sequence> {
        self.write_groups()?;
        self.ask_for_room()?;
        Ok(Sequence(self.sequence() - 1))
    }

    fn commit(&mut self) -> Result<()> {
        self.sync_log()
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.ask_for_room()?;
        self.checkpoint_if_changed()?;
        self.give_back_room().map(drop)
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.merging.cancel();
        match self.checkpoint_if_changed() {
            // The journal has everything; the next opening reads more of it.
            Err(error) if error.is_shortage() => self.sync_log()?,
            done => done?,
        }
        self.give_back_room().map(drop)
    }

    fn heads(&self) -> Vec<HeadInfo> {
        self.heads.iter().cloned().collect()
    }

    fn grow_device(&mut self, bytes: u64) -> Result<u64> {
        LogEngine::grow_device(self, bytes)
    }

    fn change_heads(&mut self, change: &HeadChange) -> Result<HeadId> {
        LogEngine::change_heads(self, change)
    }

    fn reader(&self) -> Arc<dyn ChunkReader> {
        Arc::new(LogReader(Arc::clone(self.shared())))
    }

    fn collect(&mut self, effort: Effort) -> Result<Collected> {
        self.clean(effort)
    }

    fn free_space(&self) -> FreeSpace {
        self.space()
    }

    fn stats(&self) -> EngineStats {
        self.figures()
    }
}
