//! Limits that no leaf exceeds. Without encryption anybody may have written a leaf, and a few bytes can claim that many
//! things are as before, or lie elsewhere. So a reader counts, before it allocates, everything that the number of bytes
//! does not bound. The cutter stays well below these limits (FORMAT.md, "Leaf").

use crate::Result;
use crate::wire::WireReader;

/// Largest number of entries; the cutter counts 24 bytes for each, and 192 KiB for a leaf.
pub const ENTRIES_MAX: u64 = 1 << 16;
/// Largest number of items of all files together; the cutter counts half a byte for each.
pub const ITEMS_MAX: u64 = 1 << 19;
/// Largest number of attributes, each set counted once; the cutter counts a quarter of their bytes.
pub const XATTRS_MAX: u64 = 1 << 19;
/// Longest name of a user or a group, in bytes: no system gives more (`LOGIN_NAME_MAX` is 256 with the final zero).
pub const OWNER_NAME_BYTES_MAX: usize = 255;
/// Largest number of bytes of all owners' names: two of the longest for each entry of a leaf that the cutter makes.
pub const OWNERS_BYTES_MAX: u64 = 4 << 20;
/// Largest number of bytes of all names, with the bytes that they share with the name before; the cutter counts half of
/// them.
pub const NAMES_BYTES_MAX: u64 = 1 << 20;
/// Largest number of bytes of the folders' paths, with the bytes that they share with the path before.
pub const FOLDERS_BYTES_MAX: u64 = 128 << 20;
/// Bytes of the folders' paths at which a leaf is cut: folders may be nested a thousand deep.
pub const FOLDERS_BYTES_CUT: u64 = 16 << 20;

/// The rest of a limit.
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

    /// Takes `n` from the rest. Errors: there is less left; the error has the offset of `reader`.
    pub fn take(&mut self, n: u64, reader: &WireReader<'_>) -> Result<()> {
        match self.left.checked_sub(n) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(reader.fail(format_args!("more than {} {}", self.max, self.what))),
        }
    }
}
