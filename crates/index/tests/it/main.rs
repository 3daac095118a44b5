//! Integration tests of the index: one binary.

mod conformance;
mod costs;
mod crash;
mod filters;
mod golden;
