//! Blocks: neighbouring chunks, compressed and sealed as one. FORMAT.md, "Container".
//!
//! A block is bound by its seal to its container and number, and tells the lengths of its chunks, so that it can be
//! read without the table.

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use onefold_io::frame::{self, crc64};
use onefold_io::varint::{ByteReader, put_varint};
use onefold_keys::Sealer;

use crate::container::compression::{Codec, Decompressor};
use crate::container::{Header, object_name, zeros};
use crate::{Error, Result};

/// Before each block: magic 4, number 4, codec 1, reserved 3, raw length 4, stored length 4, checksum 8.
pub const BLOCK_HEADER_BYTES: usize = 28;
const BLOCK_MAGIC: [u8; 4] = *b"1FB\n";
/// No block's raw bytes are more than this; a length beyond it is damage.
pub const BLOCK_RAW_BYTES_MAX: usize = 64 << 20;
/// The longest chunk: a block has it, its length as a varint, and the four bytes of that trailer's length.
pub const CHUNK_BYTES_MAX: usize = BLOCK_RAW_BYTES_MAX - 16;
/// Nor is it stored in more than this: what cannot be compressed is stored raw, with a seal behind it.
pub const BLOCK_STORED_BYTES_MAX: usize = BLOCK_RAW_BYTES_MAX + (64 << 10);

/// A block holds no more chunks than this, none of them empty.
pub const BLOCK_CHUNKS_MAX: usize = 1 << 16;

/// Appends its trailer to a block's chunk bytes: every chunk's length as a varint, then the trailer's own length in
/// four bytes. [`chunk_lengths`] reads it.
pub fn append_chunk_lengths(raw: &mut Vec<u8>, chunks: &[(Fingerprint, u32)]) {
    let start = raw.len();
    chunks
        .iter()
        .for_each(|(_, len)| put_varint(raw, (*len).into()));
    let trailer = (raw.len() - start) as u32;
    raw.extend_from_slice(&trailer.to_le_bytes());
}

/// The lengths of the chunks in a block's raw bytes, from the trailer.
///
/// # Errors
/// Damage of `object` at `offset` ([`Error::is_damage`]): no trailer, one longer than its block, or lengths that are
/// none, too many, or not the block's sum.
pub fn chunk_lengths(raw: &[u8], object: &str, offset: u64) -> Result<Vec<u32>> {
    let bad = |what: &str| Error::damaged(object, Some(offset), what);
    let (rest, trailer) = raw
        .split_last_chunk::<4>()
        .ok_or_else(|| bad("a block without its trailer"))?;
    let trailer_bytes = u32::from_le_bytes(*trailer) as usize;
    let data_bytes = rest
        .len()
        .checked_sub(trailer_bytes)
        .ok_or_else(|| bad("a trailer longer than its block"))?;
    let mut reader = ByteReader::new(&rest[data_bytes..], object, offset);
    let mut lens = Vec::new();
    let mut sum = 0u64;
    while reader.remaining() > 0 {
        let len = reader.varint()?;
        sum = sum.saturating_add(len);
        if len == 0 {
            return Err(bad("a chunk of no bytes"));
        }
        if lens.len() == BLOCK_CHUNKS_MAX {
            let what = format!("more than {BLOCK_CHUNKS_MAX} chunks");
            return Err(bad(&what));
        }
        lens.push(u32::try_from(len).map_err(|_| bad("a chunk of over 4 GiB"))?);
    }
    if sum != data_bytes as u64 {
        return Err(bad(&format!(
            "chunk lengths sum up to {sum}, the block holds {data_bytes} bytes"
        )));
    }
    Ok(lens)
}

/// Seals a block's coded bytes in place, which makes them its stored ones; gives its header.
pub fn encode_block(
    id: ContainerId,
    number: u32,
    codec: Codec,
    body: &mut Vec<u8>,
    raw_len: u32,
    sealer: &Sealer,
) -> [u8; BLOCK_HEADER_BYTES] {
    sealer.seal(number, &block_identity(id, number, codec, raw_len), body);
    let mut header = [0; BLOCK_HEADER_BYTES];
    header[..4].copy_from_slice(&BLOCK_MAGIC);
    header[4..8].copy_from_slice(&number.to_le_bytes());
    header[8] = codec.code();
    header[12..16].copy_from_slice(&raw_len.to_le_bytes());
    header[16..20].copy_from_slice(&(body.len() as u32).to_le_bytes());
    let crc = block_checksum(&header[..20], body);
    header[20..].copy_from_slice(&crc.to_le_bytes());
    header
}

fn block_checksum(header: &[u8], body: &[u8]) -> u64 {
    let mut digest = crc_of_header(header);
    digest ^= crc64(body);
    digest
}

/// Rotated, so that a header and a body that happen to be equal do not cancel out.
fn crc_of_header(header: &[u8]) -> u64 {
    crc64(header).rotate_left(17)
}

fn block_identity(id: ContainerId, number: u32, codec: Codec, raw_len: u32) -> [u8; 17] {
    let mut identity = [0; 17];
    identity[..8].copy_from_slice(&id.0.to_le_bytes());
    identity[8..12].copy_from_slice(&number.to_le_bytes());
    identity[12] = codec.code();
    identity[13..].copy_from_slice(&raw_len.to_le_bytes());
    identity
}

/// A block's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    /// Its number in the container, from 0.
    pub number: u32,
    /// How the raw bytes were coded: a [`Codec`]'s code, or one that a later version knows.
    codec: u8,
    /// Raw bytes, trailer included.
    pub raw_len: u32,
    /// Bytes after the header.
    pub stored_len: u32,
    checksum: u64,
}

impl BlockHeader {
    /// Decodes the first [`BLOCK_HEADER_BYTES`] of a block that starts at `offset`. An unknown codec is no error here:
    /// it counts under a right checksum only.
    ///
    /// # Errors
    /// Damage of `object` ([`Error::is_damage`]): too few bytes, another magic, or a length beyond
    /// [`BLOCK_RAW_BYTES_MAX`] or [`BLOCK_STORED_BYTES_MAX`].
    pub fn decode(bytes: &[u8], object: &str, offset: u64) -> Result<Self> {
        let header = Self::decode_unbounded(bytes, object, offset)?;
        for (at, len, max) in [
            (12, header.raw_len, BLOCK_RAW_BYTES_MAX),
            (16, header.stored_len, BLOCK_STORED_BYTES_MAX),
        ] {
            check_len(len.into(), max, object, offset + at)?;
        }
        Ok(header)
    }

    /// Decodes a header of any lengths: nothing may be allocated for them.
    pub(crate) fn decode_unbounded(bytes: &[u8], object: &str, offset: u64) -> Result<Self> {
        let mut reader = ByteReader::new(bytes, object, offset);
        let magic: [u8; 4] = reader.array()?;
        if magic != BLOCK_MAGIC {
            let (found, expected) = (magic.escape_ascii(), BLOCK_MAGIC.escape_ascii());
            return Err(Error::damaged(
                object,
                Some(offset),
                format!("block magic \"{found}\", expected \"{expected}\""),
            ));
        }
        let number = reader.u32()?;
        let codec = reader.u8()?;
        zeros::<3>(&mut reader)?;
        let (raw_len, stored_len, checksum) = (reader.u32()?, reader.u32()?, reader.u64()?);
        Ok(Self {
            number,
            codec,
            raw_len,
            stored_len,
            checksum,
        })
    }
}

/// Checks that a block's bytes, raw or stored, are no more than a block can have: only then is room allocated for them.
pub(crate) fn check_len(len: u64, max: usize, object: &str, offset: u64) -> Result<()> {
    if len <= max as u64 {
        return Ok(());
    }
    let what = format!("a block of {len} bytes, at most {max} can be");
    Err(Error::damaged(object, Some(offset), what))
}

/// A whole stored block (header included, exactly) back to its raw bytes with trailer; it is opened where it lies, so
/// that it is no stored block any more.
///
/// # Errors
/// Damage, with container, block and offset ([`Error::is_damage`]): header, number, length, checksum or seal is wrong,
/// or it does not decode to its raw length. Another version's codec ([`Error::is_other_version`]).
pub fn decode_block(
    header: &Header,
    number: u32,
    stored: &mut [u8],
    offset: u64,
    sealer: &Sealer,
    zstd: &mut Decompressor,
) -> Result<Vec<u8>> {
    let object = object_name(header.id);
    let block = BlockHeader::decode(stored, &object, offset)?;
    let (codec, coded) = unseal_block(header, number, stored, offset, sealer)?;
    zstd.decode(codec, coded, block.raw_len as usize)
        .map_err(|what| Error::damaged(format!("{object}, block {number}"), Some(offset), what))
}

/// The stored bytes behind a block's header.
///
/// # Errors
/// Those of [`BlockHeader::decode`].
pub(crate) fn stored_len(header: &[u8], object: &str, offset: u64) -> Result<usize> {
    Ok(BlockHeader::decode(header, object, offset)?.stored_len as usize)
}

/// Checks that a whole stored block is block `number`, with the right length and checksum. Its seal needs a key.
///
/// # Errors
/// Damage, with container, block and offset ([`Error::is_damage`]).
pub(crate) fn verify_stored(stored: &[u8], number: u32, object: &str, offset: u64) -> Result<u8> {
    let bad =
        |what: String| Error::damaged(format!("{object}, block {number}"), Some(offset), what);
    let block = BlockHeader::decode_unbounded(stored, object, offset)?;
    if block.number != number {
        return Err(bad(format!("the header says block {}", block.number)));
    }
    let body = &stored[BLOCK_HEADER_BYTES..];
    if body.len() != block.stored_len as usize {
        return Err(bad(format!(
            "{} bytes stored, the header says {}",
            body.len(),
            block.stored_len
        )));
    }
    let expected = block_checksum(&stored[..BLOCK_HEADER_BYTES - 8], body);
    if block.checksum == expected {
        Ok(block.codec)
    } else {
        Err(bad(format!(
            "checksum {:#018x}, expected {expected:#018x}",
            block.checksum
        )))
    }
}

/// Unseals a block up to its coded bytes, whether these can be decoded or not. Checksum and seal are checked.
pub(crate) fn unseal_block<'b>(
    header: &Header,
    number: u32,
    stored: &'b mut [u8],
    offset: u64,
    sealer: &Sealer,
) -> Result<(Codec, &'b [u8])> {
    let object = object_name(header.id);
    let bad =
        |what: String| Error::damaged(format!("{object}, block {number}"), Some(offset), what);
    let code = verify_stored(stored, number, &object, offset)?;
    let raw_len = BlockHeader::decode_unbounded(stored, &object, offset)?.raw_len;
    let codec = Codec::from_code(code)
        .ok_or_else(|| frame::later_version(&object, offset + 8, &format!("codec {code}")))?;
    let identity = block_identity(header.id, number, codec, raw_len);
    let coded = sealer.open_in(number, &identity, &mut stored[BLOCK_HEADER_BYTES..]);
    match coded {
        Some(coded) => Ok((codec, coded)),
        None => Err(bad("its seal does not hold".into())),
    }
}

/// Where in `bytes` the next block header may begin: its magic, with room for the rest.
pub fn find_header(bytes: &[u8]) -> Option<usize> {
    let last = bytes.len().checked_sub(BLOCK_HEADER_BYTES)?;
    (0..=last).find(|at| bytes[*at..].starts_with(&BLOCK_MAGIC))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small block that compresses to nothing could otherwise claim to hold millions of chunks.
    #[test]
    fn a_block_of_empty_chunks_or_of_too_many_is_damage() {
        let lens = |lens: &[u32]| {
            let mut raw = vec![0; lens.iter().sum::<u32>() as usize];
            let chunks: Vec<_> = lens
                .iter()
                .map(|len| (Fingerprint([0; 32]), *len))
                .collect();
            append_chunk_lengths(&mut raw, &chunks);
            chunk_lengths(&raw, "one", 64)
        };
        let most = vec![1; BLOCK_CHUNKS_MAX];
        assert_eq!(lens(&[5, 1]).unwrap(), [5, 1]);
        assert_eq!(lens(&most).unwrap(), most);
        for refused in [
            lens(&[5, 0]),
            lens(&[0; 9]),
            lens(&[&most[..], &[1]].concat()),
        ] {
            assert!(refused.is_err_and(|error| error.is_damage()));
        }
    }
}
