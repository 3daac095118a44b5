//! The deduplicated block device: a front that does what every block device must do, and engines behind it.
//!
//! ```text
//! transport ─▶ BlockDevice (Front) ─▶ Engine ─▶ data device and metadata
//! ```
//!
//! Transports (NBD, FUSE) live in another crate and know only [`BlockDevice`]. The front splits requests into chunks,
//! fingerprints them and orders them; an [`Engine`] decides where a chunk lies and what is durable when. The `dmdedup`
//! engine stands on a [`MetadataBackend`], the seam of the Dmdedup report (§3.2), so that a researcher can plug in a
//! backend of their own.
#![forbid(unsafe_code)]

mod backend;
mod block_states;
pub mod cbt;
mod compression;
pub mod conformance;
pub mod depot;
mod device;
pub mod dmdedup;
pub mod dtb;
pub mod dump;
mod engine;
mod error;
pub mod front;
pub mod fullness;
pub mod heads;
pub mod hints;
pub mod inram;
pub mod log;
mod page_cache;
mod probing;
mod side_threads;
mod store_shape;

pub use backend::{BackendStats, Durability, Key, MetadataBackend, StoreId, Supported};
pub use compression::Compression;
pub use depot::Depot;
pub use device::{BlockDevice, Completion, ExtentKind, Geometry, Hints, Op, Request, Visit};
pub use engine::{
    ChangeKind, ChunkContent, ChunkRead, ChunkReader, Collected, Effort, Engine, EngineStats,
    FINDINGS_MAX, Finding, FreeSpace, HashedChunk, Lbn, NameChunks, Pbn, Sequence,
};
pub use error::{Error, Result};
pub use heads::{HeadChange, HeadId, HeadInfo};
/// Memory of a request: it begins at a page border, as direct I/O wants it.
pub use onefold_io::PageBuffer as Buffer;
