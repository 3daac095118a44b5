//! Ids of snapshots as the program shows them.

use onefold_store::RootId;

/// Digits of an id that are shown.
pub const SHORT_ID: usize = 8;

/// Returns the first digits of an id.
pub fn short(id: &RootId) -> String {
    let mut hex = id.to_string();
    hex.truncate(SHORT_ID);
    hex
}
