//! The crate's tests: one binary.

mod conformance;
mod count;
mod files;
mod frame;
mod implementations;
mod scale;
mod sim;
mod sim_faults;
mod untested;
mod ways;
