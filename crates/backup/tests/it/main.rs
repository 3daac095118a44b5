//! The crate's integration tests, one binary.

mod change;
mod forget;
mod leaf;
mod restore;
mod roundtrip;
mod scene;
