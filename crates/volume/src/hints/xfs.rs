//! XFS: the superblock says where the log lies; headers of allocation groups, inodes, trees and directories have magics.
//! (XFS Algorithms & Data Structures, 3rd edition.)

use std::ops::Range;

use super::{be32, be64};

/// Blocks that begin with one of these are metadata.
const MAGICS: [[u8; 4]; 16] = [
    *b"XFSB", *b"XAGF", *b"XAGI", *b"XAFL", *b"AB3B", *b"AB3C", *b"IAB3", *b"FIB3", *b"BMA3",
    *b"R3FC", *b"RMB3", *b"XDB3", *b"XDD3", *b"XDF3", *b"XSLM", *b"XARM",
];
/// Begins each record of the log.
const LOG_RECORD: u64 = 0xFEED_BABE;
/// Magic and version of an inode with a checksum.
const INODE: &[u8] = b"IN";
const INODE_VERSION: u8 = 3;
/// Places and magics of nodes and leaves of directories and attributes.
const NODES: [[u8; 2]; 4] = [[0x3E, 0xBE], [0x3D, 0xF1], [0x3D, 0xFF], [0x3B, 0xEE]];
const NODE_MAGIC_AT: usize = 8;

/// Whether a volume begins with a superblock of XFS.
pub fn begins(head: &[u8]) -> bool {
    head.starts_with(b"XFSB")
}

/// The log's place; `None` where `head`, a superblock, names none that makes sense. An external log lies elsewhere.
pub fn log(head: &[u8]) -> Option<Range<u64>> {
    let block_bytes = be32(head, 4)?;
    let (log_start, log_blocks) = (be64(head, 48)?, be32(head, 96)?);
    let group_blocks = be32(head, 84)?;
    let group_log = *head.get(124)?;
    if log_start == 0 || group_log >= 32 {
        return None;
    }
    let (group, block) = (log_start >> group_log, log_start & ((1 << group_log) - 1));
    let first = group.checked_mul(group_blocks)?.checked_add(block)?;
    let start = first.checked_mul(block_bytes)?;
    let end = start.checked_add(log_blocks.checked_mul(block_bytes)?)?;
    Some(start..end)
}

/// Places of the file system's id in blocks of metadata: headers of groups, trees, directories, attributes, inodes.
const ID_PLACES: [usize; 8] = [8, 16, 24, 32, 40, 64, 160, 296];
const VERSION_AT: usize = 100;
const ID_AT: usize = 32;
const INCOMPAT_AT: usize = 216;
const INCOMPAT_METADATA_ID: u64 = 1 << 2;
const METADATA_ID_AT: usize = 248;

/// The id that each block of metadata has, where a superblock is of version 5; older ones have none.
pub fn id(head: &[u8]) -> Option<[u8; 16]> {
    let version = head.get(VERSION_AT + 1)? & 0xF;
    if version < 5 {
        return None;
    }
    let at = match be32(head, INCOMPAT_AT)? & INCOMPAT_METADATA_ID {
        0 => ID_AT,
        _ => METADATA_ID_AT,
    };
    let id = *head.get(at..)?.first_chunk()?;
    (id != [0; 16]).then_some(id)
}

/// Whether a chunk is metadata of the file system with this id.
pub fn is_metadata_of(id: &[u8; 16], chunk: &[u8]) -> bool {
    let has_id = |at: &usize| chunk.get(*at..*at + 16) == Some(id);
    is_metadata(chunk) && ID_PLACES.iter().any(has_id)
}

/// Whether a chunk begins as metadata of XFS does.
pub fn is_metadata(chunk: &[u8]) -> bool {
    let Some(magic) = chunk.first_chunk::<4>() else {
        return false;
    };
    let is_inode = magic.starts_with(INODE) && chunk.get(4) == Some(&INODE_VERSION);
    let node = chunk.get(NODE_MAGIC_AT..NODE_MAGIC_AT + 2);
    let is_node = NODES.iter().any(|magic| node == Some(magic)) && chunk[10..12] == [0, 0];
    MAGICS.contains(magic) || be32(chunk, 0) == Some(LOG_RECORD) || is_inode || is_node
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_of_version_5_has_the_id_of_its_file_system() {
        let mut head = vec![0; 4096];
        head[..4].copy_from_slice(b"XFSB");
        head[ID_AT..ID_AT + 16].fill(7);
        assert_eq!(id(&head), None, "an older version");
        head[VERSION_AT..VERSION_AT + 2].copy_from_slice(&[0xB4, 0xA5]);
        let found = id(&head).expect("version 5");
        assert_eq!(found, [7; 16]);
        assert!(is_metadata_of(&found, &head));
        let mut inode = vec![0; 4096];
        inode[..5].copy_from_slice(&[b'I', b'N', 0, 0, 3]);
        assert!(!is_metadata_of(&found, &inode), "another file system's");
        inode[160..176].fill(7);
        assert!(is_metadata_of(&found, &inode));
        head[INCOMPAT_AT + 3] = 4;
        head[METADATA_ID_AT..METADATA_ID_AT + 16].fill(9);
        assert_eq!(id(&head), Some([9; 16]));
    }

    #[test]
    fn the_log_is_found_by_group_and_block() {
        let mut head = vec![0; 4096];
        head[..4].copy_from_slice(b"XFSB");
        head[4..8].copy_from_slice(&4096u32.to_be_bytes());
        head[48..56].copy_from_slice(&((2u64 << 16) | 5).to_be_bytes());
        head[84..88].copy_from_slice(&60_000u32.to_be_bytes());
        head[96..100].copy_from_slice(&16_384u32.to_be_bytes());
        head[124] = 16;
        let first = 2 * 60_000 + 5;
        assert!(begins(&head));
        assert_eq!(log(&head), Some(first * 4096..(first + 16_384) * 4096));
        head[48..56].fill(0xFF);
        assert_eq!(log(&head), None, "it makes no sense");
        assert!(is_metadata(&head));
    }
}
