//! The published filters and fingerprint indexes over [`onefold_io`], one paper or one idea a file, and the workloads
//! that they are measured under.
#![forbid(unsafe_code)]

mod bloomstore;
mod btree;
mod bufferhash;
mod chunkstash;
pub mod filters;
mod flashlog;
mod kinds;
mod pagelog;
mod retirements;
mod skimpystash;
mod sparse;
mod tablets;
mod turns;
pub mod workload;

pub use bloomstore::BloomStoreOptions;
pub use btree::BTreeOptions;
pub use bufferhash::BufferHashOptions;
pub use chunkstash::ChunkStashOptions;
pub use kinds::{BLOOMSTORE, BTREE, BUFFERHASH, CHUNKSTASH, KINDS, SKIMPYSTASH, SPARSE, TABLETS};
pub use skimpystash::SkimpyStashOptions;
pub use sparse::SparseOptions;
pub use tablets::{Search, TabletsOptions};
pub use turns::InTurns;

/// The index `bloomstore`.
pub type BloomStore = InTurns<bloomstore::BloomStore>;

/// The index `btree`.
pub type BTree = InTurns<btree::BTree>;

/// The index `bufferhash`.
pub type BufferHash = InTurns<bufferhash::BufferHash>;

/// The index `chunkstash`.
pub type ChunkStash = InTurns<chunkstash::ChunkStash>;

/// The index `skimpystash`.
pub type SkimpyStash = InTurns<skimpystash::SkimpyStash>;

/// The index `sparse`.
pub type Sparse = InTurns<sparse::Sparse>;

/// The index `tablets`.
pub type Tablets = InTurns<tablets::Tablets>;
