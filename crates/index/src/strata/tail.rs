//! The tail: insertions and removals since the last seal, in RAM, in the order of insertion. The tail is lost in a
//! crash until sealed.

use std::collections::HashSet;

use super::log::Said;
use super::table::FingerprintTable;
use crate::ContainerId;

/// Insertions and removals since the last seal. A full tail is sealed.
pub type Tail = FingerprintTable<Said>;

impl Tail {
    /// The containers that the records of the tail name.
    pub fn containers(&self) -> HashSet<ContainerId> {
        self.records()
            .iter()
            .filter_map(|(_, said)| *said)
            .collect()
    }
}
