//! Tests of the benchmarks as a program.
#![forbid(unsafe_code)]

mod measured;
