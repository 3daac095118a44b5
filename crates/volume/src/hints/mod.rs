//! What the bytes and places of a write tell of it (design: hints, "inferred"): a file system that fills its device must
//! still be able to write its journal, inodes and bitmaps, or it cannot delete anything.
//!
//! Superblocks are parsed for the places of metadata; other metadata is known by its magic. Everything here is advice: a
//! wrong guess costs some pages of the reserve, never data. A guest writes these bytes, so nothing is trusted.

mod ext4;
mod xfs;

use std::ops::Range;

use crate::Result;

/// Reads bytes of a volume at an offset.
pub type ReadBytes<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> Result<()>;

/// A volume has this many places of metadata at most: 16 a block group of 128 MiB on 16 TiB.
const RANGES_MAX: usize = 1 << 20;

/// Where a volume's file system keeps its metadata, as byte ranges: sorted, and none touches another.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MetadataRanges(Vec<Range<u64>>);

impl MetadataRanges {
    /// Looks for a file system at the volume's beginning. Empty where none is known, or what is read makes no sense.
    ///
    /// # Errors
    /// The volume cannot be read.
    pub fn find(volume_bytes: u64, read: ReadBytes<'_>) -> Result<Self> {
        let mut head = vec![0; 4096];
        if volume_bytes < 4096 {
            return Ok(Self::default());
        }
        read(0, &mut head)?;
        let mut found: Vec<Range<u64>> = match xfs::begins(&head) {
            true => xfs::log(&head).into_iter().collect(),
            false => ext4::ranges(&head, read)?,
        };
        found.retain(|range| range.start < range.end && range.end <= volume_bytes);
        found.truncate(RANGES_MAX);
        Ok(Self::joined(found))
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
            let found = MetadataRanges::find(1 << 30, &mut |_, buffer| {
                let len = buffer.len().min(noise.len());
                buffer[..len].copy_from_slice(&noise[..len]);
                Ok(())
            });
            assert_eq!(found.expect("readable"), MetadataRanges::default());
            assert!(!looks_like_metadata(&noise));
        }
        assert!(!looks_like_metadata(&[]));
        assert!(!looks_like_metadata(&[0; 4096]));
    }
}
