//! Conformance suites: the promises of this crate's traits. There is one suite a trait, and every implementation runs
//! it in a test. Each panics where something is not as the trait promises; random operations are compared with a naive
//! twin, and the seed is printed with the difference.

mod objects;
mod registry;

pub use objects::objects;
pub use registry::{lose_no_root_in_a_race, registry};
