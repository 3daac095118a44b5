//! The published filters and fingerprint indexes over [`onefold_io`], one paper or one idea a file, and the workloads
//! that they are measured under.
#![forbid(unsafe_code)]

mod bloomstore;
mod btree;
mod bufferhash;
mod chunkstash;
pub mod filters;
mod flashlog;
mod names;
mod pagelog;
mod retirements;
mod skimpystash;
mod sparse;
mod tablets;
pub mod workload;

pub use bloomstore::{BloomStore, BloomStoreOptions};
pub use btree::{BTree, BTreeOptions};
pub use bufferhash::{BufferHash, BufferHashOptions};
pub use chunkstash::{ChunkStash, ChunkStashOptions};
pub use names::IndexName;
pub use skimpystash::{SkimpyStash, SkimpyStashOptions};
pub use sparse::{Sparse, SparseOptions};
pub use tablets::{Search, Tablets, TabletsOptions};
