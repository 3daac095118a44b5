//! The xtask as it is run.
#![forbid(unsafe_code)]

mod measured;
