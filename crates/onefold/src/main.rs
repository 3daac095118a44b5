//! The program: one file per verb.
#![forbid(unsafe_code)]
fn main() {}
