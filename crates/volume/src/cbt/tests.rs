//! Tests of the space for pages.

use std::collections::BTreeSet;

use onefold_io::Random;

use super::page::{self, CbtFormat};
use super::space::{BITS, GROUP_PAGES, Space};
use crate::Error;
use crate::page_cache::{PAGE_BYTES, PageFormat};

/// Over three groups: no page is given twice, none that a crash may need, none that holds bits or a superblock.
#[test]
fn space_gives_what_nobody_needs() {
    let (mut space, mut random) = (Space::new(), Random(7));
    let mut used: BTreeSet<u64> = BTreeSet::new();
    let mut waiting: BTreeSet<u64> = BTreeSet::new();
    let mut bits = vec![Vec::new(); 12];
    for transaction in 1..40 {
        for _ in 0..4000 {
            let any = used.range(random.below(space.end())..).next().copied();
            match (random.below(8), any) {
                (0, Some(page)) => {
                    used.remove(&page);
                    space.release(page);
                }
                (1, Some(page)) => {
                    used.remove(&page);
                    waiting.insert(page);
                    space.release_later(page);
                }
                _ => {
                    let page = space.allocate(u64::MAX).expect("room");
                    assert!(page % GROUP_PAGES >= 4, "page {page} is not for nodes");
                    assert!(!waiting.contains(&page), "a crash needs page {page}");
                    assert!(used.insert(page), "page {page} is in use");
                }
            }
        }
        let places: Vec<u8> = space.slots().collect();
        for (place, mut bytes) in space.commit(transaction) {
            let (group, slot) = (place / GROUP_PAGES, place % GROUP_PAGES - 2);
            let counts = places.get(group as usize).copied();
            assert_ne!(counts, Some(slot as u8), "the bits that count are kept");
            format(transaction).seal(place, &mut bytes);
            bits[(group * 2 + slot) as usize] = bytes;
        }
        waiting.clear();
    }
    assert!(space.end() > 2 * GROUP_PAGES, "only {} pages", space.end());
    assert!(space.end() < 2 * used.len() as u64, "pages are used again");
    let slots: Vec<u8> = space.slots().collect();
    let loaded = Space::load(&slots, space.end(), space.cursor(), |place| {
        let at = place / GROUP_PAGES * 2 + place % GROUP_PAGES - 2;
        let bytes = bits[at as usize].clone();
        format(100).check(place, &bytes).map(|()| bytes)
    });
    let loaded = loaded.expect("what was written");
    for page in (0..space.end()).filter(|page| page % GROUP_PAGES >= 4) {
        assert_eq!(loaded.is_used(page), used.contains(&page), "page {page}");
    }
}

fn format(transaction_max: u64) -> CbtFormat {
    CbtFormat { transaction_max }
}

/// A page of bits that says too much or too little is damage, though its checksum fits.
#[test]
fn bits_that_cannot_be_are_damage() {
    let load = |body: &[u8]| {
        let mut bytes = vec![0; PAGE_BYTES];
        page::begin(&mut bytes, BITS, 1);
        bytes[page::BODY_AT..][..body.len()].copy_from_slice(body);
        Space::load(&[0], 5, 4, |_| Ok(bytes.clone())).map(|space| space.is_used(4))
    };
    assert_eq!(load(&[0b1_1111]).ok(), Some(true));
    assert_eq!(load(&[0b0_1111]).ok(), Some(false));
    for body in [&[0b1_1110][..], &[0b0_0111], &[0xff], &[0x1f, 0, 0, 1]] {
        let damage = load(body).err();
        assert!(matches!(damage, Some(Error::Damaged { .. })), "{body:?}");
    }
}
