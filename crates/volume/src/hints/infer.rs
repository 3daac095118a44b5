//! The file system on a volume, as far as it is known, and which chunks are its metadata for certain: by their place,
//! or by the file system's id in them. Looks of a file system alone, as those of an image within a file, are no proof.

use std::ops::Range;

use super::btrfs::{self, Btrfs};
use super::{MetadataRanges, ReadBytes, ext4, xfs};
use crate::Result;

/// The file system on a volume.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FileSystem {
    ranges: MetadataRanges,
    ids: Ids,
    /// The rest of a node of which the beginning was written last, in bytes of the volume.
    rest_of_node: Range<u64>,
}

/// How blocks of metadata show of which file system they are.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
enum Ids {
    /// They do not.
    #[default]
    None,
    Xfs([u8; 16]),
    Btrfs(Btrfs),
}

impl FileSystem {
    /// Looks for a file system at the volume's beginning. Nothing is known of it where there is none, or what is read
    /// makes no sense.
    ///
    /// # Errors
    /// The volume cannot be read.
    pub fn find(volume_bytes: u64, read: ReadBytes<'_>) -> Result<Self> {
        let mut head = vec![0; 4096];
        if volume_bytes < 4096 {
            return Ok(Self::default());
        }
        read(0, &mut head)?;
        let (found, ids) = if xfs::begins(&head) {
            let log = xfs::log(&head).into_iter().collect();
            (log, xfs::id(&head).map_or(Ids::None, Ids::Xfs))
        } else {
            (ext4::ranges(&head, read)?, Ids::None)
        };
        let end = btrfs::SUPERBLOCK + btrfs::SUPERBLOCK_BYTES as u64;
        let ids = match ids {
            Ids::None if found.is_empty() && end <= volume_bytes => {
                let mut superblock = vec![0; btrfs::SUPERBLOCK_BYTES];
                read(btrfs::SUPERBLOCK, &mut superblock)?;
                Btrfs::parse(&superblock).map_or(Ids::None, Ids::Btrfs)
            }
            ids => ids,
        };
        Ok(Self {
            ranges: MetadataRanges::new(found, volume_bytes),
            ids,
            rest_of_node: 0..0,
        })
    }

    /// Places of metadata that a superblock tells.
    pub fn ranges(&self) -> &MetadataRanges {
        &self.ranges
    }

    /// Whether a chunk that is written at `offset` is metadata for certain. Chunks are asked for as they are written:
    /// of a node that is longer than a chunk, the first one alone shows what it is.
    pub fn has_metadata(&mut self, offset: u64, chunk: &[u8]) -> bool {
        let place = offset..offset.saturating_add(chunk.len() as u64);
        if self.ranges.touch(place.clone()) {
            return true;
        }
        match &self.ids {
            Ids::None => false,
            Ids::Xfs(id) => xfs::is_metadata_of(id, chunk),
            Ids::Btrfs(btrfs) => {
                if btrfs.is_node(chunk) {
                    self.rest_of_node = place.end..offset.saturating_add(btrfs.node_bytes);
                    return true;
                }
                self.rest_of_node.contains(&offset)
            }
        }
    }

    /// Whether a write to these bytes may change what is known: superblocks lie there.
    pub fn is_told_at(bytes: &Range<u64>) -> bool {
        let overlaps = |start: u64| bytes.start < start + 4096 && start < bytes.end;
        overlaps(0) || overlaps(btrfs::SUPERBLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_node_is_metadata_where_it_follows() {
        let mut superblock = vec![0; btrfs::SUPERBLOCK_BYTES];
        superblock[0x20..0x30].fill(7);
        superblock[0x40..0x48].copy_from_slice(b"_BHRfS_M");
        superblock[0x94..0x98].copy_from_slice(&(16u32 << 10).to_le_bytes());
        let mut file_system = FileSystem::find(1 << 30, &mut |offset, buffer| {
            if offset == btrfs::SUPERBLOCK {
                buffer.copy_from_slice(&superblock);
            }
            Ok(())
        })
        .expect("readable");
        let (mut node, data) = (vec![0; 4096], vec![1; 4096]);
        node[0x20..0x30].fill(7);
        let at = |chunk: u64| (1 << 20) + chunk * 4096;
        assert!(!file_system.has_metadata(at(1), &data));
        assert!(file_system.has_metadata(at(0), &node));
        assert!(file_system.has_metadata(at(1), &data));
        assert!(!file_system.has_metadata(at(9), &data), "elsewhere");
        assert!(file_system.has_metadata(at(2), &data));
        assert!(file_system.has_metadata(at(3), &data));
        assert!(
            !file_system.has_metadata(at(4), &data),
            "the node has ended"
        );
    }

    #[test]
    fn superblocks_tell_when_they_are_written() {
        for (bytes, is_told) in [
            (0..4096, true),
            (1024..2048, true),
            (4096..8192, false),
            (61_440..65_536, false),
            (65_536..65_537, true),
            (0..1 << 20, true),
        ] {
            assert_eq!(FileSystem::is_told_at(&bytes), is_told, "{bytes:?}");
        }
    }
}
