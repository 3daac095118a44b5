//! The end of a container: the sealed table, then a footer that locates it and repeats the header. FORMAT.md,
//! "Container".

use onefold_index::ContainerId;
use onefold_io::frame::{self, FrameKind, crc64};
use onefold_io::varint::ByteReader;
use onefold_keys::{SALT_BYTES, Sealer};

use crate::container::{ContainerTable, Header, StreamKind, object_name, zeros};
use crate::objects::OBJECT_BYTES_MAX;
use crate::{Error, Result};

/// The footer's frame.
pub const FOOTER: FrameKind = FrameKind {
    magic: *b"1FCFOOTR",
    version: 1,
};
/// A frame around id 8, table offset 8, table length 4, blocks 4, chunks 4, stream 1, reserved 3, checksum of the table
/// 8, salt 16.
pub const FOOTER_BYTES: usize = frame::OVERHEAD_BYTES + 56;
/// The table's number under the container's seal; blocks count from 0 and stay below.
const TABLE_NUMBER: u32 = u32::MAX;

/// The end of a container: the sealed table, then the footer.
pub fn encode_tail(
    header: &Header,
    table: &ContainerTable,
    table_offset: u64,
    sealer: &Sealer,
) -> Vec<u8> {
    let id = header.id.0.to_le_bytes();
    let mut out = table.encode();
    sealer.seal(TABLE_NUMBER, &id, &mut out);
    let mut payload = Vec::with_capacity(56);
    payload.extend_from_slice(&id);
    payload.extend_from_slice(&table_offset.to_le_bytes());
    payload.extend_from_slice(&(out.len() as u32).to_le_bytes());
    payload.extend_from_slice(&(table.blocks.len() as u32).to_le_bytes());
    payload.extend_from_slice(&(table.chunks.len() as u32).to_le_bytes());
    payload.extend_from_slice(&[header.stream.code(), 0, 0, 0]);
    payload.extend_from_slice(&crc64(&out).to_le_bytes());
    payload.extend_from_slice(&header.salt);
    out.extend_from_slice(&frame::encode_frame(FOOTER, &payload));
    out
}

/// Where a container's table lies, and what the header says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Footer {
    /// The header again.
    pub header: Header,
    /// Offset of the sealed table in the container, in bytes.
    pub table_offset: u64,
    /// Bytes of the sealed table.
    pub table_len: u32,
    /// Number of blocks in the table.
    pub blocks: u32,
    /// Number of chunks in the table.
    pub chunks: u32,
    table_checksum: u64,
}

impl Footer {
    /// Decodes the last [`FOOTER_BYTES`] of the container `id`, which is `container_len` bytes long.
    ///
    /// # Errors
    /// Damage of the container ([`Error::is_damage`]): no whole frame, another container's, a table that is too long or
    /// does not end at `bytes`. Another version's frame or stream kind ([`Error::is_other_version`]).
    pub fn decode(id: ContainerId, bytes: &[u8], container_len: u64) -> Result<Self> {
        let object = object_name(id);
        let offset = container_len - bytes.len() as u64;
        let payload = frame::decode_whole(FOOTER, bytes, &object, offset)?;
        let mut reader = ByteReader::new(payload, &object, offset + frame::HEADER_BYTES as u64);
        let found = ContainerId(reader.u64()?);
        let (table_offset, table_len) = (reader.u64()?, reader.u32()?);
        let (blocks, chunks) = (reader.u32()?, reader.u32()?);
        let stream = StreamKind::read(&mut reader, &object)?;
        zeros::<3>(&mut reader)?;
        let table_checksum = reader.u64()?;
        let salt: [u8; SALT_BYTES] = reader.array()?;
        reader.end()?;
        let bad = |what: String| Error::damaged(&object, Some(offset), what);
        if found != id {
            return Err(bad(format!("the footer names container {found}")));
        }
        if u64::from(table_len) > OBJECT_BYTES_MAX {
            return Err(bad(format!(
                "a table of {table_len} bytes, at most {OBJECT_BYTES_MAX} can be"
            )));
        }
        if table_offset.checked_add(table_len.into()) != Some(offset) {
            return Err(bad("the table does not end where the footer begins".into()));
        }
        Ok(Self {
            header: Header { id, stream, salt },
            table_offset,
            table_len,
            blocks,
            chunks,
            table_checksum,
        })
    }

    /// Whether a sealed table of this checksum is the container's.
    pub(crate) fn is_table(&self, checksum: u64) -> bool {
        checksum == self.table_checksum
    }

    /// The table from its sealed bytes.
    ///
    /// # Errors
    /// Damage of the table ([`Error::is_damage`]): checksum, seal or contents are wrong, or its counts are not the
    /// footer's.
    pub fn open_table(&self, mut sealed: Vec<u8>, sealer: &Sealer) -> Result<ContainerTable> {
        let object = format!("{}, descriptor table", object_name(self.header.id));
        let bad = |what: String| Error::damaged(&object, Some(self.table_offset), what);
        let found = crc64(&sealed);
        if found != self.table_checksum {
            return Err(bad(format!(
                "checksum {found:#018x}, expected {:#018x}",
                self.table_checksum
            )));
        }
        let id = self.header.id.0.to_le_bytes();
        sealer
            .open(TABLE_NUMBER, &id, &mut sealed)
            .ok_or_else(|| bad("its seal does not hold".into()))?;
        let table = ContainerTable::decode(&sealed, &object, self.table_offset)?;
        let (blocks, chunks) = (table.blocks.len(), table.chunks.len());
        if (blocks, chunks) != (self.blocks as usize, self.chunks as usize) {
            let (said, listed) = (self.blocks, self.chunks);
            return Err(bad(format!(
                "{blocks} blocks of {chunks} chunks, the footer says {said} of {listed}"
            )));
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_a_later_version_is_told_at_its_place() {
        let id = ContainerId(7);
        let mut payload = [&id.0.to_le_bytes()[..], &[0; 48]].concat();
        payload[28] = 9;
        let bytes = frame::encode_frame(FOOTER, &payload);
        let error = Footer::decode(id, &bytes, 1000 + bytes.len() as u64).unwrap_err();
        let told = error.to_string();
        let place = format!("offset {}:", 1000 + frame::HEADER_BYTES + 28);
        assert!(error.is_other_version() && told.contains(&place), "{told}");
    }

    /// In a file that is a hole but for its end, its checksums may all be right.
    #[test]
    fn a_table_longer_than_any_is_damage() {
        let id = ContainerId(7);
        let footer = |table_len: u32| {
            let mut payload = id.0.to_le_bytes().to_vec();
            payload.extend_from_slice(&64u64.to_le_bytes());
            payload.extend_from_slice(&table_len.to_le_bytes());
            payload.extend_from_slice(&[0; 8]);
            payload.extend_from_slice(&[StreamKind::Data.code(), 0, 0, 0]);
            payload.extend_from_slice(&[0; 8 + SALT_BYTES]);
            let bytes = frame::encode_frame(FOOTER, &payload);
            let container_len = 64 + u64::from(table_len) + bytes.len() as u64;
            Footer::decode(id, &bytes, container_len)
        };
        assert_eq!(footer(1 << 20).unwrap().table_len, 1 << 20);
        assert!(footer(u32::MAX - 7).is_err_and(|error| error.is_damage()));
    }
}
