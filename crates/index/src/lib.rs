//! Filters and fingerprint indexes over [`onefold_io`], one paper or one idea a file. An index is advice, never truth.
#![forbid(unsafe_code)]

mod bloomstore;
mod btree;
mod bufferhash;
mod chunk_index;
mod chunkstash;
mod error;
pub mod filters;
mod flashlog;
mod lock;
mod names;
mod pagelog;
mod ram;
mod retirements;
mod skimpystash;
mod sparse;
mod strata;
mod tablets;
pub mod workload;

pub use bloomstore::{BloomStore, BloomStoreOptions};
pub use btree::{BTree, BTreeOptions};
pub use bufferhash::{BufferHash, BufferHashOptions};
pub use chunk_index::{ChunkIndex, ContainerId, Filter, IndexStats, Location};
pub use chunkstash::{ChunkStash, ChunkStashOptions};
pub use error::{Error, Result};
pub use lock::lock_waiting;
pub use names::IndexName;
pub use ram::RamIndex;
pub use skimpystash::{SkimpyStash, SkimpyStashOptions};
pub use sparse::{Sparse, SparseOptions};
pub use strata::{Strata, StrataOptions};
pub use tablets::{Search, Tablets, TabletsOptions};
