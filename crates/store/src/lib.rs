//! Containers, sessions, sweep, verify and repair. The store knows no file, path or socket of its users.
//!
//! The way down: a [`Session`] gives a [`ChunkWriter`], which drops duplicates, gathers blocks, and stores containers.
//! The way up: a [`ChunkReader`] finds a chunk in the container that its [`ChunkRef`] names. Containers are the truth,
//! the index is advice.
#![forbid(unsafe_code)]

mod aside;
pub mod block;
mod building;
mod cache;
pub mod catalog;
mod check;
pub mod compression;
pub mod condemned;
pub mod config;
pub mod conformance;
pub mod container;
mod elsewhere;
mod error;
pub mod footer;
pub mod forgotten;
#[doc(hidden)]
pub mod fuzzing;
mod hold;
mod hooked;
mod imagined;
mod index;
pub mod ingested;
mod listing;
pub mod local_cache;
mod marker;
mod marks;
pub mod objects;
mod opened;
mod place;
pub mod protocol;
mod reader;
mod recovered;
pub mod registry;
mod repair;
pub mod replica;
mod repository;
mod room;
mod roots;
mod salvage;
mod sealing;
mod secrets;
mod session;
pub mod simulated;
pub mod sketch;
pub mod slots;
mod spilled;
mod still;
mod sweep;
mod twins;
mod writer;

pub use onefold_chunk::{Fingerprint, digest};
pub use onefold_index::{ContainerId, IndexKind};
pub use onefold_io::ASIDE_SUFFIX;
pub use onefold_keys::{Entropy, Fingerprinter, KdfCost, NO_RANDOMNESS, Secret};

pub use aside::Aside;
pub use check::{CheckDepth, CheckReport, Hurt};
pub use compression::Compression;
pub use config::{Config, Encryption};
pub use container::{CONTAINER_FOLDER, StreamKind};
pub use error::{Error, Result};
pub use hold::Hold;
pub use imagined::EXACT_MAX as DRY_RUN_EXACT_CHUNKS;
pub use local_cache::{LOCAL_CACHE_BYTES, LOCAL_CACHE_FOLDER};
pub use place::{IntoPlace, Place, Ways};
pub use reader::{ChunkData, ChunkReader};
pub use registry::PinInfo;
pub use repair::RepairReport;
pub use repository::{INDEX_FOLDER, InitOptions, OpenOptions, Repository};
pub use roots::{ROOT_FOLDER, RootId, Roots, RootsLock, Seen};
pub use sealing::Packing;
pub use secrets::KeyInfo;
pub use session::{Session, SessionKind};
pub use still::HeldStill;
pub use sweep::{Progress, SweepObserver, SweepOptions, SweepReport, Unused};
pub use writer::{ChunkToWrite, ChunkWriter, WriteStats, Written};

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
