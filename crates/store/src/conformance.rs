//! What every implementation of a trait of this crate must do: one suite a trait, which whoever implements it runs in a
//! test. Each panics where something is not as the trait promises; random operations are compared with a naive twin,
//! and the seed is printed with what differs.

mod objects;
mod registry;

pub use objects::objects;
pub use registry::{lose_no_root_in_a_race, registry};
