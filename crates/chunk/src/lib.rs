//! Chunkers, one algorithm a file, and [`Fingerprint`]. Pure: no I/O, no clock, no threads.

mod chunker;
mod fingerprint;
pub mod fixed;
mod names;
pub mod sieve;

pub use chunker::{Chunker, Limits};
pub use fingerprint::Fingerprint;
pub use names::{UnknownChunker, by_name, names};
