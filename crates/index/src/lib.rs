//! The seam of fingerprint indexes and filters, the index in RAM, and `strata`, the default. An index is advice, never
//! truth.
#![forbid(unsafe_code)]

mod chunk_index;
mod error;
pub mod filters;
mod kinds;
mod lock;
mod ram;
pub mod strata;

pub use chunk_index::{ChunkIndex, ContainerId, Filter, IndexStats, Location};
pub use error::{Error, Result};
pub use kinds::{IndexKind, KINDS, OpenIndex, Openers, STRATA, kind_of};
pub use lock::{alone, lock_waiting};
pub use ram::RamIndex;
pub use strata::{Strata, StrataOptions};
