//! Chunkers, one algorithm a file, and [`Fingerprint`]. Pure: no I/O, no clock, no threads.
//!
//! Without the feature `std`, which is on by default, the crate needs an allocator only. Cuts are the same then,
//! computed by portable code (detecting a CPU's instructions needs the standard library); `fbc` and `context` are
//! missing.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub mod adaptive;
pub mod ae;
mod chunker;
#[cfg(feature = "std")]
pub mod context;
pub mod digest;
pub mod fastcdc;
#[cfg(feature = "std")]
pub mod fbc;
mod fingerprint;
pub mod fixed;
pub mod gear;
mod gear_scan;
mod gear_table;
pub mod inc_k;
pub mod knobs;
mod names;
mod odds;
pub mod rabin;
pub mod ram;
mod real;
pub mod seqcdc;
pub mod sieve;
mod simd;
mod sliding;
mod stream;
pub mod tar;
pub mod tttd;
pub mod whole_file;

pub use chunker::{ChunkLimits, Chunker, StreamHints};
pub use fingerprint::{Fingerprint, fingerprints};
#[cfg(feature = "std")]
pub use names::learning;
pub use names::{UnknownChunker, WHOLE_FILE_BYTES_MAX, by_name, knobs_of, names};
pub use stream::{ChunkStream, Chunks};

/// The examples of the README run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
