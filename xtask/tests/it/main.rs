//! Tests of the xtask as a program.
#![forbid(unsafe_code)]

mod measured;
