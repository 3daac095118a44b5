//! Filters and fingerprint indexes over [`onefold_io`], one paper or one idea a file. An index is advice, never truth.
#![forbid(unsafe_code)]

mod chunk_index;
mod chunkstash;
mod error;
pub mod filters;
mod ram;
mod strata;

pub use chunk_index::{ChunkIndex, ContainerId, Filter, IndexStats, Location};
pub use chunkstash::{ChunkStash, ChunkStashOptions};
pub use error::{Error, Result};
pub use ram::RamIndex;
pub use strata::{Strata, StrataOptions};
