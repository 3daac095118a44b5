//! Integration tests of the index: one binary.

mod conformance;
mod costs;
mod crash;
mod golden;
