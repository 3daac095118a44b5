//! Containers, FORMAT.md §2.4: a frame in front, blocks with checksums of their own, the table, whose checksum is in
//! the footer, and that.

use onefold_io::frame::crc64;
use onefold_store::block::BLOCK_HEADER_BYTES;
use onefold_store::container::HEADER_BYTES;
use onefold_store::footer::FOOTER_BYTES;

use super::{close, find, number_of_four};

/// Beginning of a block.
const BLOCK_MAGIC: &[u8] = b"1FB\n";
/// Where in the footer the table's place stands, its length, and its checksum.
const TABLE_OFFSET_AT: usize = 32;
const TABLE_LEN_AT: usize = 40;
const TABLE_CRC_AT: usize = 56;

/// A whole one. A block goes up to the next; the last one is as long as it says, and the table is what lies behind it.
pub fn container(bytes: &mut [u8]) {
    let Some(end) = bytes.len().checked_sub(FOOTER_BYTES) else {
        return;
    };
    if end < HEADER_BYTES {
        return;
    }
    close(&mut bytes[..HEADER_BYTES]);
    let table = HEADER_BYTES + blocks(&mut bytes[HEADER_BYTES..end]);
    let place = (table as u64).to_le_bytes();
    bytes[end..][TABLE_OFFSET_AT..TABLE_OFFSET_AT + 8].copy_from_slice(&place);
    tail(&mut bytes[table..]);
}

/// A table and the footer behind it, which begins at the place that it says.
pub fn tail(bytes: &mut [u8]) {
    let Some(table_len) = bytes.len().checked_sub(FOOTER_BYTES) else {
        return;
    };
    let (table, footer) = bytes.split_at_mut(table_len);
    footer[TABLE_LEN_AT..TABLE_LEN_AT + 4].copy_from_slice(&(table_len as u32).to_le_bytes());
    footer[TABLE_CRC_AT..TABLE_CRC_AT + 8].copy_from_slice(&crc64(table).to_le_bytes());
    close(footer);
}

/// The blocks that `bytes` begin with; gives where they end.
fn blocks(bytes: &mut [u8]) -> usize {
    let mut at = 0;
    while bytes[at..].starts_with(BLOCK_MAGIC) && bytes.len() - at >= BLOCK_HEADER_BYTES {
        let body = at + BLOCK_HEADER_BYTES;
        let said = body.saturating_add(number_of_four(&bytes[at + 16..]) as usize);
        let end = find(bytes, BLOCK_MAGIC, body).unwrap_or(said.min(bytes.len()));
        block(&mut bytes[at..end]);
        at = end;
    }
    at
}

/// A block that is all of `bytes`.
pub fn block(bytes: &mut [u8]) {
    let Some(stored_len) = bytes.len().checked_sub(BLOCK_HEADER_BYTES) else {
        return;
    };
    bytes[16..20].copy_from_slice(&(stored_len as u32).to_le_bytes());
    let (header, stored) = bytes.split_at_mut(BLOCK_HEADER_BYTES);
    let crc = crc64(&header[..20]).rotate_left(17) ^ crc64(stored);
    header[20..].copy_from_slice(&crc.to_le_bytes());
}
