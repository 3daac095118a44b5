//! The crate's integration tests, one binary.

mod change;
mod crash;
mod forget;
mod leaf;
mod restore;
mod roundtrip;
mod scene;
