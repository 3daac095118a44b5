//! The lab: estimates of each chunker's results on some data, before a repository is made, and reports of them.
//!
//! ```text
//! bytes ─▶ Reading (one a thread) ─▶ Tally (one a choice of chunker and mean) ─▶ Estimate ─▶ table, CSV, Parquet, plot
//!                  └─ Helpers: idle threads          └─ saved, merged
//! ```
//!
//! Invariant: the data is read once for any number of choices; a tally takes no more memory than it was allowed.
#![forbid(unsafe_code)]

pub mod columns;
pub mod estimate;
pub mod idle;
pub mod plot;
pub mod reading;
pub mod saved;
pub mod sketch;
pub mod tally;

pub use estimate::Estimate;
pub use idle::Helpers;
pub use reading::{ChunkerChoice, Reading, Tallies};
pub use sketch::Sketch;
pub use tally::Tally;
