//! The check of a page: a checksum that also covers where the page belongs.

use crc_fast::{CrcAlgorithm, Digest};

use super::layout::{Address, PAGE_BYTES};
use super::map::run_id::RunId;

/// CRC-32C of the page's address and bytes. A page that a device wrote to another place, or an older page in its place,
/// has another check.
pub fn page_check(address: Address, page: &[u8]) -> u32 {
    debug_assert_eq!(page.len(), PAGE_BYTES);
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&address.zone.0.to_le_bytes());
    digest.update(&address.page.to_le_bytes());
    digest.update(page);
    digest.finalize() as u32
}

/// CRC-32C of a run's number, the page's number in the run, and the bytes of the page behind its check.
pub fn run_page_check(run: RunId, page: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&run.0.to_le_bytes());
    digest.update(&page.to_le_bytes());
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::super::layout::{WHOLE, ZoneId};
    use super::*;

    #[test]
    fn a_page_of_another_place_has_another_check() {
        let bytes = [7; PAGE_BYTES];
        let at = |zone, page| {
            page_check(
                Address {
                    zone: ZoneId(zone),
                    page,
                    slot: WHOLE,
                },
                &bytes,
            )
        };
        assert_eq!(at(1, 2), at(1, 2));
        assert_ne!(at(1, 2), at(1, 3));
        assert_ne!(at(1, 2), at(2, 2));
        let mut other = bytes;
        other[4095] ^= 1;
        assert_ne!(
            at(1, 2),
            page_check(
                Address {
                    zone: ZoneId(1),
                    page: 2,
                    slot: WHOLE
                },
                &other
            )
        );
    }
}
