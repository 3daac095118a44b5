//! The seam between the front and an engine: whole chunks, in the order in which they were acknowledged.
//!
//! An engine has one writer and any number of readers beside it. It decides where chunks lie, which of them are known
//! already, and what is durable when.

use std::ops::Range;
use std::sync::Arc;

use onefold_chunk::Fingerprint;

use crate::{Error, ExtentKind, HeadChange, HeadId, HeadInfo, Result};

/// Logical block number: a chunk's place on a volume, in chunks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lbn(pub u64);

/// Physical block number: a chunk's place on the data device, in chunks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pbn(pub u64);

/// Everything up to here is written: a number that grows with each [`Engine::write_out`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Sequence(pub u64);

/// Places chunks and knows which are there already. One thread writes; [`reader`](Engine::reader) serves the others.
pub trait Engine: Send {
    /// Stores `chunks`, in order of acknowledgement; of two to one LBN the later wins. It may return before they are
    /// written: they can be read once the call is no [`unsettled`](Engine::unsettled) one, and survive a crash after
    /// [`commit`](Engine::commit). Returns the positions of the chunks that it refused, ascending: they need a page, and
    /// have none or the device has none left. All others are stored.
    ///
    /// # Errors
    /// A device failed, in this call or behind an earlier one, and the engine takes no writes from then on. Chunks of
    /// calls that are not settled may be stored or not; each LBN holds its old or its new content, whole.
    fn write(&mut self, chunks: &[HashedChunk<'_>]) -> Result<Vec<usize>>;

    /// How many of the last calls of [`write`](Engine::write) have not ended: readers may not find their chunks yet.
    /// Calls end in their order. An engine whose calls end when they return has none.
    fn unsettled(&self) -> usize {
        0
    }

    /// Unmaps whole chunks: they read as zeros when it returns.
    ///
    /// # Errors
    /// The metadata cannot be changed.
    fn discard(&mut self, head: HeadId, lbns: Range<u64>) -> Result<()>;

    /// Everything written so far is on the device, perhaps in its cache, and settled.
    ///
    /// # Errors
    /// The device failed: nothing is known of what was written since the last commit.
    fn write_out(&mut self) -> Result<Sequence>;

    /// Everything written so far survives any crash, and is settled.
    ///
    /// # Errors
    /// The device failed; the engine takes no writes from then on.
    fn commit(&mut self) -> Result<()>;

    /// Writes what makes the next opening short, or possible at all: a checkpoint, or the whole metadata of a backend
    /// that lives in RAM. Commits, too.
    ///
    /// # Errors
    /// As of [`commit`](Engine::commit).
    fn checkpoint(&mut self) -> Result<()>;

    /// Commits, makes a checkpoint, and ends. Readers fail from then on.
    ///
    /// # Errors
    /// As of [`commit`](Engine::commit).
    fn close(self: Box<Self>) -> Result<()>;

    /// The volumes and snapshots that it keeps by name. One that keeps none has the one volume of its depot.
    fn heads(&self) -> Vec<HeadInfo> {
        Vec::new()
    }

    /// Makes, copies, deletes or grows a volume or snapshot, and returns its number; commits everything that was
    /// written before. Later writes to a deleted one are dropped.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: the engine keeps one volume alone. [`Error::Invalid`], [`Error::Exists`],
    /// [`Error::NoSpace`]: nothing was changed. A device failed.
    fn change_heads(&mut self, change: &HeadChange) -> Result<HeadId> {
        let _ = change;
        Err(Error::Unsupported {
            what: "this backend keeps one volume and no snapshots: the backend log keeps more"
                .into(),
        })
    }

    /// Uses this many bytes of the data device, which is longer by now. Returns how many it uses then: whole zones.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: the engine's device cannot grow. [`Error::Invalid`]; [`Error::NoSpace`]: nothing was
    /// changed. A device failed.
    fn grow_device(&mut self, bytes: u64) -> Result<u64> {
        let _ = bytes;
        Err(Error::Unsupported {
            what: "the data device of this backend cannot grow: that of the backend log can".into(),
        })
    }

    /// Reads beside the writer, by any number of threads.
    fn reader(&self) -> Arc<dyn ChunkReader>;

    /// Collects garbage.
    ///
    /// # Errors
    /// A device failed. Nothing that is mapped is lost.
    fn collect(&mut self, effort: Effort) -> Result<Collected>;

    /// Pages of the data device: free, reclaimable, reserved.
    fn free_space(&self) -> FreeSpace;

    /// Counters since the engine was opened, and what it holds.
    fn stats(&self) -> EngineStats;
}

/// Reads chunks of a volume or snapshot.
pub trait ChunkReader: Send + Sync {
    /// Fills the buffer of each read; unmapped chunks are zeros. The reads go to the device together.
    ///
    /// # Errors
    /// A device failed, or a chunk is not what was written: [`Damaged`](crate::Error::Damaged). What any buffer holds
    /// then means nothing.
    fn read(&self, head: HeadId, reads: &mut [ChunkRead<'_>]) -> Result<()>;

    /// As [`read`](ChunkReader::read) of chunks that are written elsewhere soon (hint PREFETCH, report chapter 5): the
    /// engine may remember by their fingerprints where they lie, so that these writes need no lookup in its index.
    ///
    /// # Errors
    /// As of [`read`](ChunkReader::read).
    fn read_and_remember(
        &self,
        head: HeadId,
        reads: &mut [ChunkRead<'_>],
        name: NameChunks<'_>,
    ) -> Result<()> {
        let _ = name;
        self.read(head, reads)
    }

    /// Calls `visit` for each stretch of `lbns`, in order and without gaps, until it gives `false`.
    ///
    /// # Errors
    /// The metadata cannot be read.
    fn extents(
        &self,
        head: HeadId,
        lbns: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, ExtentKind) -> bool,
    ) -> Result<()>;

    /// Tells for each stretch of `lbns`, in order and without gaps, how `head` differs from `base` there, until `visit`
    /// gives `false`. Both are snapshots, or the base is none: then everything counts as changed.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: the engine keeps no snapshots to compare. The metadata cannot be read.
    fn changes(
        &self,
        base: Option<HeadId>,
        head: HeadId,
        lbns: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, ChangeKind) -> bool,
    ) -> Result<()> {
        match base {
            Some(_) => Err(Error::Unsupported {
                what: "this backend keeps no snapshots to compare".into(),
            }),
            None => self.extents(head, lbns, &mut |lbns, kind| match kind {
                ExtentKind::Data => visit(lbns, ChangeKind::Data),
                ExtentKind::Hole => visit(lbns, ChangeKind::Hole),
            }),
        }
    }

    /// Looks whether the engine's structures are what was written, beside the writer, and returns what is amiss. With
    /// `name` also stored chunks, where only their fingerprints can tell; an engine whose reads prove themselves leaves
    /// that to reads. Lists [`FINDINGS_MAX`] at most; calls `goes_on` often, and ends with its error.
    ///
    /// # Errors
    /// A device failed. Damage is no error.
    fn check(
        &self,
        name: Option<NameChunks<'_>>,
        goes_on: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<Finding>> {
        let _ = (name, goes_on);
        Ok(Vec::new())
    }
}

/// How a stretch of one snapshot differs from another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// Both hold the same.
    Same,
    /// The stretch holds chunks, which may be other ones.
    Data,
    /// The stretch is unmapped, whatever the other one holds.
    Hole,
}

/// Findings of a check at most: more say nothing new, and take RAM.
pub const FINDINGS_MAX: usize = 1000;

/// Fingerprints chunks with the depot's key.
pub type NameChunks<'a> = &'a dyn Fn(&[&[u8]]) -> Vec<Fingerprint>;

/// Something that is not what was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// File or device, and where in it.
    pub place: String,
    /// Expected and found.
    pub what: String,
    /// Chunks of volumes that are not what they were because of it, where that is known.
    pub chunks: Vec<(HeadId, u64)>,
}

/// Neighbouring chunks to read.
pub struct ChunkRead<'a> {
    /// The first chunk's place on the volume.
    pub lbn: Lbn,
    /// Memory of one or more whole chunks.
    pub buffer: &'a mut [u8],
}

/// One chunk to store.
#[derive(Clone, Copy)]
pub struct HashedChunk<'a> {
    /// The volume.
    pub head: HeadId,
    /// The chunk's place on it.
    pub lbn: Lbn,
    /// The chunk's content.
    pub content: ChunkContent<'a>,
    /// Whether a page was set aside for it. Without one it is stored only where no page is needed: it is known already,
    /// or zeros.
    pub has_page: bool,
    /// Metadata of a file system: may use the space that is kept for it.
    pub is_metadata: bool,
    /// Whether compression is not worth trying (hint *bypass compression*).
    pub is_incompressible: bool,
}

/// Content of a chunk.
#[derive(Clone, Copy)]
pub enum ChunkContent<'a> {
    /// Zeros alone: no page is needed.
    Zero,
    /// Bytes and their fingerprint.
    Fingerprinted(Fingerprint, &'a [u8]),
    /// Bytes that are not to be deduplicated: no fingerprint, no lookup (hint NODEDUP, report §5.1).
    NoDedup(&'a [u8]),
}

/// How much garbage collection is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// All garbage that there is.
    Whole,
    /// One step of bounded work.
    Step,
}

/// Result of a collection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Collected {
    /// Pages that can be written again.
    pub pages_freed: u64,
    /// Pages that were moved for it.
    pub pages_copied: u64,
    /// Whether there may be more.
    pub is_more: bool,
}

/// Pages of the data device, in chunks of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FreeSpace {
    /// All there are.
    pub total: u64,
    /// Can be written now.
    pub free: u64,
    /// Hold nothing that is mapped, and can be written after a collection.
    pub reclaimable: u64,
    /// Reclaimable pages that nobody has looked at since they were written. Each may be mapped, and counts as live.
    pub fresh: u64,
    /// Other reclaimable pages that nobody has looked at since the depot was opened: they may be mapped.
    pub unseen: u64,
    /// Free pages that are kept for collection, journal and file systems' metadata.
    pub reserved: u64,
    /// Pages that may be promised to writes of data before they are stored: at most the free ones less the reserved
    /// ones, and fewer where an engine may need more than a page for a chunk.
    pub claimable_data: u64,
    /// As much for metadata of file systems, which may use the reserve.
    pub claimable_metadata: u64,
    /// Pages for which the host's file system has no room now. They count as free nowhere.
    pub missing: u64,
}

impl FreeSpace {
    /// Pages that writes of data can still take, once all that may be garbage is collected.
    pub fn left(&self) -> u64 {
        self.free.saturating_sub(self.reserved) + self.reclaimable
    }

    /// Pages that hold something that is mapped, of those that data may take; at most [`usable`](Self::usable).
    pub fn live(&self) -> u64 {
        let left = self.left().saturating_sub(self.fresh);
        self.usable().saturating_sub(left)
    }

    /// How much garbage there is; `None` as long as nobody has looked at all that is stored.
    pub fn known_garbage(&self) -> Option<u64> {
        (self.unseen == 0).then_some(self.reclaimable.saturating_sub(self.fresh))
    }

    /// How full the device is for data at most, in percent, where so many pages are mapped.
    pub fn full_percent_max(&self, mapped: u64) -> u64 {
        let live = self.live() + self.unseen.min(mapped);
        match self.usable() {
            0 => 100,
            usable => (live * 100 / usable).min(100),
        }
    }

    /// Pages that data may take.
    pub fn usable(&self) -> u64 {
        self.total.saturating_sub(self.reserved)
    }

    /// How full the device is for data, after a collection, in percent; too little while pages are
    /// [unseen](Self::unseen).
    pub fn full_percent(&self) -> u64 {
        match self.usable() {
            0 => 100,
            usable => self.live() * 100 / usable,
        }
    }
}

/// The report's statistics (§3.5), and what each engine adds as named counters.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EngineStats {
    /// Chunks of which the content was new.
    pub unique_writes: u64,
    /// Chunks that were there already.
    pub duplicate_writes: u64,
    /// Writes to LBNs that were mapped.
    pub overwrites: u64,
    /// Writes to LBNs that were not.
    pub new_writes: u64,
    /// Chunks of zeros.
    pub zero_writes: u64,
    /// Chunks unmapped by discards.
    pub discards: u64,
    /// LBNs that are mapped now.
    pub mapped_lbns: u64,
    /// Chunks stored on the data device now.
    pub stored_chunks: u64,
    /// Entries of the hash index.
    pub hash_entries: u64,
    /// Bytes of RAM, by part.
    pub ram_bytes: Vec<(&'static str, u64)>,
    /// Page reads and writes of metadata, by kind, and whatever else an engine counts.
    pub counters: Vec<(&'static str, u64)>,
}
