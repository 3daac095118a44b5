//! How the pages of one zone, run or table are proved: by a CRC-32C, or sealed by AES-256-GCM where the depot is
//! encrypted. The one place that knows the difference.
//!
//! A page is proved for where it lies: its check covers the zone and its number there, so another page in its place is
//! damage. Within one filling every number is used once, by the message that begins at that page
//! (docs/decisions/volume-nonces-never-repeat.md).

use std::borrow::Cow;
use std::sync::Arc;

use onefold_keys::{Sealer, TAG_BYTES};

use super::check::page_check;
use super::checks::{CRC_BYTES, Checks};
use super::layout::{Address, PAGE_BYTES};

/// Proves pages of one filling, and seals them where the depot is encrypted.
#[derive(Clone)]
pub enum PageSealer {
    /// Pages lie as they are, with checksums.
    Crc32c,
    /// Pages are sealed with the key of their zone, run or table.
    Aead(Arc<SealingKey>),
}

/// A key that a salt gave.
pub struct SealingKey {
    /// The cipher with its key.
    pub sealer: Sealer,
    /// Numbers that the key has sealed under: tests look for those that come twice.
    #[cfg(test)]
    pub used: super::used_nonces::UsedNonces,
}

impl SealingKey {
    fn seal(&self, number: u32, identity: &[u8], message: &mut [u8]) -> [u8; TAG_BYTES] {
        #[cfg(test)]
        self.used.note(number);
        self.sealer.seal_in(number, identity, message)
    }
}

/// A page that is not what was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrongPage {
    /// Its number in the zone.
    pub page: u32,
    /// The found and the expected value, in words.
    pub what: String,
}

impl PageSealer {
    /// Bytes of a page's check.
    pub fn check_bytes(&self) -> u32 {
        match self {
            Self::Crc32c => CRC_BYTES,
            Self::Aead(_) => TAG_BYTES as u32,
        }
    }

    /// Bytes that sealing adds to a message.
    pub fn message_bytes(&self) -> usize {
        match self {
            Self::Crc32c => 0,
            Self::Aead(_) => TAG_BYTES,
        }
    }

    /// Whether pages are sealed.
    pub fn seals(&self) -> bool {
        matches!(self, Self::Aead(_))
    }

    /// Seals neighbouring pages where they lie, of which `first` is the first one, and returns their checks.
    pub fn seal(&self, first: Address, pages: &mut [u8]) -> Checks {
        let Self::Aead(key) = self else {
            return Self::checksums(first, pages);
        };
        let mut checks = Checks::none(self.check_bytes());
        for (page, bytes) in (first.page..).zip(pages.chunks_exact_mut(PAGE_BYTES)) {
            checks.push(&key.seal(page, &identity(first, page), bytes));
        }
        checks
    }

    /// Checksums of neighbouring pages that lie as they are.
    pub fn checksums(first: Address, pages: &[u8]) -> Checks {
        let mut checks = Checks::none(CRC_BYTES);
        for (page, bytes) in (first.page..).zip(pages.chunks_exact(PAGE_BYTES)) {
            checks.push(&page_check(Address { page, ..first }, bytes).to_le_bytes());
        }
        checks
    }

    /// Proves neighbouring pages by their checks, and opens them where they lie.
    ///
    /// # Errors
    /// A page is not what was written, or has no check. Then the bytes are anything.
    pub fn open(
        &self,
        first: Address,
        pages: &mut [u8],
        checks: &Checks,
    ) -> std::result::Result<(), WrongPage> {
        for (ahead, bytes) in pages.chunks_exact_mut(PAGE_BYTES).enumerate() {
            let page = first.page + ahead as u32;
            let proved = match checks.get(ahead) {
                Some(check) => self.open_page(Address { page, ..first }, bytes, check),
                None => Err("the page is behind the zone's end".to_string()),
            };
            proved.map_err(|what| WrongPage { page, what })?;
        }
        Ok(())
    }

    /// Neighbouring pages as they were written, and of each whether it is that.
    pub fn opened<'a>(
        &self,
        first: Address,
        pages: &'a [u8],
        checks: &Checks,
    ) -> (Cow<'a, [u8]>, Vec<bool>) {
        let mut plain = Cow::Borrowed(pages);
        let mut are_whole = Vec::with_capacity(checks.len());
        for (ahead, bytes) in pages.chunks_exact(PAGE_BYTES).enumerate() {
            let address = Address {
                page: first.page + ahead as u32,
                ..first
            };
            let check = checks.get(ahead).unwrap_or_default();
            are_whole.push(match self {
                Self::Crc32c => page_check(address, bytes).to_le_bytes() == *check,
                Self::Aead(_) => {
                    let start = ahead * PAGE_BYTES;
                    let page = &mut plain.to_mut()[start..start + PAGE_BYTES];
                    self.open_page(address, page, check).is_ok()
                }
            });
        }
        (plain, are_whole)
    }

    fn open_page(
        &self,
        address: Address,
        page: &mut [u8],
        check: &[u8],
    ) -> std::result::Result<(), String> {
        match self {
            Self::Crc32c => {
                let found = page_check(address, page);
                let expected = check.first_chunk().map_or(0, |it| u32::from_le_bytes(*it));
                if found == expected {
                    Ok(())
                } else {
                    Err(format!("checksum {found:#010x}, expected {expected:#010x}"))
                }
            }
            Self::Aead(key) => {
                let tag = check.first_chunk();
                let opened = tag.and_then(|tag| {
                    let identity = identity(address, address.page);
                    key.sealer.open_with(address.page, &identity, page, tag)
                });
                opened.ok_or_else(|| {
                    "the seal does not hold, expected the page that was sealed for this place"
                        .into()
                })
            }
        }
    }

    /// Seals a message that begins at page `number`, bound to `identity`: it grows by
    /// [`message_bytes`](Self::message_bytes). What is not encrypted stays as it is.
    pub fn seal_message(&self, number: u32, identity: &[u8], message: &mut Vec<u8>) {
        if let Self::Aead(key) = self {
            let tag = key.seal(number, identity, message);
            message.extend_from_slice(&tag);
        }
    }

    /// Opens a message that [`seal_message`](Self::seal_message) made; `None` where the seal does not hold.
    pub fn open_message<'a>(
        &self,
        number: u32,
        identity: &[u8],
        message: &'a [u8],
    ) -> Option<Cow<'a, [u8]>> {
        let Self::Aead(key) = self else {
            return Some(Cow::Borrowed(message));
        };
        let (sealed, tag) = message.split_last_chunk()?;
        let mut plain = sealed.to_vec();
        key.sealer.open_with(number, identity, &mut plain, tag)?;
        Some(Cow::Owned(plain))
    }
}

/// A page's identity: the filling and the page's number there.
fn identity(address: Address, page: u32) -> [u8; 12] {
    let mut identity = [0; 12];
    identity[..8].copy_from_slice(&address.zone.0.to_le_bytes());
    identity[8..].copy_from_slice(&page.to_le_bytes());
    identity
}

#[cfg(test)]
mod tests {
    use super::super::layout::{WHOLE, ZoneId};
    use super::super::seals::Seals;
    use super::*;

    fn at(zone: u64, page: u32) -> Address {
        Address {
            zone: ZoneId(zone),
            page,
            slot: WHOLE,
        }
    }

    #[test]
    fn pages_come_back_and_those_of_other_places_are_damage() {
        let seals = Seals::of_tests();
        let salts = [seals.new_salt(), seals.new_salt()].map(|salt| salt.expect("seeded"));
        for (sealer, other) in [
            (PageSealer::Crc32c, PageSealer::Crc32c),
            (seals.pages(salts[0]), seals.pages(salts[1])),
        ] {
            let plain = [[1; PAGE_BYTES], [2; PAGE_BYTES]].concat();
            let mut stored = plain.clone();
            let checks = sealer.seal(at(3, 7), &mut stored);
            assert_eq!(stored != plain, sealer.seals());
            let open = |sealer: &PageSealer, first, pages: &[u8], checks: &Checks| {
                let mut pages = pages.to_vec();
                sealer.open(first, &mut pages, checks).map(|()| pages)
            };
            assert_eq!(open(&sealer, at(3, 7), &stored, &checks), Ok(plain));
            for (first, wrong) in [(at(3, 8), 8), (at(4, 7), 7)] {
                let error = open(&sealer, first, &stored, &checks).expect_err("another place");
                assert_eq!(error.page, wrong);
            }
            let swapped = [&stored[PAGE_BYTES..], &stored[..PAGE_BYTES]].concat();
            assert!(open(&sealer, at(3, 7), &swapped, &checks).is_err());
            let few = checks.of(0..1).expect("one");
            assert_eq!(
                open(&sealer, at(3, 7), &stored, &few).map_err(|it| it.page),
                Err(8)
            );
            stored[PAGE_BYTES + 9] ^= 1;
            let error = open(&sealer, at(3, 7), &stored, &checks).expect_err("a flipped bit");
            assert_eq!(error.page, 8);
            let (pages, are_whole) = sealer.opened(at(3, 7), &stored, &checks);
            assert_eq!(
                (&pages[..PAGE_BYTES], &are_whole[..]),
                (&[1; PAGE_BYTES][..], &[true, false][..])
            );
            if sealer.seals() {
                assert!(open(&other, at(3, 7), &stored[..PAGE_BYTES], &few).is_err());
            }
        }
    }
}
