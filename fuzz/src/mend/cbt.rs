//! Pages of the block device's B-trees (FORMAT.md §7.8): a frame each, which fills its page, or one of two superblocks.

use onefold_io::frame::{HEADER_BYTES, OVERHEAD_BYTES};

use super::{PAGE_BYTES, close_as_said, number};

/// Pages that hold superblocks: their frames are shorter than a page.
const SUPERBLOCKS: usize = 2;

/// Makes every page whole that begins with a frame of this kind; its number is left as it is.
pub fn cbt_pages(bytes: &mut [u8]) {
    for (place, page) in bytes.chunks_exact_mut(PAGE_BYTES).enumerate() {
        if !page.starts_with(b"1FVCBT") {
            continue;
        }
        if place >= SUPERBLOCKS {
            let payload = (PAGE_BYTES - OVERHEAD_BYTES) as u64;
            page[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&payload.to_le_bytes());
        }
        close_as_said(page);
    }
}

/// Whether this looks like a whole page of the trees at this place.
pub fn is_cbt_page(page: &[u8], place: u64) -> bool {
    let mut mended = page.to_vec();
    cbt_pages(&mut mended);
    let is_here = page
        .get(HEADER_BYTES..)
        .is_some_and(|body| number(body) == place);
    is_here && page.starts_with(b"1FVCBTPG") && mended == page
}
