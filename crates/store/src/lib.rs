//! Containers, sessions, sweep, verify and repair. The store knows no file, path or socket of its users.
//!
//! The way down: a [`Session`] gives a [`ChunkWriter`], which drops duplicates, gathers blocks, and stores containers.
//! The way up: a [`ChunkReader`] finds a chunk in the container that its [`ChunkRef`] names. Containers are the truth,
//! the index is advice.
#![forbid(unsafe_code)]

mod check;
pub mod conformance;
pub mod container;
mod error;
mod folders;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod listing;
pub mod objects;
pub mod protocol;
mod reader;
pub mod registry;
mod repair;
mod repository;
mod root;
mod root_id;
mod roots;
mod session;
mod sweep;

pub use onefold_chunk::{Fingerprint, digest};
pub use onefold_index::{ContainerId, IndexKind};
pub use onefold_io::ASIDE_SUFFIX;
pub use onefold_keys::{Entropy, Fingerprinter, KdfCost, KeyInfo, NO_RANDOMNESS, Secret};

pub use check::{CheckDepth, CheckReport, LostChunks};
pub use container::compression::Compression;
pub use container::{CONTAINER_FOLDER, StreamKind};
pub use container::{block, compression, footer};
pub use error::{Error, Result};
pub use index::imagined::EXACT_MAX as DRY_RUN_EXACT_CHUNKS;
pub use index::{catalog, ingested, sketch};
pub use objects::local_cache::{LOCAL_CACHE_BYTES, LOCAL_CACHE_FOLDER};
pub use objects::{local_cache, simulated};
pub use reader::{ChunkData, ChunkReader};
pub use registry::PinInfo;
pub use registry::hold::Hold;
pub use registry::still::HeldStill;
pub use repair::RepairReport;
pub use repair::aside::Aside;
pub use repository::config::{Encryption, RepositoryConfig};
pub use repository::place::{IntoPlace, Place, Ways};
pub use repository::{INDEX_FOLDER, InitOptions, OpenOptions, Repository};
pub use repository::{config, replica, slots};
pub use roots::{ROOT_FOLDER, RootId, Roots, RootsLock, Seen};
pub use session::sealing::Packing;
pub use session::writer::{ChunkToWrite, ChunkWriter, WriteStats, Written};
pub use session::{Session, SessionKind};
pub use sweep::{StageProgress, SweepObserver, SweepOptions, SweepReport, Unused};
pub use sweep::{condemned, forgotten};

/// A chunk, and the container that held it when the reference was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ChunkRef {
    /// The chunk's name.
    pub fingerprint: Fingerprint,
    /// Where it lay; if the sweep has moved it, the index knows.
    pub container: ContainerId,
    /// Its length in bytes.
    pub len: u32,
}
