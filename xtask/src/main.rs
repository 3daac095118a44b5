//! Tasks of the project: ci, test, tidy, golden, bench.
fn main() {}
