//! Containers: immutable objects of a header, blocks of neighbouring chunks, their descriptor table and a footer.
//! FORMAT.md, "Container".
//!
//! A container describes itself: from the table everything can be found, and where the table is damaged, each block
//! still tells the lengths of its chunks, so that their fingerprints can be computed again. Here: names, header, table.

pub mod block;
pub(crate) mod building;
pub mod compression;
pub mod footer;
pub(crate) mod opened;

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use onefold_io::frame::{self, FrameKind};
use onefold_io::hex_number;
use onefold_io::varint::{ByteReader, put_varint};
use onefold_keys::SALT_BYTES;

use crate::container::block::{BLOCK_RAW_BYTES_MAX, BLOCK_STORED_BYTES_MAX, check_len};
use crate::{Error, Result};

pub use crate::folders::CONTAINER_FOLDER;

/// The header's frame.
pub const HEADER: FrameKind = FrameKind {
    magic: *b"1FCONTNR",
    version: 1,
};
/// Header: a frame around id 8, stream 1, reserved 7, salt 16.
pub const HEADER_BYTES: usize = frame::OVERHEAD_BYTES + 32;

/// Kind of content of a container: file contents or metadata. Restore wants them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamKind {
    /// File contents.
    Data,
    /// The metadata stream and recipes.
    Metadata,
}

impl StreamKind {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::Metadata => 1,
        }
    }

    /// The next byte of `reader`, which reads `object`.
    pub(crate) fn read(reader: &mut ByteReader<'_>, object: &str) -> Result<Self> {
        let at = reader.offset();
        match reader.u8()? {
            0 => Ok(Self::Data),
            1 => Ok(Self::Metadata),
            other => Err(frame::later_version(object, at, &format!("stream kind {other}")).into()),
        }
    }
}

/// The first bytes of a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Its name.
    pub id: ContainerId,
    /// Kind of the container's content.
    pub stream: StreamKind,
    /// Makes its sealing key unique.
    pub salt: [u8; SALT_BYTES],
}

impl Header {
    /// Encodes the header: [`HEADER_BYTES`].
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(32);
        payload.extend_from_slice(&self.id.0.to_le_bytes());
        payload.push(self.stream.code());
        payload.extend_from_slice(&[0; 7]);
        payload.extend_from_slice(&self.salt);
        frame::encode_frame(HEADER, &payload)
    }

    /// Decodes the first bytes of the container that is named `id`.
    ///
    /// # Errors
    /// Damage of the container ([`Error::is_damage`]): no whole frame, or another container's. Another version's frame
    /// or stream kind ([`Error::is_other_version`]).
    pub fn decode(id: ContainerId, bytes: &[u8]) -> Result<Self> {
        let object = object_name(id);
        let payload = frame::decode_whole(HEADER, bytes, &object, 0)?;
        let mut reader = ByteReader::new(payload, &object, frame::HEADER_BYTES as u64);
        let found = ContainerId(reader.u64()?);
        let stream = StreamKind::read(&mut reader, &object)?;
        zeros::<7>(&mut reader)?;
        let salt = reader.array()?;
        reader.end()?;
        if found != id {
            return Err(Error::damaged(
                object,
                Some(0),
                format!("the header names container {found}"),
            ));
        }
        Ok(Self { id, stream, salt })
    }
}

/// Bytes that no format of this version uses.
pub(crate) fn zeros<const N: usize>(reader: &mut ByteReader<'_>) -> Result<()> {
    let at = reader.offset();
    match reader.array::<N>()? {
        zeros if zeros == [0; N] => Ok(()),
        found => Err(reader
            .damaged(format!("{found:02x?}, expected zeros"))
            .at(at)
            .into()),
    }
}

/// The name of a container's object.
pub fn object_name(id: ContainerId) -> String {
    format!("{CONTAINER_FOLDER}/{:02x}/{id}", id.0 >> 56)
}

/// The container that an object name speaks of.
pub fn id_of_object(name: &str) -> Option<ContainerId> {
    let below = name.strip_prefix(CONTAINER_FOLDER)?.strip_prefix('/')?;
    let id = ContainerId(hex_number(below.get(3..)?, 16)?);
    (object_name(id) == name).then_some(id)
}

/// A block in a container's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockDescriptor {
    /// Where its header starts in the container, in bytes.
    pub offset: u64,
    /// Bytes after its header.
    pub stored_len: u32,
    /// Bytes of its chunks together.
    pub chunk_bytes: u32,
    /// The first of its chunks in the table.
    pub first_chunk: u32,
    /// Number of chunks in the block.
    pub chunks: u32,
    /// Its number in the container: its place here, unless blocks before it are lost.
    pub number: u32,
}

/// A container's descriptors: its blocks, and its chunks in stream order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ContainerTable {
    /// In order of offset.
    pub blocks: Vec<BlockDescriptor>,
    /// Fingerprint and length in bytes, in stream order.
    pub chunks: Vec<(Fingerprint, u32)>,
}

/// Three bytes of its own, and a chunk: a byte for the length, and its fingerprint.
const BLOCK_DESCRIPTOR_BYTES_MIN: usize = 36;

impl ContainerTable {
    /// The block that holds chunk number `chunk`.
    pub fn block_of(&self, chunk: u32) -> usize {
        self.blocks
            .partition_point(|block| block.first_chunk <= chunk)
            - 1
    }

    /// Adds a block that starts at `offset`.
    pub fn push_block(&mut self, offset: u64, stored_len: u32, chunks: &[(Fingerprint, u32)]) {
        let number = self.blocks.len() as u32;
        self.push_found_block(offset, number, stored_len, chunks);
    }

    /// Adds a block that was found at `offset` and has this number.
    pub(crate) fn push_found_block(
        &mut self,
        offset: u64,
        number: u32,
        stored_len: u32,
        chunks: &[(Fingerprint, u32)],
    ) {
        let chunk_bytes = chunks.iter().map(|(_, len)| len).sum();
        let first_chunk = self.chunks.len() as u32;
        self.blocks.push(BlockDescriptor {
            offset,
            stored_len,
            chunk_bytes,
            first_chunk,
            chunks: chunks.len() as u32,
            number,
        });
        self.chunks.extend_from_slice(chunks);
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.chunks.len() * 35 + self.blocks.len() * 12 + 8);
        put_varint(&mut out, self.blocks.len() as u64);
        for block in &self.blocks {
            put_varint(&mut out, block.offset);
            put_varint(&mut out, block.stored_len.into());
            put_varint(&mut out, block.chunks.into());
        }
        self.chunks
            .iter()
            .for_each(|(_, len)| put_varint(&mut out, (*len).into()));
        self.chunks
            .iter()
            .for_each(|(fingerprint, _)| out.extend_from_slice(&fingerprint.0));
        out
    }

    /// Decodes a table's plain bytes, which were at `offset` of `object`. Nothing is allocated for counts that the
    /// bytes do not confirm: each block takes bytes, and holds chunks, and each of these, too.
    ///
    /// # Errors
    /// Damage of `object` ([`Error::is_damage`]), with the offset: counts that the bytes do not bear out, a block or
    /// chunk of nothing, or a block of more bytes than any may have.
    pub fn decode(bytes: &[u8], object: &str, offset: u64) -> Result<Self> {
        let mut reader = ByteReader::new(bytes, object, offset);
        let small = |reader: &mut ByteReader<'_>| -> Result<u32> {
            let value = reader.varint()?;
            u32::try_from(value).map_err(|_| {
                reader
                    .damaged(format!("{value} does not fit 32 bits"))
                    .into()
            })
        };
        let block_count = reader.count(BLOCK_DESCRIPTOR_BYTES_MIN)?;
        let mut table = Self {
            blocks: Vec::with_capacity(block_count),
            chunks: Vec::new(),
        };
        let mut chunk_count = 0u32;
        for number in 0..block_count as u32 {
            let (offset, stored_len, chunks) =
                (reader.varint()?, small(&mut reader)?, small(&mut reader)?);
            if stored_len == 0 || chunks == 0 {
                return Err(reader.damaged("a block of nothing".into()).into());
            }
            table.blocks.push(BlockDescriptor {
                offset,
                stored_len,
                chunk_bytes: 0,
                first_chunk: chunk_count,
                chunks,
                number,
            });
            chunk_count = match chunk_count.checked_add(chunks) {
                Some(sum) if sum as usize <= reader.remaining() / 33 => sum,
                _ => {
                    return Err(reader
                        .damaged("more chunks than there are bytes for them".into())
                        .into());
                }
            };
        }
        table.chunks.reserve_exact(chunk_count as usize);
        for _ in 0..chunk_count {
            let len = small(&mut reader)?;
            if len == 0 {
                return Err(reader.damaged("a chunk of no bytes".into()).into());
            }
            table.chunks.push((Fingerprint([0; 32]), len));
        }
        for chunk in &mut table.chunks {
            chunk.0 = Fingerprint(reader.array()?);
        }
        reader.end()?;
        for block in &mut table.blocks {
            let own = &table.chunks[block.first_chunk as usize..][..block.chunks as usize];
            let sum: u64 = own.iter().map(|(_, len)| u64::from(*len)).sum();
            check_len(sum, BLOCK_RAW_BYTES_MAX, object, offset)?;
            let stored = block.stored_len.into();
            check_len(stored, BLOCK_STORED_BYTES_MAX, object, offset)?;
            block.chunk_bytes = sum as u32;
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a file that is a hole but for its ends, everything else about it may be right.
    #[test]
    fn a_block_that_is_stored_in_more_than_any_is_damage() {
        let table = |stored_len: usize| {
            let mut table = ContainerTable::default();
            table.push_block(64, stored_len as u32, &[(Fingerprint([7; 32]), 5)]);
            ContainerTable::decode(&table.encode(), "one", 64)
        };
        assert!(table(BLOCK_STORED_BYTES_MAX).is_ok());
        assert!(table(BLOCK_STORED_BYTES_MAX + 1).is_err_and(|error| error.is_damage()));
    }

    /// A table of chunks without bytes could claim millions of them.
    #[test]
    fn blocks_and_chunks_of_nothing_are_damage() {
        let table = |stored_len, chunks: &[(Fingerprint, u32)]| {
            let mut table = ContainerTable::default();
            table.push_block(64, stored_len, chunks);
            ContainerTable::decode(&table.encode(), "one", 64)
        };
        let (one, empty) = ((Fingerprint([7; 32]), 5), (Fingerprint([8; 32]), 0));
        assert!(table(9, &[one]).is_ok());
        for refused in [table(0, &[one]), table(9, &[]), table(9, &[one, empty])] {
            assert!(refused.is_err_and(|error| error.is_damage()));
        }
        let mut many = Vec::new();
        put_varint(&mut many, 1 << 20);
        many.resize((3 << 20) + 3, 1);
        let told = ContainerTable::decode(&many, "one", 64)
            .unwrap_err()
            .to_string();
        assert!(told.contains("a count of 1048576"), "{told}");
    }
}
