//! The tail: what was inserted and removed since the last seal, exact, in RAM, in the order of insertion. Lost in a
//! crash until sealed.

use std::collections::HashSet;

use super::log::Said;
use super::table::Table;
use crate::ContainerId;

/// What was inserted and removed since the last seal. Full, it is sealed.
pub type Tail = Table<Said>;

impl Tail {
    /// The containers that its records name.
    pub fn containers(&self) -> HashSet<ContainerId> {
        self.records()
            .iter()
            .filter_map(|(_, said)| *said)
            .collect()
    }
}
