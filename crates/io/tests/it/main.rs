//! The crate's tests: one binary.

mod files;
mod frame;
