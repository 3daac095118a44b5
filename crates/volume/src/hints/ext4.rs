//! ext2, ext3 and ext4: the superblock, group descriptors and journal say where metadata lies; extent blocks,
//! directories and the journal's own blocks have magics. (Linux, Documentation/filesystems/ext4.)

use std::ops::Range;

use super::{ReadBytes, be32, le16, le32};
use crate::Result;

/// Where the superblock begins in the volume.
const SUPERBLOCK: usize = 1024;
const MAGIC: u64 = 0xEF53;
const EXTENT_MAGIC: u64 = 0xF30A;
const JOURNAL_MAGIC: u64 = 0xC03B_3998;
const INCOMPAT_META_BG: u64 = 0x10;
const INCOMPAT_64BIT: u64 = 0x80;
/// Descriptors are read for this many groups at most: 16 TiB of blocks of 4 KiB.
const GROUPS_MAX: u64 = 1 << 17;

/// What a superblock says.
struct Superblock {
    block_bytes: u64,
    first_block: u64,
    groups: u64,
    descriptor_bytes: u64,
    inode_table_blocks: u64,
    reserved_descriptor_blocks: u64,
    /// Whether descriptors lie all together behind the superblock.
    has_descriptors_ahead: bool,
    /// The journal inode's block pointers and its size in blocks, where the superblock has a copy.
    journal: Option<(Vec<u8>, u64)>,
}

impl Superblock {
    fn parse(head: &[u8]) -> Option<Self> {
        let bytes = head.get(SUPERBLOCK..SUPERBLOCK + 1024)?;
        if le16(bytes, 0x38)? != MAGIC {
            return None;
        }
        let block_log = le32(bytes, 0x18)?;
        if block_log > 6 {
            return None;
        }
        let block_bytes = 1024u64 << block_log;
        let incompat = le32(bytes, 0x60)?;
        let has_64_bits = incompat & INCOMPAT_64BIT != 0;
        let blocks_high = if has_64_bits { le32(bytes, 0x150)? } else { 0 };
        let blocks = le32(bytes, 0x4)? | blocks_high << 32;
        let group_blocks = le32(bytes, 0x20)?;
        let first_block = le32(bytes, 0x14)?;
        let inode_bytes = le16(bytes, 0x58)?.max(128);
        let inodes_bytes = le32(bytes, 0x28)?.checked_mul(inode_bytes)?;
        if group_blocks == 0 || blocks <= first_block {
            return None;
        }
        let groups = (blocks - first_block).div_ceil(group_blocks);
        let has_journal_copy = bytes[0xFD] == 1;
        let journal_bytes = le32(bytes, 0x10C + 64)? | le32(bytes, 0x10C + 60)? << 32;
        Some(Self {
            block_bytes,
            first_block,
            groups,
            descriptor_bytes: if has_64_bits {
                le16(bytes, 0xFE)?.max(32)
            } else {
                32
            },
            inode_table_blocks: inodes_bytes.div_ceil(block_bytes),
            reserved_descriptor_blocks: le16(bytes, 0xCE)?,
            has_descriptors_ahead: incompat & INCOMPAT_META_BG == 0,
            journal: has_journal_copy.then(|| {
                let pointers = bytes[0x10C..0x10C + 60].to_vec();
                (pointers, journal_bytes.div_ceil(block_bytes))
            }),
        })
    }

    fn bytes_of(&self, block: u64, blocks: u64) -> Range<u64> {
        let start = block.saturating_mul(self.block_bytes);
        start..start.saturating_add(blocks.saturating_mul(self.block_bytes))
    }
}

/// Byte ranges of metadata of the file system that begins with `head`; none where it is no ext2, ext3 or ext4.
pub fn ranges(head: &[u8], read: ReadBytes<'_>) -> Result<Vec<Range<u64>>> {
    let Some(superblock) = Superblock::parse(head) else {
        return Ok(Vec::new());
    };
    let mut ranges = Vec::new();
    if superblock.groups <= GROUPS_MAX && superblock.has_descriptors_ahead {
        add_groups(&superblock, read, &mut ranges)?;
    }
    if let Some((pointers, blocks)) = &superblock.journal {
        add_journal(&superblock, pointers, *blocks, read, &mut ranges)?;
    }
    Ok(ranges)
}

/// Superblock, descriptors, bitmaps and inode tables.
fn add_groups(
    superblock: &Superblock,
    read: ReadBytes<'_>,
    ranges: &mut Vec<Range<u64>>,
) -> Result<()> {
    let table_bytes = superblock.groups * superblock.descriptor_bytes;
    let table_blocks = table_bytes.div_ceil(superblock.block_bytes);
    let ahead = superblock.first_block + 1 + table_blocks + superblock.reserved_descriptor_blocks;
    ranges.push(superblock.bytes_of(0, ahead));
    let mut table = vec![0; table_bytes as usize];
    read(
        superblock.bytes_of(superblock.first_block + 1, 0).start,
        &mut table,
    )?;
    for descriptor in table.chunks_exact(superblock.descriptor_bytes as usize) {
        for (at, blocks) in [(0x0, 1), (0x4, 1), (0x8, superblock.inode_table_blocks)] {
            let high = match superblock.descriptor_bytes >= 64 {
                true => le32(descriptor, at + 0x20).unwrap_or(0),
                false => 0,
            };
            let block = le32(descriptor, at).unwrap_or(0) | high << 32;
            if block > 0 {
                ranges.push(superblock.bytes_of(block, blocks));
            }
        }
    }
    Ok(())
}

/// Blocks of the journal, by the copy of its inode's pointers.
fn add_journal(
    superblock: &Superblock,
    pointers: &[u8],
    blocks: u64,
    read: ReadBytes<'_>,
    ranges: &mut Vec<Range<u64>>,
) -> Result<()> {
    if le16(pointers, 0) != Some(EXTENT_MAGIC) {
        // ext3: mke2fs gives the journal one stretch, with a block of pointers for each 256 blocks at least.
        let first = le32(pointers, 0).unwrap_or(0);
        if first > 0 {
            ranges.push(superblock.bytes_of(first, blocks + blocks / 256 + 4));
        }
        return Ok(());
    }
    if le16(pointers, 6) == Some(0) {
        add_extents(superblock, pointers, ranges);
        return Ok(());
    }
    for entry in entries(pointers) {
        let leaf = le32(entry, 4).unwrap_or(0) | le16(entry, 8).unwrap_or(0) << 32;
        let mut block = vec![0; superblock.block_bytes as usize];
        read(superblock.bytes_of(leaf, 0).start, &mut block)?;
        if le16(&block, 0) == Some(EXTENT_MAGIC) && le16(&block, 6) == Some(0) {
            ranges.push(superblock.bytes_of(leaf, 1));
            add_extents(superblock, &block, ranges);
        }
    }
    Ok(())
}

fn add_extents(superblock: &Superblock, node: &[u8], ranges: &mut Vec<Range<u64>>) {
    for entry in entries(node) {
        let blocks = le16(entry, 4).unwrap_or(0);
        let first = le32(entry, 8).unwrap_or(0) | le16(entry, 6).unwrap_or(0) << 32;
        if first > 0 {
            ranges.push(superblock.bytes_of(first, blocks));
        }
    }
}

/// The entries of a node of an extent tree.
fn entries(node: &[u8]) -> impl Iterator<Item = &[u8]> {
    let count = le16(node, 2).unwrap_or(0) as usize;
    node.get(12..)
        .unwrap_or_default()
        .chunks_exact(12)
        .take(count)
}

/// Whether a chunk is an extent block, a block of a directory, or one of the journal's own.
pub fn is_metadata(chunk: &[u8]) -> bool {
    is_extent_block(chunk)
        || be32(chunk, 0) == Some(JOURNAL_MAGIC)
        || is_directory(chunk)
        || has_directory_tail(chunk)
}

fn is_extent_block(chunk: &[u8]) -> bool {
    let fits = |entries: u64| entries > 0 && entries * 12 + 12 <= chunk.len() as u64;
    le16(chunk, 0) == Some(EXTENT_MAGIC)
        && le16(chunk, 4).is_some_and(fits)
        && le16(chunk, 2) <= le16(chunk, 4)
        && le16(chunk, 6).is_some_and(|depth| depth <= 5)
}

/// The first block of a directory begins with the entry ".", a node of a hashed one with an empty entry over all of it.
fn is_directory(chunk: &[u8]) -> bool {
    let Some(entry) = chunk.get(..12) else {
        return false;
    };
    let inode = le32(entry, 0).unwrap_or(0);
    let is_first = inode > 0 && entry[4..] == [12, 0, 1, 2, b'.', 0, 0, 0];
    let is_node = inode == 0
        && le16(entry, 4) == Some(chunk.len() as u64)
        && entry[6..8] == [0, 0]
        && le16(entry, 8).is_some_and(|limit| limit > 0);
    is_first || is_node
}

/// Blocks of directories end with an entry that holds their checksum.
fn has_directory_tail(chunk: &[u8]) -> bool {
    let Some(tail) = chunk.len().checked_sub(12).map(|at| &chunk[at..]) else {
        return false;
    };
    tail[..8] == [0, 0, 0, 0, 12, 0, 0, 0xDE]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A superblock of 8 groups of 32,768 blocks of 4 KiB, with a journal of two extents.
    fn head() -> Vec<u8> {
        let mut head = vec![0; 4096];
        let mut put = |at: usize, bytes: &[u8]| {
            head[SUPERBLOCK + at..SUPERBLOCK + at + bytes.len()].copy_from_slice(bytes);
        };
        put(0x4, &(8 * 32_768u32).to_le_bytes());
        put(0x18, &2u32.to_le_bytes());
        put(0x20, &32_768u32.to_le_bytes());
        put(0x28, &8192u32.to_le_bytes());
        put(0x38, &0xEF53u16.to_le_bytes());
        put(0x58, &256u16.to_le_bytes());
        put(0x60, &0x2C2u32.to_le_bytes());
        put(0xCE, &127u16.to_le_bytes());
        put(0xFD, &[1]);
        put(0xFE, &64u16.to_le_bytes());
        put(0x10C, &[0x0A, 0xF3, 2, 0, 4, 0, 0, 0]);
        for (at, (first, blocks)) in [(131_072u32, 4096u16), (140_000, 10)]
            .into_iter()
            .enumerate()
        {
            let entry = 0x10C + 12 + at * 12;
            put(entry + 4, &blocks.to_le_bytes());
            put(entry + 8, &first.to_le_bytes());
        }
        head
    }

    #[test]
    fn superblock_descriptors_and_journal_say_where_metadata_lies() {
        let mut asked = Vec::new();
        let found = ranges(&head(), &mut |offset, buffer| {
            asked.push((offset, buffer.len()));
            for (group, descriptor) in buffer.chunks_exact_mut(64).enumerate() {
                let bitmap = 129 + group as u32;
                descriptor[..4].copy_from_slice(&bitmap.to_le_bytes());
                descriptor[4..8].copy_from_slice(&(bitmap + 16).to_le_bytes());
                descriptor[8..12].copy_from_slice(&(161 + 512 * group as u32).to_le_bytes());
            }
            Ok(())
        })
        .expect("readable");
        assert_eq!(asked, [(4096, 8 * 64)]);
        let blocks = |first: u64, count: u64| first * 4096..(first + count) * 4096;
        assert_eq!(found[0], blocks(0, 129));
        assert_eq!(
            found[1..4],
            [blocks(129, 1), blocks(145, 1), blocks(161, 512)]
        );
        assert_eq!(found.len(), 1 + 8 * 3 + 2);
        assert_eq!(found[25..], [blocks(131_072, 4096), blocks(140_000, 10)]);
    }

    #[test]
    fn directories_extents_and_journal_blocks_are_known_by_their_bytes() {
        let mut directory = vec![0x55; 4096];
        assert!(!is_metadata(&directory));
        directory[4084..4092].copy_from_slice(&[0, 0, 0, 0, 12, 0, 0, 0xDE]);
        assert!(is_metadata(&directory));
        let mut first = vec![0; 4096];
        first[..12].copy_from_slice(&[2, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0]);
        assert!(is_metadata(&first));
        let mut extents = vec![0; 4096];
        extents[..8].copy_from_slice(&[0x0A, 0xF3, 3, 0, 0x54, 1, 0, 0]);
        assert!(is_metadata(&extents));
        extents[6] = 9;
        assert!(!is_metadata(&extents), "no tree is that deep");
        let mut journal = vec![0; 4096];
        journal[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
        assert!(is_metadata(&journal));
    }
}
