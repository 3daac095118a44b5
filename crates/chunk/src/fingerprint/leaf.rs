//! Leaves of BLAKE3's tree, block by block, and its constants for them.

use blake3::BLOCK_LEN;

pub const LEAF_START: u8 = 1;
pub const LEAF_END: u8 = 2;
/// BLAKE3's initial value, which is that of SHA-256.
pub const IV: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// Number of leaves that are compressed together.
pub const LANES: usize = 16;

/// A leaf, not empty and no longer than [`CHUNK_LEN`](blake3::CHUNK_LEN).
#[derive(Clone, Copy)]
pub struct HashLeaf<'a> {
    pub data: &'a [u8],
    /// Number of the leaf in its message.
    pub counter: u64,
    /// Flags of the leaf's last block besides the usual ones.
    pub last: u8,
    /// The key before compression, the chaining value after it.
    pub cv: [u32; 8],
    /// Number of the result that the leaf belongs to.
    pub number: usize,
}

impl HashLeaf<'_> {
    pub fn blocks(&self) -> usize {
        self.data.len().div_ceil(BLOCK_LEN)
    }

    /// LeafBlock `step` and its flags, if another block comes after it.
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    #[inline(always)]
    pub fn inner(&self, step: usize, mode: u8) -> Option<(&[u8; BLOCK_LEN], u8)> {
        let left = self.data.get(step * BLOCK_LEN..)?;
        let block = left.first_chunk().filter(|_| left.len() > BLOCK_LEN)?;
        Some((block, mode | if step == 0 { LEAF_START } else { 0 }))
    }

    /// LeafBlock `step`, padded, with its length and flags; `None` behind the last.
    pub fn block(&self, step: usize, mode: u8) -> Option<LeafBlock> {
        let left = self.data.get(step * BLOCK_LEN..)?;
        let flags = mode | if step == 0 { LEAF_START } else { 0 };
        let (bytes, length) = match left.first_chunk() {
            Some(block) => (*block, BLOCK_LEN),
            None if left.is_empty() => return None,
            None => {
                let mut padded = [0; BLOCK_LEN];
                padded[..left.len()].copy_from_slice(left);
                (padded, left.len())
            }
        };
        let ends = left.len() == length;
        Some(LeafBlock {
            bytes,
            length: length as u8,
            flags: flags | if ends { LEAF_END | self.last } else { 0 },
        })
    }
}

/// A block with its length and flags.
pub struct LeafBlock {
    pub bytes: [u8; BLOCK_LEN],
    pub length: u8,
    pub flags: u8,
}
