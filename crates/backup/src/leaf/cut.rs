//! Cuts the stream of entries into leaves.

use super::Leaf;
use super::limits::FOLDERS_BYTES_CUT;
use crate::Entry;

/// Least bytes of a leaf before it is cut, as estimated.
const LEAF_BYTES_MIN: u64 = 24 << 10;
/// Beyond the minimum, average bytes to the next cut: the mean is about 64 KiB. Smaller leaves cost a reference and a
/// descriptor each (~130 bytes), larger ones are stored again for each changed entry.
const LEAF_BYTES_STEP: u64 = 40 << 10;
/// Bytes at which a leaf is cut in any case, as estimated.
const LEAF_BYTES_MAX: u64 = 192 << 10;

/// Collects entries into leaves. A cut depends only on the paths and sizes of entries since the last cut.
#[derive(Default)]
pub struct LeafCutter {
    leaf: Leaf,
    bytes: u64,
    /// Bytes of the paths of the leaf's folders.
    folder_bytes: u64,
    /// Hash of the last folder's path.
    folder_hash: u64,
}

impl LeafCutter {
    /// Adds the next entry in order; returns the leaf that ends with it, if one does.
    pub fn push(&mut self, folder: &[u8], entry: Entry) -> Option<Leaf> {
        let weight = weight(&entry);
        self.bytes += weight;
        let chance = weight as u128 * u128::from(u64::MAX) / u128::from(LEAF_BYTES_STEP);
        if self.leaf.folder() != Some(folder) {
            self.folder_bytes += folder.len() as u64;
            self.folder_hash = hash(hash(HASH_BEGIN, folder), b"/");
        }
        let lot = u128::from(mix(hash(self.folder_hash, &entry.name)));
        self.leaf.push(folder, entry);
        let cut = self.bytes >= LEAF_BYTES_MAX
            || self.folder_bytes >= FOLDERS_BYTES_CUT
            || self.bytes >= LEAF_BYTES_MIN && lot < chance;
        cut.then(|| self.finish()).flatten()
    }

    /// Returns the last leaf, if it has any entries.
    pub fn finish(&mut self) -> Option<Leaf> {
        (self.bytes, self.folder_bytes) = (0, 0);
        // Reserve room for as many entries: the next leaf may well be as long.
        let next = Leaf {
            entries: Vec::with_capacity(self.leaf.entries.len()),
            ..Leaf::default()
        };
        let leaf = std::mem::replace(&mut self.leaf, next);
        (!leaf.entries.is_empty()).then_some(leaf)
    }
}

/// Estimates the bytes of an entry in a leaf, rounded so that small changes (times, sizes) do not move cuts.
fn weight(entry: &Entry) -> u64 {
    let xattrs: usize = entry
        .xattrs
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    let content = &entry.content.items;
    let items = if entry.content.depth > 0 {
        40 * content.len()
    } else {
        content.len() / 2
    };
    24 + (entry.name.len() / 2 + entry.target.len() + xattrs / 4 + items) as u64
}

const HASH_BEGIN: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues the FNV-1a hash `before` with `bytes`.
fn hash(before: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(before, step)
}

/// Mixes a hash, so that it is uniform enough to draw lots with.
fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}
