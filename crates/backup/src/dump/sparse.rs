//! Files with holes in a tar: only their data is in the archive, behind a map of the data's places (GNU tar's sparse
//! format 1.0 for pax, `GNU.sparse.*`), which GNU tar, libarchive and Python read. A hole of a terabyte takes no space.
//!
//! The map stands in front of the data, and its length in front of both. It may have any number of stretches, so it is
//! never in RAM as a whole: the recipes are read three times, for the lengths, for the map, and for the data.

use std::io::Write;

use onefold_store::ChunkReader;

use super::{HOLE_BYTES_MIN, ZEROS, failed, padding};
use crate::content::ContentCursor;
use crate::{Entry, Item, Result};

/// Bytes of the map that are written at once.
const PART_BYTES: usize = 64 << 10;

/// Lengths of the map and the data of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SparseLengths {
    /// Number of stretches in the map.
    pub(super) stretches: u64,
    /// Bytes of the map, without the padding of its last block.
    pub(super) map_bytes: u64,
    /// Bytes of the file that are not holes.
    pub data_bytes: u64,
}

impl SparseLengths {
    /// Measures a file's data; `None` where the file has no holes that are worth a map.
    ///
    /// # Errors
    /// Errors of recipe chunks that cannot be read, except damaged ones: the bytes that these cover count as data.
    pub fn of(entry: &Entry, reader: &mut ChunkReader) -> Result<Option<Self>> {
        let content = &entry.content;
        if content.depth == 0 && !content.items.iter().any(is_left_out) {
            return Ok(None);
        }
        let mut sparse = Self {
            stretches: 0,
            map_bytes: 0,
            data_bytes: 0,
        };
        each_stretch(entry, reader, &mut |offset, len| {
            sparse.stretches += 1;
            sparse.map_bytes += stretch(offset, len).len() as u64;
            sparse.data_bytes += len;
            Ok(())
        })?;
        sparse.map_bytes += line(sparse.stretches).len() as u64;
        Ok((sparse.data_bytes < entry.size).then_some(sparse))
    }

    /// Bytes in the archive: the map, up to the end of its block, and the data.
    pub fn stored_bytes(&self) -> u64 {
        let map_bytes = self.map_bytes + padding(self.map_bytes) as u64;
        map_bytes.saturating_add(self.data_bytes)
    }

    /// Writes the map of `entry`, the file that was measured.
    ///
    /// # Errors
    /// Errors of [`of`](Self::of), and of `out`.
    pub fn write_map(
        &self,
        entry: &Entry,
        reader: &mut ChunkReader,
        out: &mut dyn Write,
    ) -> Result<()> {
        let mut part = line(self.stretches).into_bytes();
        each_stretch(entry, reader, &mut |offset, len| {
            part.extend_from_slice(stretch(offset, len).as_bytes());
            if part.len() >= PART_BYTES {
                out.write_all(&part).map_err(failed)?;
                part.clear();
            }
            Ok(())
        })?;
        part.extend_from_slice(&ZEROS[..padding(self.map_bytes)]);
        out.write_all(&part).map_err(failed)
    }
}

/// Whether the item is a hole that is long enough to be left out. Shorter ones are written as zeros.
pub fn is_left_out(item: &Item) -> bool {
    matches!(item, Item::Hole { len } if *len >= HOLE_BYTES_MIN)
}

fn line(number: u64) -> String {
    format!("{number}\n")
}

fn stretch(offset: u64, len: u64) -> String {
    format!("{offset}\n{len}\n")
}

/// Calls `visit` with offset and length of each stretch of data, in order; and where the file ends with a hole, with an
/// empty stretch at its end.
fn each_stretch(
    entry: &Entry,
    reader: &mut ChunkReader,
    visit: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<()> {
    let mut content = ContentCursor::new(&entry.content);
    let (mut start, mut end) = (0, 0);
    while let Some((depth, item)) = content.peek() {
        if depth > 0 && matches!(item, Item::Chunk { .. }) {
            match content.open(reader) {
                Ok(()) => continue,
                Err(e) if e.is_loss() => {}
                Err(e) => return Err(e),
            }
        } else {
            content.pass();
        }
        let after = u64::saturating_add(end, item.span());
        if is_left_out(&item) {
            if start < end {
                visit(start, end - start)?;
            }
            start = after;
        }
        end = after;
    }
    if start < end {
        visit(start, end - start)
    } else {
        visit(end, 0)
    }
}
