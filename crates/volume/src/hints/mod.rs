//! Hints that follow from the bytes and places of a write (design: hints, "inferred"): a file system that fills its
//! device must still be able to write its journal, inodes and bitmaps, or it cannot delete anything.
//!
//! Superblocks are parsed for the places of metadata; other metadata is known by its magic. Everything here is advice: a
//! wrong guess costs some pages of the reserve, never data. A guest writes these bytes, so nothing is trusted.

mod btrfs;
mod ext4;
mod infer;
mod kind;
mod prefetched;
mod ranges;
mod xfs;

use std::ops::Range;

pub use self::infer::FileSystem;
pub use self::kind::HintKind;
pub use self::prefetched::{PREFETCHED_MAX, Prefetched};
pub use self::ranges::{HintRanges, NO_END, RANGES_MAX};
use crate::Result;

/// Reads bytes of a volume at an offset.
pub type ReadBytes<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> Result<()>;

/// A volume has this many places of metadata at most: 16 a block group of 128 MiB on 16 TiB.
const PLACES_MAX: usize = 1 << 20;

/// Where a volume's file system keeps its metadata, as byte ranges: sorted, and none touches another.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MetadataRanges(Vec<Range<u64>>);

impl MetadataRanges {
    /// Those of `found` that lie within a volume of so many bytes.
    fn new(mut found: Vec<Range<u64>>, volume_bytes: u64) -> Self {
        found.retain(|range| range.start < range.end && range.end <= volume_bytes);
        found.truncate(PLACES_MAX);
        Self::joined(found)
    }

    fn joined(mut found: Vec<Range<u64>>) -> Self {
        found.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in found {
            match joined.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => joined.push(range),
            }
        }
        Self(joined)
    }

    /// Whether some of these bytes are in one of the ranges.
    pub fn touch(&self, bytes: Range<u64>) -> bool {
        let at = self.0.partition_point(|range| range.end <= bytes.start);
        self.0.get(at).is_some_and(|range| range.start < bytes.end)
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }
}

/// Whether a chunk looks like metadata of a file system: by the magic of its first or last bytes.
pub fn looks_like_metadata(chunk: &[u8]) -> bool {
    ext4::is_metadata(chunk) || xfs::is_metadata(chunk)
}

fn le16(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at + 2)?;
    Some(u64::from(u16::from_le_bytes(field.try_into().ok()?)))
}

fn le32(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at + 4)?;
    Some(u64::from(u32::from_le_bytes(field.try_into().ok()?)))
}

fn be32(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at + 4)?;
    Some(u64::from(u32::from_be_bytes(field.try_into().ok()?)))
}

fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at + 8)?;
    Some(u64::from_be_bytes(field.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_found() {
        let ranges = MetadataRanges::joined(vec![50..60, 0..10, 55..70, 10..12, 90..91]);
        assert_eq!(ranges.0, [0..12, 50..70, 90..91]);
        for (bytes, is_touched) in [
            (0..1, true),
            (11..20, true),
            (12..50, false),
            (12..51, true),
            (69..70, true),
            (70..90, false),
            (91..1000, false),
        ] {
            assert_eq!(ranges.touch(bytes.clone()), is_touched, "{bytes:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_file_system_have_no_metadata() {
        let mut random = onefold_io::Random(5);
        for _ in 0..200 {
            let noise = random.bytes(4096);
            let found = FileSystem::find(1 << 30, &mut |_, buffer| {
                let len = buffer.len().min(noise.len());
                buffer[..len].copy_from_slice(&noise[..len]);
                Ok(())
            });
            let mut found = found.expect("readable");
            assert_eq!(found, FileSystem::default());
            assert!(!found.has_metadata(0, &noise));
            assert!(!looks_like_metadata(&noise));
        }
        assert!(!looks_like_metadata(&[]));
        assert!(!looks_like_metadata(&[0; 4096]));
    }
}
