//! The answer of a lookup.

use crate::ContainerId;

/// The container of a key, and the log page that proved it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogLocation {
    /// The chunk's container.
    pub container: ContainerId,
    /// The log page of the newest record.
    pub page: u32,
}
