//! Containers: immutable objects of blocks of neighbouring chunks, their descriptor table and a footer. FORMAT.md, "Container".
//!
//! A container describes itself: from the table everything can be found, and where the table is damaged, each block still tells the
//! lengths of its chunks, so that their fingerprints can be computed again. A block is bound by its seal to its container and number.

use onefold_chunk::Fingerprint;
use onefold_index::ContainerId;
use onefold_io::frame::{self, FrameKind, crc64};
use onefold_io::varint::{ByteReader, put_varint};

use crate::compression::{Codec, Decompressor};
use crate::keys::{SALT_BYTES, Sealer};
use crate::{Error, Result};

/// The header's frame.
pub const HEADER: FrameKind = FrameKind {
    magic: *b"1FCONTNR",
    version: 1,
};
/// The footer's frame.
pub const FOOTER: FrameKind = FrameKind {
    magic: *b"1FCFOOTR",
    version: 1,
};
/// Header: a frame around id 8, stream 1, reserved 7, salt 16.
pub const HEADER_BYTES: usize = frame::OVERHEAD_BYTES + 32;
/// Footer: a frame around id 8, table offset 8, table length 4, blocks 4, chunks 4, reserved 4, checksum of the table 8.
pub const FOOTER_BYTES: usize = frame::OVERHEAD_BYTES + 40;
/// Before each block: magic 4, number 4, codec 1, reserved 3, raw length 4, stored length 4, checksum 8.
pub const BLOCK_HEADER_BYTES: usize = 28;
const BLOCK_MAGIC: [u8; 4] = *b"1FB\n";
/// No block's raw bytes are more than this; a length beyond it is damage.
pub const BLOCK_RAW_BYTES_MAX: usize = 64 << 20;
/// The table's number under the container's seal; blocks count from 0 and stay below.
const TABLE_NUMBER: u32 = u32::MAX;

/// What a container holds: file contents or metadata. Restore wants them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamKind {
    /// File contents.
    Data,
    /// The metadata stream and recipes.
    Metadata,
}

impl StreamKind {
    fn code(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::Metadata => 1,
        }
    }
}

/// The first bytes of a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Its name.
    pub id: ContainerId,
    /// What it holds.
    pub stream: StreamKind,
    /// Makes its sealing key unique.
    pub salt: [u8; SALT_BYTES],
}

impl Header {
    /// As stored: [`HEADER_BYTES`].
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(32);
        payload.extend_from_slice(&self.id.0.to_le_bytes());
        payload.push(self.stream.code());
        payload.extend_from_slice(&[0; 7]);
        payload.extend_from_slice(&self.salt);
        frame::encode_frame(HEADER, 0, &payload)
    }

    /// From the first bytes of the container that is named `id`.
    pub fn decode(id: ContainerId, bytes: &[u8]) -> Result<Self> {
        let object = object_name(id);
        let payload = frame::decode_frame(HEADER, bytes, &object, 0)?.payload;
        let mut reader = ByteReader::new(payload, &object, frame::HEADER_BYTES as u64);
        let found = ContainerId(reader.u64()?);
        let stream = match reader.u8()? {
            0 => StreamKind::Data,
            1 => StreamKind::Metadata,
            other => {
                return Err(Error::damaged(
                    object,
                    None,
                    format!("stream kind {other}, expected 0 or 1"),
                ));
            }
        };
        reader.take(7)?;
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

/// The name of a container's object.
pub fn object_name(id: ContainerId) -> String {
    format!("containers/{:02x}/{id}", id.0 >> 56)
}

/// The container that an object name speaks of.
pub fn id_of_object(name: &str) -> Option<ContainerId> {
    let digits = name.strip_prefix("containers/")?.get(3..)?;
    let id = ContainerId(u64::from_str_radix(digits, 16).ok()?);
    (object_name(id) == name).then_some(id)
}

/// One block in a container's table.
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
    /// How many chunks it holds.
    pub chunks: u32,
}

/// A container's descriptors: its blocks, and its chunks in stream order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// In order of offset.
    pub blocks: Vec<BlockDescriptor>,
    /// Fingerprint and length in bytes, in stream order.
    pub chunks: Vec<(Fingerprint, u32)>,
}

impl Table {
    /// The block that holds chunk number `chunk`.
    pub fn block_of(&self, chunk: u32) -> usize {
        self.blocks
            .partition_point(|block| block.first_chunk <= chunk)
            - 1
    }

    /// Adds a block that starts at `offset`.
    pub fn push_block(&mut self, offset: u64, stored_len: u32, chunks: &[(Fingerprint, u32)]) {
        let chunk_bytes = chunks.iter().map(|(_, len)| len).sum();
        let first_chunk = self.chunks.len() as u32;
        self.blocks.push(BlockDescriptor {
            offset,
            stored_len,
            chunk_bytes,
            first_chunk,
            chunks: chunks.len() as u32,
        });
        self.chunks.extend_from_slice(chunks);
    }

    fn encode(&self) -> Vec<u8> {
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

    fn decode(bytes: &[u8], object: &str, offset: u64) -> Result<Self> {
        let mut reader = ByteReader::new(bytes, object, offset);
        let small = |reader: &mut ByteReader<'_>| -> Result<u32> {
            let value = reader.varint()?;
            u32::try_from(value).map_err(|_| {
                reader
                    .damaged(format!("{value} does not fit 32 bits"))
                    .into()
            })
        };
        let block_count = reader.count(3)?;
        let mut table = Self {
            blocks: Vec::with_capacity(block_count),
            chunks: Vec::new(),
        };
        let mut chunk_count = 0u32;
        for _ in 0..block_count {
            let (offset, stored_len, chunks) =
                (reader.varint()?, small(&mut reader)?, small(&mut reader)?);
            table.blocks.push(BlockDescriptor {
                offset,
                stored_len,
                chunk_bytes: 0,
                first_chunk: chunk_count,
                chunks,
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
            table
                .chunks
                .push((Fingerprint([0; 32]), small(&mut reader)?));
        }
        for chunk in &mut table.chunks {
            chunk.0 = Fingerprint(reader.array()?);
        }
        reader.end()?;
        for block in &mut table.blocks {
            let own = &table.chunks[block.first_chunk as usize..][..block.chunks as usize];
            let sum: u64 = own.iter().map(|(_, len)| u64::from(*len)).sum();
            if sum > BLOCK_RAW_BYTES_MAX as u64 {
                return Err(Error::damaged(
                    object,
                    Some(offset),
                    format!("a block of {sum} bytes, at most {BLOCK_RAW_BYTES_MAX} can be"),
                ));
            }
            block.chunk_bytes = sum as u32;
        }
        Ok(table)
    }
}

/// A block before it is compressed: chunk bytes one after the other, then their lengths.
///
/// `lens_of` gives the trailer: every chunk's length as a varint, then the trailer's own length in four bytes.
pub fn append_chunk_lengths(raw: &mut Vec<u8>, chunks: &[(Fingerprint, u32)]) {
    let start = raw.len();
    chunks
        .iter()
        .for_each(|(_, len)| put_varint(raw, (*len).into()));
    let trailer = (raw.len() - start) as u32;
    raw.extend_from_slice(&trailer.to_le_bytes());
}

/// The lengths of the chunks in a block's raw bytes, from the trailer.
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
        lens.push(u32::try_from(len).map_err(|_| bad("a chunk of over 4 GiB"))?);
    }
    if sum != data_bytes as u64 {
        return Err(bad(&format!(
            "chunk lengths sum up to {sum}, the block holds {data_bytes} bytes"
        )));
    }
    Ok(lens)
}

/// A block's header and its stored bytes: `coded` sealed in place.
pub fn encode_block(
    id: ContainerId,
    number: u32,
    codec: Codec,
    coded: Vec<u8>,
    raw_len: u32,
    sealer: &Sealer,
) -> ([u8; BLOCK_HEADER_BYTES], Vec<u8>) {
    let mut body = coded;
    sealer.seal(
        number,
        &block_identity(id, number, codec, raw_len),
        &mut body,
    );
    let mut header = [0; BLOCK_HEADER_BYTES];
    header[..4].copy_from_slice(&BLOCK_MAGIC);
    header[4..8].copy_from_slice(&number.to_le_bytes());
    header[8] = codec.code();
    header[12..16].copy_from_slice(&raw_len.to_le_bytes());
    header[16..20].copy_from_slice(&(body.len() as u32).to_le_bytes());
    let crc = block_checksum(&header[..20], &body);
    header[20..].copy_from_slice(&crc.to_le_bytes());
    (header, body)
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
    /// How the raw bytes were coded.
    pub codec: Codec,
    /// Raw bytes, trailer included.
    pub raw_len: u32,
    /// Bytes after the header.
    pub stored_len: u32,
    checksum: u64,
}

impl BlockHeader {
    /// From the first [`BLOCK_HEADER_BYTES`] of a block that starts at `offset`.
    pub fn decode(bytes: &[u8], object: &str, offset: u64) -> Result<Self> {
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
        let [codec, zeros @ ..] = reader.array::<4>()?;
        let codec = Codec::from_code(codec).filter(|_| zeros == [0; 3]);
        let codec =
            codec.ok_or_else(|| Error::damaged(object, Some(offset + 8), "an unknown codec"))?;
        let (raw_len, stored_len, checksum) = (reader.u32()?, reader.u32()?, reader.u64()?);
        if raw_len as usize > BLOCK_RAW_BYTES_MAX {
            return Err(Error::damaged(
                object,
                Some(offset + 12),
                format!("a block of {raw_len} bytes, at most {BLOCK_RAW_BYTES_MAX} can be"),
            ));
        }
        Ok(Self {
            number,
            codec,
            raw_len,
            stored_len,
            checksum,
        })
    }
}

/// A whole stored block (header included, exactly) back to its raw bytes with trailer. Checksum, seal and length are checked.
pub fn decode_block(
    header: &Header,
    number: u32,
    stored: &[u8],
    offset: u64,
    sealer: &Sealer,
    zstd: &mut Decompressor,
) -> Result<Vec<u8>> {
    let object = object_name(header.id);
    let bad =
        |what: String| Error::damaged(format!("{object}, block {number}"), Some(offset), what);
    let block = BlockHeader::decode(stored, &object, offset)?;
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
    if block.checksum != expected {
        return Err(bad(format!(
            "checksum {:#018x}, expected {expected:#018x}",
            block.checksum
        )));
    }
    let mut body = body.to_vec();
    let identity = block_identity(header.id, number, block.codec, block.raw_len);
    sealer
        .open(number, &identity, &mut body)
        .ok_or_else(|| bad("its seal does not hold".into()))?;
    zstd.decode(block.codec, body, block.raw_len as usize)
        .map_err(bad)
}

/// The end of a container: the sealed table, then the footer.
pub fn encode_tail(id: ContainerId, table: &Table, table_offset: u64, sealer: &Sealer) -> Vec<u8> {
    let mut out = table.encode();
    sealer.seal(TABLE_NUMBER, &id.0.to_le_bytes(), &mut out);
    let mut payload = Vec::with_capacity(40);
    payload.extend_from_slice(&id.0.to_le_bytes());
    payload.extend_from_slice(&table_offset.to_le_bytes());
    payload.extend_from_slice(&(out.len() as u32).to_le_bytes());
    payload.extend_from_slice(&(table.blocks.len() as u32).to_le_bytes());
    payload.extend_from_slice(&(table.chunks.len() as u32).to_le_bytes());
    payload.extend_from_slice(&0u32.to_le_bytes());
    payload.extend_from_slice(&crc64(&out).to_le_bytes());
    out.extend_from_slice(&frame::encode_frame(FOOTER, 0, &payload));
    out
}

/// Where a container's table lies, from its footer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footer {
    /// Offset of the sealed table in the container, in bytes.
    pub table_offset: u64,
    /// Bytes of the sealed table.
    pub table_len: u32,
    table_checksum: u64,
}

impl Footer {
    /// From the last [`FOOTER_BYTES`] of the container `id`, which is `container_len` bytes long.
    pub fn decode(id: ContainerId, bytes: &[u8], container_len: u64) -> Result<Self> {
        let object = object_name(id);
        let offset = container_len - bytes.len() as u64;
        let payload = frame::decode_frame(FOOTER, bytes, &object, offset)?.payload;
        let mut reader = ByteReader::new(payload, &object, offset + frame::HEADER_BYTES as u64);
        let found = ContainerId(reader.u64()?);
        let (table_offset, table_len) = (reader.u64()?, reader.u32()?);
        reader.take(12)?;
        let table_checksum = reader.u64()?;
        reader.end()?;
        if found != id {
            return Err(Error::damaged(
                object,
                Some(offset),
                format!("the footer names container {found}"),
            ));
        }
        if table_offset.checked_add(table_len.into()) != Some(offset) {
            return Err(Error::damaged(
                object,
                Some(offset),
                "the table does not end where the footer begins",
            ));
        }
        Ok(Self {
            table_offset,
            table_len,
            table_checksum,
        })
    }

    /// The table from its sealed bytes.
    pub fn open_table(
        &self,
        id: ContainerId,
        mut sealed: Vec<u8>,
        sealer: &Sealer,
    ) -> Result<Table> {
        let object = format!("{}, descriptor table", object_name(id));
        let found = crc64(&sealed);
        if found != self.table_checksum {
            let what = format!(
                "checksum {found:#018x}, expected {:#018x}",
                self.table_checksum
            );
            return Err(Error::damaged(object, Some(self.table_offset), what));
        }
        if sealer
            .open(TABLE_NUMBER, &id.0.to_le_bytes(), &mut sealed)
            .is_none()
        {
            return Err(Error::damaged(
                object,
                Some(self.table_offset),
                "its seal does not hold",
            ));
        }
        Table::decode(&sealed, &object, self.table_offset)
    }
}
