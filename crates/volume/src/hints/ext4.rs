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
const COMPAT_SPARSE_SUPER_2: u64 = 0x200;
const RO_COMPAT_SPARSE_SUPER: u64 = 0x1;
/// Descriptors are read for this many groups at most: 16 TiB of blocks of 4 KiB.
const GROUPS_MAX: u64 = 1 << 17;

/// Fields of a superblock.
struct ExtSuperblock {
    block_bytes: u64,
    first_block: u64,
    groups: u64,
    descriptor_bytes: u64,
    inode_table_blocks: u64,
    reserved_descriptor_blocks: u64,
    group_blocks: u64,
    /// Groups whose descriptors lie all together behind the superblock; those of the others lie among their groups.
    groups_ahead: u64,
    backups: Backups,
    /// The journal inode's block pointers and its size in blocks, where the superblock has a copy.
    journal: Option<(Vec<u8>, u64)>,
}

/// The groups that have a copy of the superblock.
enum Backups {
    /// Every group.
    All,
    /// Group 1, and powers of 3, 5 and 7.
    Sparse,
    /// These alone; 0 is none.
    Named([u64; 2]),
}

impl Backups {
    fn has(&self, group: u64) -> bool {
        let is_power = |base: u64| {
            let mut power = base;
            while power < group {
                power *= base;
            }
            power == group
        };
        match self {
            Self::All => true,
            Self::Sparse => group == 1 || [3, 5, 7].into_iter().any(is_power),
            Self::Named(groups) => group > 0 && groups.contains(&group),
        }
    }
}

impl ExtSuperblock {
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
        let descriptor_bytes = if has_64_bits {
            le16(bytes, 0xFE)?.max(32)
        } else {
            32
        };
        if !descriptor_bytes.is_power_of_two() || descriptor_bytes > block_bytes {
            return None;
        }
        let groups_ahead = if incompat & INCOMPAT_META_BG == 0 {
            groups
        } else {
            le32(bytes, 0x104)?.saturating_mul(block_bytes / descriptor_bytes)
        };
        let backups = match (le32(bytes, 0x5C)?, le32(bytes, 0x64)?) {
            (compat, _) if compat & COMPAT_SPARSE_SUPER_2 != 0 => {
                Backups::Named([le32(bytes, 0x24C)?, le32(bytes, 0x250)?])
            }
            (_, ro_compat) if ro_compat & RO_COMPAT_SPARSE_SUPER != 0 => Backups::Sparse,
            _ => Backups::All,
        };
        let has_journal_copy = bytes[0xFD] == 1;
        let journal_bytes = le32(bytes, 0x10C + 64)? | le32(bytes, 0x10C + 60)? << 32;
        Some(Self {
            block_bytes,
            first_block,
            groups,
            descriptor_bytes,
            inode_table_blocks: inodes_bytes.div_ceil(block_bytes),
            reserved_descriptor_blocks: le16(bytes, 0xCE)?,
            group_blocks,
            groups_ahead: groups_ahead.min(groups),
            backups,
            journal: has_journal_copy.then(|| {
                let pointers = bytes[0x10C..0x10C + 60].to_vec();
                (pointers, journal_bytes.div_ceil(block_bytes))
            }),
        })
    }

    /// The first block of a group.
    fn group_start(&self, group: u64) -> u64 {
        let blocks = group.saturating_mul(self.group_blocks);
        self.first_block.saturating_add(blocks)
    }

    /// Groups whose descriptors share a block.
    fn groups_a_block(&self) -> u64 {
        self.block_bytes / self.descriptor_bytes
    }

    /// Blocks of descriptors behind a superblock or a copy of it, and those kept for more.
    fn blocks_ahead(&self) -> u64 {
        self.groups_ahead.div_ceil(self.groups_a_block()) + self.reserved_descriptor_blocks
    }

    /// The block with the descriptors of `group` and its neighbours.
    fn descriptor_block(&self, group: u64) -> u64 {
        let number = group / self.groups_a_block();
        if group < self.groups_ahead {
            return self.first_block + 1 + number;
        }
        let first = number * self.groups_a_block();
        let has_superblock = first == 0 || self.backups.has(first);
        self.group_start(first) + u64::from(has_superblock)
    }

    fn bytes_of(&self, block: u64, blocks: u64) -> Range<u64> {
        let start = block.saturating_mul(self.block_bytes);
        start..start.saturating_add(blocks.saturating_mul(self.block_bytes))
    }
}

/// Byte ranges of metadata of the file system that begins with `head`; none where it is no ext2, ext3 or ext4.
pub fn ranges(head: &[u8], read: ReadBytes<'_>) -> Result<Vec<Range<u64>>> {
    let Some(superblock) = ExtSuperblock::parse(head) else {
        return Ok(Vec::new());
    };
    let mut ranges = Vec::new();
    if superblock.groups <= GROUPS_MAX {
        add_superblocks(&superblock, &mut ranges);
        add_groups(&superblock, read, &mut ranges)?;
    }
    if let Some((pointers, blocks)) = &superblock.journal {
        add_journal(&superblock, pointers, *blocks, read, &mut ranges)?;
    }
    Ok(ranges)
}

/// The superblock and its copies, each with the descriptors behind it.
fn add_superblocks(superblock: &ExtSuperblock, ranges: &mut Vec<Range<u64>>) {
    let blocks = 1 + superblock.blocks_ahead();
    ranges.push(superblock.bytes_of(0, superblock.first_block + blocks));
    let copies = (1..superblock.groups).filter(|group| superblock.backups.has(*group));
    ranges.extend(copies.map(|group| superblock.bytes_of(superblock.group_start(group), blocks)));
}

/// Descriptors that lie among their groups, bitmaps and inode tables.
fn add_groups(
    superblock: &ExtSuperblock,
    read: ReadBytes<'_>,
    ranges: &mut Vec<Range<u64>>,
) -> Result<()> {
    let descriptor_bytes = superblock.descriptor_bytes as usize;
    let mut block = vec![0; superblock.block_bytes as usize];
    let groups_a_block = superblock.groups_a_block();
    for first in (0..superblock.groups).step_by(groups_a_block as usize) {
        let groups = groups_a_block.min(superblock.groups - first);
        let place = superblock.descriptor_block(first);
        if first >= superblock.groups_ahead {
            // The second and the last group have copies of the block.
            ranges.push(superblock.bytes_of(place, 1));
            for copy in [first + 1, first + groups_a_block - 1] {
                let has_superblock = u64::from(superblock.backups.has(copy));
                let start = superblock.group_start(copy) + has_superblock;
                ranges.push(superblock.bytes_of(start, 1));
            }
        }
        let table = &mut block[..groups as usize * descriptor_bytes];
        read(superblock.bytes_of(place, 0).start, table)?;
        for descriptor in table.chunks_exact(descriptor_bytes) {
            add_group(superblock, descriptor, ranges);
        }
    }
    Ok(())
}

/// Bitmaps and inode table of one group.
fn add_group(superblock: &ExtSuperblock, descriptor: &[u8], ranges: &mut Vec<Range<u64>>) {
    for (at, blocks) in [(0x0, 1), (0x4, 1), (0x8, superblock.inode_table_blocks)] {
        let high = if superblock.descriptor_bytes >= 64 {
            le32(descriptor, at + 0x20).unwrap_or(0)
        } else {
            0
        };
        let block = le32(descriptor, at).unwrap_or(0) | high << 32;
        if block > 0 {
            ranges.push(superblock.bytes_of(block, blocks));
        }
    }
}

/// Blocks of the journal, by the copy of its inode's pointers.
fn add_journal(
    superblock: &ExtSuperblock,
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

fn add_extents(superblock: &ExtSuperblock, node: &[u8], ranges: &mut Vec<Range<u64>>) {
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
        put(0x64, &1u32.to_le_bytes());
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
        // Copies of the superblock and the descriptors.
        let copies = [1, 3, 5, 7].map(|group| blocks(group * 32_768, 129));
        assert_eq!(found[1..5], copies);
        assert_eq!(
            found[5..8],
            [blocks(129, 1), blocks(145, 1), blocks(161, 512)]
        );
        assert_eq!(found.len(), 5 + 8 * 3 + 2);
        assert_eq!(found[29..], [blocks(131_072, 4096), blocks(140_000, 10)]);
    }

    #[test]
    fn descriptors_may_lie_among_their_groups() {
        let mut head = head();
        // Descriptors of 64 groups share a block; the first such block lies ahead, the others among their groups.
        head[SUPERBLOCK + 0x4..SUPERBLOCK + 0x8].copy_from_slice(&(130 * 32_768u32).to_le_bytes());
        head[SUPERBLOCK + 0x60] |= 0x10;
        head[SUPERBLOCK + 0x104] = 1;
        let mut asked = Vec::new();
        let found = ranges(&head, &mut |offset, buffer| {
            asked.push((offset / 4096, buffer.len()));
            Ok(())
        })
        .expect("readable");
        let start = |group: u64| group * 32_768;
        assert_eq!(asked, [(1, 4096), (start(64), 4096), (start(128), 128)]);
        for block in [start(64), start(65), start(127), start(128), start(129)] {
            let bytes = block * 4096..(block + 1) * 4096;
            assert!(found.contains(&bytes), "block {block}");
        }
    }

    #[test]
    fn copies_of_the_superblock_lie_where_mke2fs_puts_them() {
        let sparse = |group: u64| Backups::Sparse.has(group);
        let some: Vec<u64> = (1..130).filter(|group| sparse(*group)).collect();
        assert_eq!(some, [1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
        assert!(Backups::All.has(2) && !Backups::Named([0, 7]).has(0));
        assert!(Backups::Named([1, 7]).has(7) && !Backups::Named([1, 7]).has(3));
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
