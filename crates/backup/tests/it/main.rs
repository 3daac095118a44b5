//! The crate's integration tests, one binary.

mod leaf;
mod roundtrip;
mod scene;
