//! Files of sealed pages: those of the indexes, FORMAT.md §5, and those of filters on flash, which are sealed together.

use onefold_io::frame::{TRAILER_BYTES, crc64};

use super::close;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Pages that a filter's checksum takes at once.
const RUN_PAGES: usize = 256;

/// Seals every page that is not a hole.
pub fn pages(bytes: &mut [u8]) {
    for (number, page) in bytes.chunks_exact_mut(PAGE_BYTES).enumerate() {
        seal(page, number, 0);
    }
}

/// Seals page `number` of a file that has this mark, if it is no hole.
pub fn seal(page: &mut [u8], number: usize, mark: u64) {
    if page.iter().any(|byte| *byte != 0) {
        let check = check(page, number) ^ mark;
        page[..8].copy_from_slice(&check.to_le_bytes());
    }
}

/// Whether every page of a file without a mark is whole.
pub fn hold(bytes: &[u8]) -> bool {
    let mut sealed = bytes.to_vec();
    pages(&mut sealed);
    sealed == bytes && bytes.len().is_multiple_of(PAGE_BYTES)
}

fn check(page: &[u8], number: usize) -> u64 {
    crc64(&page[8..]) ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the saved state of a filter for other pages on flash; it was `saved` beside `pages`. The state ends with the
/// checksum of some first pages.
pub fn saved_for(saved: &[u8], pages: &[u8]) -> impl Fn(&[u8]) -> Vec<u8> + use<> {
    let at = saved.len() - TRAILER_BYTES - 8;
    let stored = super::number(&saved[at..]);
    let covers = |count: &usize| of_pages(&pages[..count * PAGE_BYTES]) == stored;
    let count = (0..=pages.len() / PAGE_BYTES).find(covers);
    let covered = count.expect("the checksum of some pages") * PAGE_BYTES;
    let saved = saved.to_vec();
    move |pages| {
        let mut saved = saved.clone();
        let checksum = of_pages(&pages[..covered.min(pages.len())]);
        saved[at..at + 8].copy_from_slice(&checksum.to_le_bytes());
        close(&mut saved);
        saved
    }
}

/// CRC-64 of the CRC-64s of runs of pages.
fn of_pages(pages: &[u8]) -> u64 {
    let runs = pages.chunks(RUN_PAGES * PAGE_BYTES).map(crc64);
    crc64(&runs.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
}
