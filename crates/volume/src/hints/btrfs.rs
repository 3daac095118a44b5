//! btrfs: the superblock says the file system's id and how long a node of its trees is; each node has the id in its
//! header. (Linux, include/uapi/linux/btrfs_tree.h.)

use super::{le16, le32};

/// Where the superblock begins in the volume.
pub const SUPERBLOCK: u64 = 64 << 10;
/// Bytes of it that are looked at.
pub const SUPERBLOCK_BYTES: usize = 4096;
const MAGIC: &[u8] = b"_BHRfS_M";
const MAGIC_AT: usize = 0x40;
const ID_AT: usize = 0x20;
const NODE_BYTES_AT: usize = 0x94;
const INCOMPAT_AT: usize = 0xBC;
/// The nodes have an id of their own.
const INCOMPAT_METADATA_ID: u64 = 1 << 10;
const METADATA_ID_AT: usize = 0x23B;
/// Place of a node's level, behind checksum, id, place, flags, id of the chunk tree, generation, owner and item count.
const LEVEL_AT: usize = 100;
const LEVEL_MAX: u8 = 8;
const NODE_BYTES_MAX: u64 = 64 << 10;

/// Facts of a superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Btrfs {
    /// Id that each node has.
    id: [u8; 16],
    /// Bytes of a node.
    pub node_bytes: u64,
}

impl Btrfs {
    /// Parses a superblock; `None` where it is none.
    pub fn parse(superblock: &[u8]) -> Option<Self> {
        if !superblock.get(MAGIC_AT..)?.starts_with(MAGIC) {
            return None;
        }
        let node_bytes = le32(superblock, NODE_BYTES_AT)?;
        if !node_bytes.is_power_of_two() || !(4096..=NODE_BYTES_MAX).contains(&node_bytes) {
            return None;
        }
        let id_at = match le16(superblock, INCOMPAT_AT)? & INCOMPAT_METADATA_ID {
            0 => ID_AT,
            _ => METADATA_ID_AT,
        };
        let id = *superblock.get(id_at..)?.first_chunk()?;
        (id != [0; 16]).then_some(Self { id, node_bytes })
    }

    /// Whether a chunk begins with the header of a node, or of a superblock, of this file system.
    pub fn is_node(&self, chunk: &[u8]) -> bool {
        let has_id = chunk.get(ID_AT..ID_AT + 16) == Some(&self.id);
        let is_superblock = chunk
            .get(MAGIC_AT..)
            .is_some_and(|rest| rest.starts_with(MAGIC));
        has_id && (is_superblock || chunk.get(LEVEL_AT).is_some_and(|level| *level < LEVEL_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Vec<u8> {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        bytes[ID_AT..ID_AT + 16].fill(7);
        bytes[MAGIC_AT..MAGIC_AT + 8].copy_from_slice(MAGIC);
        bytes[NODE_BYTES_AT..NODE_BYTES_AT + 4].copy_from_slice(&(16u32 << 10).to_le_bytes());
        bytes
    }

    #[test]
    fn nodes_have_the_id_of_their_file_system() {
        let btrfs = Btrfs::parse(&superblock()).expect("a superblock");
        assert_eq!(btrfs.node_bytes, 16 << 10);
        let mut node = vec![0; 4096];
        node[ID_AT..ID_AT + 16].fill(7);
        node[LEVEL_AT] = 1;
        assert!(btrfs.is_node(&node) && btrfs.is_node(&superblock()));
        node[LEVEL_AT] = 9;
        assert!(!btrfs.is_node(&node), "no tree is that high");
        node[LEVEL_AT] = 0;
        node[ID_AT] = 8;
        assert!(!btrfs.is_node(&node), "another file system's");
        assert!(!btrfs.is_node(&[7; 20]));
    }

    #[test]
    fn nodes_may_have_an_id_of_their_own() {
        let mut bytes = superblock();
        bytes[INCOMPAT_AT + 1] = 4;
        assert_eq!(Btrfs::parse(&bytes), None, "that id is missing");
        bytes[METADATA_ID_AT..METADATA_ID_AT + 16].fill(9);
        let btrfs = Btrfs::parse(&bytes).expect("a superblock");
        assert_eq!(btrfs.id, [9; 16]);
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        let mut odd = superblock();
        odd[NODE_BYTES_AT] = 1;
        assert_eq!(Btrfs::parse(&odd), None);
        assert_eq!(Btrfs::parse(&superblock()[..100]), None);
        assert_eq!(Btrfs::parse(&[0; 4096]), None);
    }
}
