//! Chunkers, one algorithm a file, and [`Fingerprint`]. Pure: no I/O, no clock, no threads.

mod chunker;
mod fingerprint;

pub use chunker::{Chunker, Limits};
pub use fingerprint::Fingerprint;
