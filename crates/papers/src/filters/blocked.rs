//! Saving and loading of [`BlockedBloom`], the engine's own filter in RAM.

use onefold_index::Result;
use onefold_index::filters::BlockedBloom;
use onefold_io::Dir;
use onefold_io::varint::{ByteReader, put_varint};

use super::saved::{self, Saved, number, put_words};

/// Words of a block.
const BLOCK_WORDS: usize = 8;

/// Writes the filter as file `name` of `dir`.
///
/// # Errors
/// [`Error::Io`](onefold_index::Error::Io); the name then belongs to the old content or to the whole new one.
pub fn save_blocked(filter: &BlockedBloom, dir: &dyn Dir, name: &str) -> Result<()> {
    let (blocks, hashes) = filter.blocks();
    let mut body = Vec::new();
    put_varint(&mut body, hashes.into());
    put_words(&mut body, blocks.as_flattened().iter());
    saved::save(dir, name, Saved::Blocked, &body)
}

/// Loads the filter that was saved as file `name` of `dir`.
///
/// # Errors
/// [`Error::Damaged`](onefold_index::Error::Damaged) where the file is not whole or holds another kind of filter;
/// [`Error::Io`](onefold_index::Error::Io), also where there is no file.
pub fn load_blocked(dir: &dyn Dir, name: &str) -> Result<BlockedBloom> {
    saved::load(dir, name, Saved::Blocked, |reader| {
        let hashes = number(reader, 1, 64)? as u32;
        let words = saved::words(reader, BLOCK_WORDS)?;
        let blocks = words.as_chunks::<BLOCK_WORDS>().0.to_vec();
        let damaged =
            |reader: &ByteReader<'_>| reader.damaged("a filter without a block".into()).into();
        BlockedBloom::from_blocks(blocks, hashes).ok_or_else(|| damaged(reader))
    })
}
