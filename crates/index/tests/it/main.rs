//! Integration tests of the index: one binary.

mod conformance;
mod crash;
