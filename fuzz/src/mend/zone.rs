//! Tables of zones of the block device: rows, checks, and a footer with the checksums of both.

use onefold_io::frame::{HEADER_BYTES, crc64};

use super::{PAGE_BYTES, close_as_said};

/// Where the footer's payload has the checksums, of rows and of checks.
const CHECKSUMS_AT: usize = HEADER_BYTES + 24;

/// The table of a zone of 256 KiB: a page of rows, a page of checks, the footer's page.
pub fn zone_table(bytes: &mut [u8]) {
    if bytes.len() != 3 * PAGE_BYTES {
        return;
    }
    let (parts, footer) = bytes.split_at_mut(2 * PAGE_BYTES);
    for (at, part) in parts.chunks(PAGE_BYTES).enumerate() {
        let place = CHECKSUMS_AT + at * 8;
        footer[place..place + 8].copy_from_slice(&crc64(part).to_le_bytes());
    }
    close_as_said(footer);
}
