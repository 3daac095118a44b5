//! What no leaf exceeds. Without encryption anybody may have written one, and a few bytes can say of many things that
//! they are as before, or where others lie: so a reader counts, before it allocates, what the bytes alone do not pay
//! for. What the cutter lets pass is well below (FORMAT.md, "Leaf").

use crate::Result;
use crate::wire::Reader;

/// Entries; the cutter takes 24 bytes for each, and 192 KiB for a leaf.
pub const ENTRIES_MAX: u64 = 1 << 16;
/// Items of all files; half a byte each.
pub const ITEMS_MAX: u64 = 1 << 19;
/// Attributes, each set counted once; a quarter of their bytes.
pub const XATTRS_MAX: u64 = 1 << 19;
/// Bytes of the name of a user or a group: more no system gives (`LOGIN_NAME_MAX` is 256 with the zero behind it).
pub const OWNER_NAME_BYTES_MAX: usize = 255;
/// Bytes of all owners' names; two of the longest for each of the entries that a cutter lets pass.
pub const OWNERS_BYTES_MAX: u64 = 4 << 20;
/// Bytes of all names, what they share with the one before included; half of them.
pub const NAMES_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the folders' paths, what they share included.
pub const FOLDERS_BYTES_MAX: u64 = 128 << 20;
/// Past so many a leaf is cut: folders may lie a thousand deep in each other.
pub const FOLDERS_BYTES_CUT: u64 = 16 << 20;

/// What is left of a limit.
pub struct Limit {
    what: &'static str,
    max: u64,
    left: u64,
}

impl Limit {
    pub fn new(what: &'static str, max: u64) -> Self {
        let left = max;
        Self { what, max, left }
    }

    /// Takes `n` off. Malformed, where `reader` stands, if there are not so many left.
    pub fn take(&mut self, n: u64, reader: &Reader<'_>) -> Result<()> {
        match self.left.checked_sub(n) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(reader.fail(format_args!("more than {} {}", self.max, self.what))),
        }
    }
}
