//! Helpers of tasks and benchmarks: programs that are run step by step, and servers under test or measurement.
#![forbid(unsafe_code)]

pub mod cache;
pub mod program;
pub mod serving;
pub mod versitygw;
