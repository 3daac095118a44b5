//! Streams of fingerprints to run indexes under: generated like the papers' data sets, or recorded and replayed.
//!
//! A workload is the series of a dedup store's requests: each key is looked up, and inserted if it was not found.
//! Invariant: the same workload, scale and seed give the same keys.

mod ask;
mod drive;
mod generate;
mod kernels;
mod recent;
mod trace;
mod versions;

pub use ask::{Asked, Order, container_of, seeded_key};
pub use drive::{Clock, DriveReport, drive};
pub use generate::{Workload, key_of};
pub use trace::{TraceReader, TraceWriter};
